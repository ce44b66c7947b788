use super::*;
use crate::capture::PACKET_BYTES_MAX;

#[test]
fn both_byte_orders_and_every_resolution() {
    for (order, magic, ticks) in [
        (Little, MICROSECONDS, 123_456),
        (Big, MICROSECONDS, 123_456),
        (Little, NANOSECONDS, 123_456_000),
        (Big, NANOSECONDS, 123_456_000),
    ] {
        let mut file = Writer::pcap(order, magic, (2, 4), 1);
        file.record(1_700_000_000, ticks, (3, 60), b"abc").record(u32::MAX, 0, (0, 0), b"");
        let expected = [
            packet(1_700_000_000_123_456_000, Link::Ethernet, 60, b"abc"),
            packet(4_294_967_295_000_000_000, Link::Ethernet, 0, b""),
        ];
        assert_eq!(read_whole(&file.bytes), expected, "{order:?} {magic:#x}");
    }
}

#[test]
fn the_modified_record_header_is_eight_bytes_longer() {
    for order in [Little, Big] {
        let mut file = Writer::pcap(order, MODIFIED, (2, 4), 1);
        for data in [b"abc", b"def"] {
            file.words(&[5, 7, 3, 60]).words(&[2, 0x0800]).put(data);
        }
        let expected = [b"abc", b"def"].map(|data| packet(5_000_007_000, Link::Ethernet, 60, data));
        assert_eq!(read_whole(&file.bytes), expected, "{order:?}");
    }
}

#[test]
fn lengths_were_swapped_before_version_2_3() {
    for (version, lengths) in [
        ((2, 0), (60, 3)),
        ((2, 2), (60, 3)),
        ((543, 0), (60, 3)),
        ((2, 3), (60, 3)),
        ((2, 3), (3, 60)),
        ((2, 4), (3, 60)),
    ] {
        let mut file = Writer::pcap(Little, MICROSECONDS, version, 1);
        file.record(0, 0, lengths, b"abc").record(0, 0, lengths, b"def");
        let expected = [b"abc", b"def"].map(|data| packet(0, Link::Ethernet, 60, data));
        assert_eq!(read_whole(&file.bytes), expected, "{version:?} {lengths:?}");
    }
    let old = Writer::pcap(Little, MICROSECONDS, (1, 2), 1);
    assert_eq!(complaint(&old.bytes), "x: pcap version 1 is unknown: weir reads 2 and later");
}

#[test]
fn every_link_type_has_its_name() {
    for (linktype, link) in [
        (1, Link::Ethernet),
        (101, Link::RawIp),
        (12, Link::RawIp),
        (14, Link::RawIp),
        (228, Link::RawIp),
        (229, Link::RawIp),
        (0, Link::Loopback),
        (108, Link::Loopback),
        (113, Link::Sll),
        (276, Link::Sll2),
        (9, Link::Ppp),
        (50, Link::Ppp),
        (166, Link::PppWithDirection),
        (204, Link::PppWithDirection),
        (105, Link::Other),
        // An FCS of four bytes after every frame.
        (0x2400_0001, Link::Ethernet),
    ] {
        let mut file = Writer::pcap(Big, MICROSECONDS, (2, 4), linktype);
        file.record(0, 0, (1, 1), b"a");
        assert_eq!(read_whole(&file.bytes), [packet(0, link, 1, b"a")], "{linktype}");
    }
}

#[test]
fn a_record_may_exceed_the_snapshot_length_but_not_the_limit() {
    let data = vec![7; PACKET_BYTES_MAX as usize];
    let mut file = Writer::pcap(Little, MICROSECONDS, (2, 4), 1);
    file.record(0, 0, (PACKET_BYTES_MAX, u32::MAX), &data).record(0, 0, (PACKET_BYTES_MAX + 1, 60), &data);
    let (packets, end) = read(&file.bytes);
    assert_eq!(packets, [packet(0, Link::Ethernet, u32::MAX, &data)]);
    assert_eq!(
        end.unwrap_err().to_string(),
        "x: at byte 262184, after 1 packet: the record claims 262,145 captured bytes, but the limit is 262,144"
    );
}

#[test]
fn the_original_length_is_believed_even_below_the_captured_one() {
    let mut file = Writer::pcap(Little, MICROSECONDS, (2, 4), 1);
    file.record(0, 0, (3, 2), b"abc");
    assert_eq!(read_whole(&file.bytes), [packet(0, Link::Ethernet, 2, b"abc")]);
}
