//! Merged buffers at the tc hook, through the programs that the kernel runs: each packet has all headers. What
//! `weir_common` tests of every kind of header is held here for some.

use anyhow::{Result, ensure};
use weir::interface::Way;
use weir_common::ledger::Tally;
use weir_tests::object::{Object, PLAN};

use crate::frame::{IPV4, IPV6, ethernet, extension, ipv4, ipv6, tcp};

/// Small enough for test-run; the last packet is half full.
const PAYLOAD: usize = 2_500;
const SEGMENT: usize = 1_000;

/// Headers of a buffer, before its payload.
fn stacks() -> [(&'static str, Vec<u8>); 5] {
    const VXLAN: [u8; 16] = [0xc0, 1, 0x21, 0x18, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
    let payload = [0; PAYLOAD];
    // With the payload, so that all lengths are right; it is cut off below.
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
                ensure!(
                    seen == expected && ledger.balances(),
                    "{name}, {way:?}, {told} told: {seen:?}, not {expected:?}"
                );
            }
        }
        Ok(())
    })
}
