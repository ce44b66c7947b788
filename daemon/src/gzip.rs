//! gzip (RFC 1952), as reports are packed in the spool and on their way to a collector.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

/// These parts one after the other as one member: there are readers that stop after the first.
pub(crate) fn gzip(parts: &[&[u8]]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = parts.iter().try_for_each(|part| encoder.write_all(part));
    written.and_then(|()| encoder.finish()).expect("writing into memory cannot fail")
}
