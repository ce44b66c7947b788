//! The eBPF object that is embedded in this program: the one in `ebpf/object/`, compressed with gzip, or one that the
//! build has compiled from source.

use std::{fmt::Write as _, io::Read as _};

use flate2::read::GzDecoder;
use ring::digest::{SHA256, digest};
use weir_system::magic::GZIP;

static CARRIED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weir-ebpf"));

/// Returns the eBPF object, decompressed.
pub fn object() -> Vec<u8> {
    let mut object = Vec::new();
    if CARRIED.starts_with(GZIP) && GzDecoder::new(CARRIED).read_to_end(&mut object).is_ok() {
        return object;
    }
    CARRIED.to_vec()
}

/// The object's SHA-256 in hexadecimal digits. For the object in `ebpf/object/`, `weir-ebpf.o.sha256` has the same.
pub fn object_sha256() -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, &object()).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_object_is_the_kept_one_unless_the_build_compiled_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf/object");
        let kept = fs::read(folder.join("weir-ebpf.o.gz")).unwrap();
        if kept == CARRIED {
            let listed = fs::read_to_string(folder.join("weir-ebpf.o.sha256")).unwrap();
            assert_eq!(listed.split_whitespace().next(), Some(&*object_sha256()));
        } else {
            assert!(CARRIED.starts_with(b"\x7fELF"));
        }
        assert!(object().starts_with(b"\x7fELF"));
    }
}
