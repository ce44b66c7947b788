//! Recognises the format of a file by its first bytes.

/// A file that is packed by gzip (RFC 1952).
pub const GZIP: &[u8] = &[0x1f, 0x8b];
/// A frame of zstd (RFC 8878). Other files of zstd begin with a frame that is skipped: see [`is_zstd`].
pub const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A database of `SQLite`.
pub const SQLITE: &[u8] = b"SQLite format 3\0";
/// A pcap file, in the byte order of the machine that wrote it, with times in microseconds.
pub const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
/// The first word of a pcap with times in nanoseconds.
pub const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// The same of A. Kuznetzov's patched libpcap, which has longer records.
pub const PCAP_MODIFIED: u32 = 0xa1b2_cd34;
/// A pcapng file: the type of its first block, a section header.
pub const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Returns true if a file with these first bytes is packed by zstd: a frame, or a skippable one (RFC 8878, 3.1).
pub fn is_zstd(first: &[u8]) -> bool {
    first.starts_with(ZSTD) || matches!(first, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Returns true if a file with these first bytes is a capture that is not packed.
pub fn is_capture(first: &[u8]) -> bool {
    let Some(first) = first.first_chunk() else { return false };
    let pcap = [PCAP_MICROSECONDS, PCAP_NANOSECONDS, PCAP_MODIFIED];
    *first == PCAPNG || [u32::from_le_bytes(*first), u32::from_be_bytes(*first)].iter().any(|one| pcap.contains(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_told_from_reports_and_packed_files() {
        for capture in [[0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x34, 0xcd, 0xb2, 0xa1], PCAPNG] {
            assert!(is_capture(&capture) && !is_zstd(&capture), "{capture:x?}");
        }
        for other in [&b"{\"sc"[..], &[0xd4, 0xc3, 0xb2], &[], SQLITE, ZSTD] {
            assert!(!is_capture(other), "{other:x?}");
        }
        assert!(is_zstd(ZSTD) && is_zstd(&[0x5f, 0x2a, 0x4d, 0x18]) && !is_zstd(&[0x28]));
    }
}
