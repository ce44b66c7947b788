//! Any bytes as a capture: reading it ends, in a packet, at the end, or in a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::replay::capture::{BLOCK_BYTES_MAX, Capture};

fuzz_target!(|input: &[u8]| {
    let Ok(mut capture) = Capture::new(input, "fuzz") else { return };
    let mut bytes = 0;
    while let Ok(Some(packet)) = capture.next_packet() {
        assert!(packet.captured.len() <= BLOCK_BYTES_MAX as usize);
        bytes += packet.captured.len();
        assert!(bytes <= input.len(), "more was captured than is there");
    }
    assert!(capture.bytes_read() <= input.len() as u64);
});
