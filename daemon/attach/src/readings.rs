//! Reads the interfaces' own counts and weir's counters at the same moment.
//!
//! The interfaces' own counts are read from `/proc/net/dev`. They are the same as by netlink, but reading them does not
//! take Linux's configuration lock, which other processes may hold for seconds. The file has names but no indexes, so
//! weir asks the kernel for the index of each name, which needs no lock either. By then another interface may have the
//! name.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    thread,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice::name_to_index, socket_with};
use weir_common::{control::OTHERS, ledger::Tally};
use weir_config::interface::Way;
use weir_datapath::counters::LiveCounters;

use super::{
    coverage::{Reading, SeenPackets},
    netlink::name,
};

/// The last reading of all counts.
pub struct Readings<'a> {
    /// `/proc/net/dev` of the network namespace that weir was started in.
    file: File,
    /// A socket for asking the kernel for indexes.
    socket: OwnedFd,
    /// The counters of weir's programs, if programs are loaded.
    live: Option<&'a LiveCounters>,
    /// The interfaces' own counts, by name and direction.
    own: OwnCounts,
    /// The interfaces' own counts at a second reading.
    later: OwnCounts,
    /// The packets that weir's programs had counted before and after the interfaces were read, by slot.
    seen: Vec<[SeenPackets; 2]>,
    /// The packets in the account `others` before that.
    others: SeenPackets,
}

type OwnCounts = HashMap<String, [Tally; 2]>;

impl<'a> Readings<'a> {
    /// Creates it without a reading.
    ///
    /// # Errors
    ///
    /// There is no `/proc`.
    pub fn new(live: Option<&'a LiveCounters>) -> io::Result<Self> {
        let (own, later) = Default::default();
        let file = File::open("/proc/thread-self/net/dev")?;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { file, socket, live, own, later, seen: Vec::new(), others: SeenPackets::default() })
    }

    /// Reads weir's counters of this many slots, then the interfaces' own, and after a `pause` weir's again. If an
    /// interface counted a packet before the pause, weir's program has counted it after the pause, or never will.
    ///
    /// # Errors
    ///
    /// The kernel did not answer. Then no counts are known.
    pub fn take(&mut self, slots: usize, pause: Duration) -> io::Result<()> {
        (self.own, self.later) = Default::default();
        let before = self.seen_now(slots);
        self.others = self.seen_of(OTHERS as usize);
        self.own = self.own_counts()?;
        thread::sleep(pause);
        self.seen = before.into_iter().zip(self.seen_now(slots)).map(|(before, after)| [before, after]).collect();
        Ok(())
    }

    /// Reads the interfaces' own counts again: the count at any time in between lies between the two readings.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn take_later(&mut self) -> io::Result<()> {
        self.later = self.own_counts()?;
        Ok(())
    }

    /// The interface's own count of this direction, if this name and index still belong together.
    pub fn own(&self, (name, ifindex): (&str, u32), way: Way) -> Option<Tally> {
        let own = self.own.get(name)?[way as usize];
        // The kernel can be asked only for names in UTF-8. The count of an interface with another name is not known.
        let asked = String::from_utf8(name::to_bytes(name)).ok()?;
        name_to_index(&self.socket, &asked).is_ok_and(|index| index == ifindex).then_some(own)
    }

    /// Returns both counts for the program of this slot.
    pub fn of_program(&self, slot: usize, its: (&str, u32), way: Way) -> Option<Reading> {
        let own = self.own(its, way)?;
        Some(Reading { own: [own; 2], seen: *self.seen.get(slot).filter(|_| self.live.is_some())? })
    }

    /// Both counts for a packet socket, which had seen `seen` between the two readings.
    pub fn of_socket(&self, seen: SeenPackets, its: (&str, u32), way: Way) -> Option<Reading> {
        let own = self.own(its, way)?;
        let later = self.later.get(its.0).map_or(own, |later| later[way as usize]);
        Some(Reading { own: [own, later], seen: [seen; 2] })
    }

    /// Returns the packets that weir's programs had counted in the account `others` at the last reading.
    pub const fn others(&self) -> SeenPackets {
        self.others
    }

    fn seen_now(&self, slots: usize) -> Vec<SeenPackets> {
        (0..slots).map(|slot| self.seen_of(slot)).collect()
    }

    /// Returns the packets that the program of this slot has counted until now.
    pub fn seen_of(&self, slot: usize) -> SeenPackets {
        let (all, merged) = self.live.map_or_else(Default::default, |live| live.seen_and_merged(slot));
        SeenPackets { all, merged }
    }

    fn own_counts(&self) -> io::Result<OwnCounts> {
        let mut text = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.file.read_at(&mut piece, text.len() as u64)? {
                0 => break,
                length => text.extend_from_slice(&piece[..length]),
            }
        }
        Ok(text.split(|byte| *byte == b'\n').filter_map(counts_of).collect())
    }
}

/// Parses a line of `/proc/net/dev`: the name, and the received and sent counts.
fn counts_of(line: &[u8]) -> Option<(String, [Tally; 2])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, numbers) = (line[..colon].trim_ascii_start(), std::str::from_utf8(&line[colon + 1..]).ok()?);
    let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    let &[bytes, packets, _, _, _, _, _, _, sent_bytes, sent_packets, ..] = &numbers[..] else { return None };
    Some((name::of_bytes(name), [Tally::new(packets, bytes), Tally::new(sent_packets, sent_bytes)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Devices;

    #[test]
    fn a_line_has_a_name_and_two_counts() {
        let line = "  eth0: 4711 17 0 0 0 0 0 0 815 9 0 0 0 0 0 0";
        assert_eq!(counts_of(line.as_bytes()), Some(("eth0".to_owned(), [Tally::new(17, 4711), Tally::new(9, 815)])));
        assert_eq!(
            counts_of(b"wan0.7:18446744073709551615 1 0 0 0 0 0 0 2 3 0 0 0 0 0 0").map(|(name, _)| name).as_deref(),
            Some("wan0.7")
        );
        // Names with other bytes are those of other interfaces. A wide blank is a part of a name.
        for (name, text) in [(&b"\xff"[..], "\\xff"), (b"\xfe", "\\xfe"), ("\u{3000}".as_bytes(), "\u{3000}")] {
            let line = [b"  ", name, b": 4711 17 0 0 0 0 0 0 815 9 0 0 0 0 0 0"].concat();
            assert_eq!(counts_of(&line), Some((text.to_owned(), [Tally::new(17, 4711), Tally::new(9, 815)])));
        }
        for no_line in ["Inter-|   Receive  |  Transmit", " face |bytes packets", "", "eth0: 1 2 3", "eth0: x"] {
            assert_eq!(counts_of(no_line.as_bytes()), None, "{no_line:?}");
        }
    }

    #[test]
    fn the_counts_are_those_of_netlink() {
        let mut readings = Readings::new(None).unwrap();
        for _ in 0..2 {
            readings.take(0, Duration::ZERO).unwrap();
            let loopback = Devices::open().unwrap().find("lo").unwrap().unwrap();
            let own = readings.own(("lo", loopback.ifindex), Way::Ingress).unwrap();
            assert_eq!(readings.own(("lo", 4711), Way::Ingress), None, "another interface of this name");
            assert!(own.packets <= loopback.counts.unwrap()[0].packets, "{own:?} and then {loopback:?}");
        }
    }
}
