//! The traffic of the demo and of the bundled capture: ordinary traffic, and in the middle of it a source that opens a
//! new flow with nearly every packet, like a scan.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::Result;

use crate::{
    pcap::{Schedule, Writer},
    traffic::{HEADERS_MAX, Mix, Packet, Plan, Traffic},
};

/// A few talkers have most of this traffic, and everything that a router sees occurs.
const MORNING: Plan = Plan {
    seed: 1898, // of Bazin's formula for the flow over a weir
    packets: 2_200,
    flows: 500,
    zipf: 1.2,
    flows_per_source: 4,
    flows_per_destination: 8,
    mix: Mix { non_ip: 0.015, damaged: 0.005, ..Mix::ROUTER },
};
/// The scan has one source, 60,000 possible flows, and 250 destinations.
const SCAN: Plan = Plan {
    seed: 1899,
    packets: 400,
    flows: 60_000,
    zipf: 0.0,
    flows_per_source: 60_000,
    flows_per_destination: 240,
    mix: Mix::PLAIN,
};
/// After how many packets the scan begins; it then alternates with the ordinary traffic.
const SCAN_FROM: usize = 1_000;
/// The beginning of the capture, at a full minute.
const START: Duration = Duration::from_secs(1_700_000_040);
/// Packets a second in the capture, which therefore lasts nearly ten seconds.
const PACKETS_PER_SECOND: u32 = 265;

/// The packets, in order; always the same.
///
/// # Errors
///
/// None, as long as the plans above are possible.
pub fn packets() -> Result<Vec<Packet>> {
    let mut packets: Vec<_> = Traffic::new(MORNING)?.collect();
    let later = packets.split_off(SCAN_FROM);
    let mut scan = Traffic::new(SCAN)?;
    for packet in later {
        packets.extend([Some(packet), scan.next()].into_iter().flatten());
    }
    Ok(packets)
}

/// Writes the bundled capture with all headers of each packet, and no more.
///
/// # Errors
///
/// The errors of `out`.
pub fn write_capture(packets: &[Packet], out: impl Write) -> io::Result<()> {
    let schedule = Schedule { start: START, packets_per_second: PACKETS_PER_SECOND };
    let mut writer = Writer::new(out, HEADERS_MAX as u32)?;
    for (nth, packet) in (0..).zip(packets) {
        writer.write(schedule.at(nth), &packet.frame)?;
    }
    writer.finish().map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::oracle::{By, Dimension, Oracle};

    #[test]
    fn the_bundled_capture_is_what_the_generator_makes() {
        let mut made = Vec::new();
        write_capture(&packets().unwrap(), &mut made).unwrap();
        let bundled = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/demo.pcap")).unwrap();
        assert!(made == bundled, "make it again by the command in tests/corpus/README.md");
        assert!(made.len() <= 600_000, "{} bytes are much for a repository", made.len());
    }

    #[test]
    fn something_of_everything_happens() {
        let packets = packets().unwrap();
        let mut oracle = Oracle::new();
        oracle.extend(packets.iter().map(|packet| &packet.truth));
        assert_eq!(oracle.sent().packets, MORNING.packets + SCAN.packets);
        for reason in ["arp", "lldp", "vlan_depth", "bad_ip_header"] {
            assert!(oracle.skipped().contains_key(reason), "no {reason}: {:?}", oracle.skipped());
        }
        let (_, largest) = oracle.top(Dimension::Flows, By::Bytes, 1)[0];
        assert!(largest.bytes * 10 > oracle.sent().bytes, "no heavy hitter: {largest:?}");
        let mut before = Oracle::new();
        before.extend(packets[..SCAN_FROM].iter().map(|packet| &packet.truth));
        before.next_window();
        before.extend(packets[SCAN_FROM..][..2 * SCAN.packets as usize].iter().map(|packet| &packet.truth));
        assert!(before.new_flows() > SCAN.packets * 9 / 10, "no burst: {} new flows", before.new_flows());
    }
}
