//! Merged buffers at the tc hook, through the programs that the kernel runs: each packet counts with all its headers.
//! `weir_common` tests every kind of header; this tests some of them in the kernel.

use anyhow::{Result, ensure};
use weir_common::ledger::{Tally, Uncertain};
use weir_config::interface::Way;
use weir_tests::object::{Object, PLAN};

use crate::frame::{IPV4, IPV6, ethernet, extension, ipv4, ipv6, ports, tcp};

/// Small enough for test-run; the last packet is half full.
const PAYLOAD: usize = 2_500;
const SEGMENT: usize = 1_000;

/// Headers of a buffer, before its payload.
fn stacks() -> [(&'static str, Vec<u8>); 5] {
    const VXLAN: [u8; 16] = [0xc0, 1, 0x21, 0x18, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
    let payload = [0; PAYLOAD];
    // The payload is included so that all lengths are right; it is cut off below.
    let transport = [&tcp(0x10)[..], &payload].concat();
    let plain = ipv4(6, 0, 0, &transport);
    let vxlan = [&VXLAN[..], &ethernet(&[], IPV4, &plain)].concat();
    let whole = [
        ("TCP over IPv4", ethernet(&[], IPV4, &plain)),
        ("two tags in the frame", ethernet(&[0x88a8, 0x8100], IPV4, &plain)),
        ("an extension header", ethernet(&[], IPV6, &ipv6(60, &extension(6, 2, &transport)))),
        ("IPv4 in IPv6", ethernet(&[], IPV6, &ipv6(4, &plain))),
        ("VXLAN on Linux's port", ethernet(&[], IPV4, &ipv4(17, 0, 0, &vxlan))),
    ];
    whole.map(|(name, mut buffer)| {
        buffer.truncate(buffer.len() - PAYLOAD);
        (name, buffer)
    })
}

pub fn each_packet_has_all_headers() -> Result<()> {
    Object::load(PLAN, |object| {
        for (name, stack) in stacks() {
            let buffer = [&stack[..], &[0; PAYLOAD]].concat();
            let packets = PAYLOAD.div_ceil(SEGMENT);
            let expected = Tally::new(packets as u64, (PAYLOAD + packets * stack.len()) as u64);
            for (way, told) in [(Way::Ingress, packets), (Way::Ingress, 0), (Way::Egress, packets), (Way::Egress, 0)] {
                object.pass_merged(way, &buffer, [SEGMENT as u32, told as u32])?;
                let ledger = object.close()?.0.ledger();
                let seen = ledger.counters.seen;
                ensure!(ledger.counters.uncertain == Uncertain::default(), "{name}, {way:?}: {ledger:?}");
                ensure!(
                    seen == expected && ledger.balances(),
                    "{name}, {way:?}, {told} told: {seen:?}, not {expected:?}"
                );
            }
        }
        Ok(())
    })
}

/// The size of the headers may be uncertain. Then the smallest is counted, and the ledger has bounds.
pub fn uncertain_sizes_have_bounds() -> Result<()> {
    const PACKETS: u64 = PAYLOAD.div_ceil(SEGMENT) as u64;
    let of = |headers: usize, more: usize| PAYLOAD as u64 + PACKETS * (headers + more) as u64;
    let encrypted = ethernet(&[], IPV4, &ipv4(50, 0, 0, &[0x5a; 16]));
    let udp = ethernet(&[], IPV4, &ipv4(17, 0, 0, &ports(8)));
    let udp_v6 = ethernet(&[], IPV6, &ipv6(17, &ports(8)));
    let (esp, one, other) = (of(encrypted.len(), 0), of(udp.len(), 0), of(udp_v6.len(), 0));
    Object::load(PLAN, |object| {
        for (name, stack, told, truths) in [
            ("ESP, without and with what follows the payload", &encrypted, PACKETS, vec![esp, esp + PACKETS * 40]),
            // Only the first fragment has a UDP header; IPv6 fragments have a fragment header instead.
            ("UDP datagrams or fragments", &udp, 0, vec![one, one - 8 * (PACKETS - 1)]),
            ("the same over IPv6", &udp_v6, 0, vec![other, other + 8]),
        ] {
            let buffer = [&stack[..], &[0; PAYLOAD]].concat();
            for way in Way::ALL {
                object.pass_merged(way, &buffer, [SEGMENT as u32, told as u32])?;
                let counters = object.close()?.0.ledger().counters;
                let Uncertain { least, most } = counters.uncertain;
                let are_within = truths.iter().all(|truth| (least.bytes..=most.bytes).contains(truth));
                ensure!(are_within && least.bytes < most.bytes, "{name}: {least:?} to {most:?}, not {truths:?}");
                ensure!([least.packets, most.packets] == [PACKETS; 2], "{name}: {least:?} to {most:?}");
                ensure!(counters.seen == least, "{name}: {:?}, not {least:?}", counters.seen);
            }
        }
        Ok(())
    })
}
