//! Reads any bytes as a capture: each read returns a packet, the end, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_datapath::capture::{BLOCK_BYTES_MAX, Capture};

fuzz_target!(|input: &[u8]| {
    let Ok(mut capture) = Capture::new(input, "fuzz") else { return };
    let mut bytes = 0;
    // Compressed bytes may unpack to many more.
    let is_packed = matches!(input, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]);
    while let Ok(Some(packet)) = capture.next_packet() {
        assert!(packet.captured.len() <= BLOCK_BYTES_MAX as usize);
        bytes += packet.captured.len();
        assert!(is_packed || bytes <= input.len(), "more was captured than is there");
    }
    assert!(is_packed || capture.bytes_read() <= input.len() as u64);
});
