use super::*;
use crate::capture::{BLOCK_BYTES_MAX, DESCRIPTION_BYTES_MAX, DESCRIPTIONS_MAX, PACKET_BYTES_MAX};

const TSRESOL: u16 = 9;
const TSOFFSET: u16 = 14;

fn plain(_: &mut Writer) {}

#[test]
fn every_packet_block_in_both_byte_orders() {
    for order in [Little, Big] {
        let mut file = Writer::pcapng(order);
        file.interface(1, 0, plain).interface(101, 0, plain);
        file.enhanced(0, 1_700_000_000_123_456, 60, b"abc");
        file.simple(5, b"defgh");
        file.block(2, |block| {
            block.u16(1).u16(9).words(&[0, 1_000_000, 2, 70]).put(b"ij").pad();
        });
        let expected = [
            packet(1_700_000_000_123_456_000, Link::Ethernet, 60, b"abc"),
            packet(None, Link::Ethernet, 5, b"defgh"),
            packet(1_000_000_000, Link::RawIp, 70, b"ij"),
        ];
        assert_eq!(read_whole(&file.bytes), expected, "{order:?}");
    }
}

#[test]
fn a_section_has_its_own_byte_order_and_interfaces() {
    let mut file = Writer::pcapng(Little);
    file.interface(1, 0, plain).enhanced(0, 1, 60, b"abc");
    file.order = Big;
    file.section().interface(113, 0, plain).interface(276, 0, plain).enhanced(1, 2, 61, b"def");
    file.order = Little;
    file.section().enhanced(0, 3, 62, b"ghi");
    let (packets, end) = read(&file.bytes);
    assert_eq!(packets, [packet(1_000, Link::Ethernet, 60, b"abc"), packet(2_000, Link::Sll2, 61, b"def")]);
    assert_eq!(
        end.unwrap_err().to_string(),
        "x: at byte 216, after 2 packets: the packet is from interface 0, but the section describes 0 so far"
    );
}

#[test]
fn every_interface_has_its_own_clock() {
    const TICKS: u64 = 0x0005_4321_0765_4321;
    let (half, quarter) = (0x81, 0x82);
    for (resolution, ticks, time_ns) in [
        (None, TICKS, Some(TICKS * 1_000)),
        (Some(6), TICKS, Some(TICKS * 1_000)),
        (Some(9), TICKS, Some(TICKS)),
        (Some(3), 5, Some(5_000_000)),
        (Some(0), 5, Some(5_000_000_000)),
        (Some(0), u64::MAX, None),
        (Some(12), TICKS, Some(TICKS / 1_000)),
        (Some(19), u64::MAX, Some(1_844_674_407)),
        (Some(40), TICKS, Some(0)),
        (Some(127), TICKS, Some(0)),
        (Some(half), 3, Some(1_500_000_000)),
        (Some(quarter), 3, Some(750_000_000)),
        (Some(0x80), u64::MAX, None),
        (Some(0x80 | 20), 1 << 20, Some(1_000_000_000)),
        (Some(0x80 | 63), u64::MAX, Some(1_999_999_999)),
        (Some(0xff), u64::MAX, Some(0)),
    ] {
        for order in [Little, Big] {
            let mut file = Writer::pcapng(order);
            file.interface(1, 0, |block| {
                block.option(2, b"eth0");
                if let Some(resolution) = resolution {
                    block.option(TSRESOL, &[resolution]);
                }
                block.u32(0);
            });
            file.enhanced(0, ticks, 60, b"abc");
            assert_eq!(read_whole(&file.bytes)[0].time_ns, time_ns, "{resolution:?} {ticks} {order:?}");
        }
    }
}

#[test]
fn a_clock_may_be_offset_and_times_out_of_range_are_unknown() {
    for (seconds, ticks, time_ns) in [
        (1_700_000_000, 5, Some(1_700_000_000_000_005_000)),
        (-3, 5_000_000, Some(2_000_000_000)),
        (-3, 3_000_000, Some(0)),
        (-3, 5, None),
        (i64::MIN, u64::MAX, None),
        (i64::MAX, 5, None),
    ] {
        for order in [Little, Big] {
            let mut file = Writer::pcapng(order);
            file.interface(1, 0, |block| {
                block.u16(TSOFFSET).u16(8).u64(seconds as u64).u32(0);
            });
            file.enhanced(0, ticks, 60, b"abc");
            assert_eq!(read_whole(&file.bytes)[0].time_ns, time_ns, "{seconds} {ticks} {order:?}");
        }
    }
}

#[test]
fn unknown_blocks_and_options_are_skipped() {
    let mut file = Writer::pcapng(Little);
    // A custom block before any interface, name resolution, and statistics: their content does not matter.
    file.block(0x0bad, |block| {
        block.put([0xff; 64]);
    });
    file.interface(1, 0, |block| {
        block.option(0x8bad, b"?").u16(TSRESOL).u16(9_999);
    });
    for kind in [4, 5, 0x8000_0001, u32::MAX] {
        file.block(kind, |block| {
            block.put([0xff; 20]);
        });
    }
    file.block(6, |block| {
        block.words(&[0, 0, 1, 3, 60]).put(b"abc").pad().option(2, &[1, 0, 0, 0]).u16(1).u16(9_999);
    });
    assert_eq!(read_whole(&file.bytes), [packet(1_000, Link::Ethernet, 60, b"abc")]);
}

#[test]
fn a_simple_packet_was_cut_at_the_snapshot_length() {
    let mut file = Writer::pcapng(Little);
    file.interface(1, 5, plain).simple(1_500, b"abcde").simple(2, b"ab");
    assert_eq!(
        read_whole(&file.bytes),
        [packet(None, Link::Ethernet, 1_500, b"abcde"), packet(None, Link::Ethernet, 2, b"ab")]
    );
    let mut file = Writer::pcapng(Little);
    file.interface(1, 0, plain).simple(1_500, b"abcde");
    let complaint = complaint(&file.bytes);
    assert!(complaint.ends_with("the block claims 1,500 captured bytes, but has room for 8"), "{complaint}");
}

#[test]
fn a_packet_must_fit_its_block_and_the_limit() {
    let mut file = Writer::pcapng(Little);
    file.interface(1, 0, plain);
    for (captured, reason) in [
        (9, "the block claims 9 captured bytes, but has room for 8"),
        (PACKET_BYTES_MAX + 1, "the record claims 262,145 captured bytes, but the limit is 262,144"),
        (u32::MAX, "the record claims 4,294,967,295 captured bytes, but the limit is 262,144"),
    ] {
        let mut file = Writer { order: Little, bytes: file.bytes.clone() };
        file.block(6, |block| {
            block.words(&[0, 0, 0, captured, 60]).put(b"abcdefgh");
        });
        let complaint = complaint(&file.bytes);
        assert!(complaint.ends_with(reason), "{complaint}");
    }
}

#[test]
fn a_hostile_block_length_ends_the_file() {
    let mut file = Writer::pcapng(Little);
    file.interface(1, 0, plain).enhanced(0, 1, 60, b"abc");
    for kind in [0x0a0d_0d0a, 1, 2, 3, 6, 0x0bad] {
        for length in [0, 3, 11, BLOCK_BYTES_MAX + 1, u32::MAX] {
            let mut file = Writer { order: Little, bytes: file.bytes.clone() };
            file.words(&[kind, length, 0x1a2b_3c4d]).put([0; 64]);
            let (packets, end) = read(&file.bytes);
            let complaint = end.unwrap_err().to_string();
            assert_eq!(packets.len(), 1);
            assert!(complaint.contains(" are possible"), "{kind:#x} {length} {complaint}");
        }
        let mut file = Writer { order: Little, bytes: file.bytes.clone() };
        file.words(&[kind, 32, 0x1a2b_3c4d]).put([0; 16]).u32(36);
        assert!(complaint(&file.bytes).ends_with("the block's length is 32 at its start, but 36 at its end"));
    }
}

#[test]
fn a_section_must_be_readable() {
    let mut file = Writer::pcapng(Big);
    file.bytes[8] = 0x1b;
    assert_eq!(
        complaint(&file.bytes),
        "x: the section's byte-order magic is 1b 2b 3c 4d, expected 1a 2b 3c 4d or its reverse"
    );
    let mut file = Writer::pcapng(Big);
    file.bytes[13] = 2;
    assert_eq!(complaint(&file.bytes), "x: pcapng version 2 is unknown: weir reads 1");
}

#[test]
fn interfaces_are_bounded() {
    let mut file = Writer::pcapng(Little);
    file.interface(1, 0, |block| block.bytes.resize(DESCRIPTION_BYTES_MAX as usize, 0));
    assert_eq!(
        complaint(&file.bytes),
        "x: at byte 28, after 0 packets: the block of type 0x00000001 claims 1,048,588 bytes, but 20 to 1,048,576 are possible"
    );
    let mut file = Writer::pcapng(Little);
    for _ in 0..DESCRIPTIONS_MAX {
        file.interface(1, 0, plain);
    }
    file.enhanced(DESCRIPTIONS_MAX as u32 - 1, 1, 60, b"abc").interface(1, 0, plain);
    let (packets, end) = read(&file.bytes);
    assert_eq!(packets.len(), 1);
    assert!(end.unwrap_err().to_string().ends_with("the section describes more than 65,536 interfaces"));
}
