use std::io::{Cursor, Write};

use flate2::{Compression, GzBuilder, write::GzEncoder};

use super::*;

/// Packets that compress badly, so that the damage comes after most of them.
const PACKETS: u64 = 4_000;

fn plain() -> Vec<u8> {
    let mut file = Writer::pcap(Little, MICROSECONDS, (2, 4), 1);
    let mut random = 7_u64;
    for nth in 0..PACKETS as u32 {
        let mut data = [0; 64];
        for byte in &mut data {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (random >> 60) as u8;
        }
        file.record(1_000, nth, (64, 64), &data);
    }
    file.bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[test]
fn a_compressed_capture_equals_its_content() {
    let plain = plain();
    let whole = read_whole(&plain);
    assert_eq!(whole.len() as u64, PACKETS);
    let (first, second) = plain.split_at(plain.len() / 3);
    let everything = GzBuilder::new().filename("x.pcap").comment("made here").extra(vec![7; 300]);
    let mut encoder = everything.write(Vec::new(), Compression::fast());
    encoder.write_all(&plain).unwrap();
    for (name, packed) in [
        ("gzip", gzip(&plain)),
        ("gzip in two members", [gzip(first), gzip(second)].concat()),
        ("gzip with a header", encoder.finish().unwrap()),
        ("zstd", zstd(&plain)),
        ("zstd in two frames", [zstd(first), zstd(second)].concat()),
        // A skippable frame: RFC 8878, 3.1.2.
        (
            "zstd after a frame to be skipped",
            [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&plain)].concat(),
        ),
    ] {
        assert!(read_whole(&packed) == whole, "{name}");
        // Read byte by byte, as from a pipe.
        assert!(read_from(OneByOne(&packed)).0 == whole, "{name}");
    }
}

struct OneByOne<'a>(&'a [u8]);

impl Read for OneByOne<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let one = into.len().min(1);
        self.0.read(&mut into[..one])
    }
}

#[test]
fn truncated_compressed_data_is_read_up_to_its_end() {
    let plain = plain();
    let whole = read_whole(&plain);
    for (packing, packed) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
        for part in [3, 10, 50, 90, 99] {
            let (packets, end) = read(&packed[..packed.len() * part / 100]);
            let said = end.unwrap_err().to_string();
            assert!(said.contains(&format!("the {packing} data ends too early")), "{part} %: {said}");
            assert!(packets[..] == whole[..packets.len()] && packets.len() < whole.len());
            // zstd has blocks of 128 KiB.
            let least = (whole.len() * part / 100).saturating_sub(if packing == "gzip" { 500 } else { 2_000 });
            assert!(packets.len() >= least, "{packing}, {part} %: {} packets", packets.len());
        }
    }
}

#[test]
fn damaged_compressed_data_is_read_up_to_the_damage() {
    let plain = plain();
    let whole = read_whole(&plain);
    // A block of an invalid type follows the data (RFC 1951, 3.2.3).
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&plain).unwrap();
    encoder.flush().unwrap();
    let (packets, end) = read(&[encoder.get_ref(), &[0xff; 20][..]].concat());
    assert!(packets == whole, "{} packets", packets.len());
    let said = end.unwrap_err().to_string();
    assert!(said.contains("after 4000 packets: the gzip data cannot be unpacked: "), "{said}");
    // zstd withholds a block of 128 KiB.
    let mut packed = zstd(&plain);
    let at = packed.len() * 3 / 4;
    packed[at..at + 2_000].fill(0xff);
    let (packets, end) = read(&packed);
    let said = end.unwrap_err().to_string();
    assert!(said.contains("the zstd data cannot be unpacked: "), "{said}");
    assert!(packets.len() >= whole.len() * 3 / 4 - (128 << 10) / 80, "{} packets", packets.len());
    assert!(packets[..] == whole[..packets.len()]);
    let mut packed = gzip(&plain);
    let check = packed.len() - 8;
    packed[check] ^= 1;
    let (packets, end) = read(&packed);
    assert_eq!(packets.len(), whole.len(), "everything was read");
    assert!(end.unwrap_err().to_string().ends_with("the gzip data cannot be unpacked: the checksum is wrong"));
    let (packets, end) = read(&[gzip(&plain), b"what is this?".to_vec()].concat());
    assert_eq!(packets.len(), whole.len());
    assert!(end.unwrap_err().to_string().ends_with("the data that follows is not gzip"));
}

#[test]
fn every_prefix_and_every_flipped_bit_of_compressed_data_is_survived() {
    let mut file = Writer::pcap(Big, MODIFIED, (2, 4), 1);
    for data in [b"abc", b"abd"] {
        file.words(&[5, 7, 3, 60]).words(&[2, 0x0800]).put(data);
    }
    for packed in [gzip(&file.bytes), zstd(&file.bytes)] {
        assert_eq!(read_whole(&packed).len(), 2);
        for cut in 0..packed.len() {
            assert!(read(&packed[..cut]).1.is_err(), "{cut}");
        }
        for bit in 0..packed.len() * 8 {
            let mut flipped = packed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).0.len() <= 2, "{bit}");
        }
    }
}

#[test]
fn highly_compressed_data_takes_no_extra_memory() {
    const BYTES: usize = 16 << 20;
    let mut bytes = Writer::pcap(Little, MICROSECONDS, (2, 4), 1).bytes;
    // Records without bytes, with a time in 1970.
    bytes.resize(BYTES / 16 * 16 + 24, 0);
    for packed in [gzip(&bytes), zstd(&bytes)] {
        assert!(packed.len() < BYTES / 500, "{} bytes", packed.len());
        let mut capture = Capture::new(Cursor::new(packed), "x").unwrap();
        let mut packets = 0;
        while capture.next_packet().unwrap().is_some() {
            packets += 1;
        }
        assert_eq!((packets, capture.buffer.bytes()), (BYTES / 16, 256 << 10));
    }
}
