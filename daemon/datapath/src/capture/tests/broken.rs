use std::io::{self, Cursor, ErrorKind};

use super::*;
use crate::capture::{BLOCK_BYTES_MAX, CapturePart, Reason};

/// Four packets, and where each record ends.
fn small_pcap() -> (Vec<u8>, Vec<usize>) {
    let mut file = Writer::pcap(Little, MICROSECONDS, (2, 4), 1);
    let mut ends = vec![file.bytes.len()];
    for data in [&b"abc"[..], b"", b"defgh", b"i"] {
        file.record(1, 2, (data.len() as u32, 60), data);
        ends.push(file.bytes.len());
    }
    (file.bytes, ends)
}

/// Four packets among blocks of every type; where each block ends, and whether it is a packet's block.
fn small_pcapng() -> (Vec<u8>, Vec<(usize, bool)>) {
    let mut file = Writer::new(Big);
    let mut ends = Vec::new();
    for (packet, write) in [
        (false, (|file| file.section()) as fn(&mut Writer) -> &mut Writer),
        (false, |file| {
            file.interface(1, 96, |block| {
                block.option(9, &[9]).u16(14).u16(8).u64(3).u32(0);
            })
        }),
        (true, |file| file.enhanced(0, 1, 60, b"abc")),
        (false, |file| {
            file.block(5, |block| {
                block.words(&[0; 3]);
            })
        }),
        (true, |file| file.simple(2, b"de")),
        (true, |file| {
            file.block(2, |block| {
                block.words(&[0, 0, 7, 0, 60]);
            })
        }),
        (false, |file| {
            file.order = Little;
            file.section().interface(101, 0, |_| {})
        }),
        (true, |file| file.enhanced(0, 1, 60, b"fghi")),
    ] {
        write(&mut file);
        ends.push((file.bytes.len(), packet));
    }
    (file.bytes, ends)
}

fn is_cut(end: &Result<(), Broken>) -> bool {
    matches!(end, Err(Broken { reason: Reason::CutShort { .. }, .. }))
}

#[test]
fn every_prefix_of_a_pcap_returns_its_whole_packets_and_an_error() {
    let (bytes, ends) = small_pcap();
    let whole = read_whole(&bytes);
    assert_eq!(whole.len(), 4);
    for cut in 4..=bytes.len() {
        let (packets, end) = read(&bytes[..cut]);
        assert_eq!(packets, whole[..ends.iter().filter(|end| **end <= cut).count().saturating_sub(1)]);
        assert_eq!(end.is_ok(), ends.contains(&cut), "{cut}");
        assert_eq!(is_cut(&end), !ends.contains(&cut), "{cut}");
    }
}

#[test]
fn every_prefix_of_a_pcapng_returns_its_whole_packets_and_an_error() {
    let (bytes, ends) = small_pcapng();
    let whole = read_whole(&bytes);
    assert_eq!(whole.len(), 4);
    for cut in 4..=bytes.len() {
        let (packets, end) = read(&bytes[..cut]);
        assert_eq!(packets, whole[..ends.iter().filter(|(end, packet)| *packet && *end <= cut).count()]);
        // The second section's header and its interface are written in one step.
        let between = ends.iter().any(|(end, _)| *end == cut) || cut == ends[5].0 + 28;
        assert_eq!(end.is_ok(), between, "{cut}");
        assert_eq!(is_cut(&end), !between, "{cut}");
    }
}

#[test]
fn the_error_names_where_a_file_is_cut() {
    let (bytes, _) = small_pcap();
    let broken = read(&bytes[..bytes.len() - 18]).1.unwrap_err();
    assert_eq!((broken.packets, broken.offset), (2, 59));
    assert!(matches!(broken.reason, Reason::CutShort { inside: CapturePart::Packet, there: 20, bytes: 21 }));
    assert_eq!(
        broken.to_string(),
        "x: at byte 59, after 2 packets: the file ends inside a packet: 20 of its 21 bytes are there"
    );
    assert_eq!(complaint(&bytes[..20]), "x: the file ends inside its header: 20 of its 24 bytes are there");
    let (bytes, _) = small_pcapng();
    assert_eq!(complaint(&bytes[..20]), "x: the file ends inside a block: 20 of its 28 bytes are there");
}

/// No damage causes a panic or an endless loop, and no byte is returned twice.
#[test]
fn every_flipped_bit_is_survived() {
    for bytes in [small_pcap().0, small_pcapng().0] {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (packets, _) = read(&flipped);
            let captured = packets.iter().map(|packet| packet.captured.len()).sum::<usize>();
            assert!(captured < flipped.len() && packets.len() < flipped.len() / 16, "bit {bit}");
        }
    }
}

#[test]
fn errors_name_the_kind_of_other_files() {
    for (bytes, expected) in [
        (&b""[..], "x: the file is empty"),
        (b"\x1f\x8b\x08\0", "x: the gzip data ends too early"),
        (b"\x28\xb5\x2f\xfd", "x: the zstd data ends too early"),
        (b"\xfd7zXZ\0", "x: the file is xz-compressed: decompress it first (weir reads gzip and zstd)"),
        (b"BZh9", "x: the file is bzip2-compressed: decompress it first (weir reads gzip and zstd)"),
        (b"GET / HTTP/1.1", "x: not a capture: expected pcap or pcapng, but it begins with 47 45 54 20 2f 20 48 54"),
        (b"\xd4", "x: not a capture: expected pcap or pcapng, but it begins with d4"),
    ] {
        assert_eq!(complaint(bytes), expected);
    }
    let broken = Capture::open("/nonexistent/x.pcap").err().unwrap();
    assert!(broken.to_string().starts_with("/nonexistent/x.pcap: cannot open it: "), "{broken}");
    assert!(matches!(broken.reason, Reason::Open(error) if error.kind() == ErrorKind::NotFound));
    let broken = Capture::open("/").err().unwrap();
    assert!(matches!(broken.reason, Reason::Read(_)), "{broken}");
}

/// Returns one byte at a time, with interruptions, and fails at the end.
struct OneByteReader<'a> {
    bytes: Cursor<&'a [u8]>,
    interrupted: bool,
}

impl Read for OneByteReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(ErrorKind::Interrupted.into());
        }
        match self.bytes.read(&mut into[..1])? {
            0 => Err(ErrorKind::ConnectionReset.into()),
            read => Ok(read),
        }
    }
}

#[test]
fn how_the_input_arrives_does_not_matter() {
    for bytes in [small_pcap().0, small_pcapng().0] {
        let (packets, end) = read_from(OneByteReader { bytes: Cursor::new(&bytes), interrupted: false });
        assert_eq!(packets, read_whole(&bytes));
        let broken = end.unwrap_err();
        assert_eq!(broken.offset, bytes.len() as u64);
        assert!(matches!(broken.reason, Reason::Read(error) if error.kind() == ErrorKind::ConnectionReset));
    }
}

#[test]
fn packets_are_whole_wherever_the_buffer_ends() {
    let mut file = Writer::pcap(Little, MICROSECONDS, (2, 4), 1);
    let data = |i: u32| vec![i as u8; (i * 7 % 1_600) as usize];
    for i in 0..2_000 {
        file.record(i, 0, (data(i).len() as u32, 1_600), &data(i));
    }
    let mut capture = Capture::new(&file.bytes[..], "x").unwrap();
    for i in 0..2_000 {
        let packet = capture.next_packet().unwrap().unwrap();
        assert_eq!((packet.time_ns, packet.captured), (Some(u64::from(i) * 1_000_000_000), &data(i)[..]));
    }
    assert!(capture.next_packet().unwrap().is_none());
    assert_eq!(capture.bytes_read(), file.bytes.len() as u64);
}

#[test]
fn empty_packets_and_tiny_blocks_are_packets_and_blocks() {
    let mut file = Writer::pcap(Little, MICROSECONDS, (2, 4), 1);
    file.put(vec![0; 16 * 100_000]);
    assert_eq!(read_whole(&file.bytes).len(), 100_000);
    let mut file = Writer::pcapng(Little);
    file.interface(1, 0, |_| {});
    for _ in 0..100_000 {
        file.block(0x0bad, |_| {});
    }
    file.simple(0, b"");
    assert_eq!(read_whole(&file.bytes), [packet(None, Link::Ethernet, 0, b"")]);
}

#[test]
fn the_buffer_grows_with_the_input_and_not_with_a_claim() {
    let mut file = Writer::pcapng(Little);
    let small = Capture::new(&file.bytes[..], "x").unwrap().buffer.bytes();
    file.interface(1, 0, |_| {}).words(&[0x0bad, BLOCK_BYTES_MAX]).put([0; 1_000]);
    let mut capture = Capture::new(&file.bytes[..], "x").unwrap();
    let broken = capture.next_packet().err().unwrap();
    assert!(matches!(broken.reason, Reason::CutShort { inside: CapturePart::Block, there: 1_008, bytes: 16_777_216 }));
    assert_eq!(capture.buffer.bytes(), small);

    let mut file = Writer::pcapng(Little);
    file.interface(1, 0, |_| {});
    for _ in 0..2 {
        file.block(0x0bad, |block| {
            block.bytes.resize(BLOCK_BYTES_MAX as usize - 12, 0);
        });
    }
    file.enhanced(0, 1, 60, b"abc");
    let mut capture = Capture::new(&file.bytes[..], "x").unwrap();
    assert_eq!(capture.next_packet().unwrap().unwrap().captured, b"abc");
    assert_eq!(capture.buffer.bytes(), BLOCK_BYTES_MAX as usize);
}
