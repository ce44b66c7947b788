//! gzip (RFC 1952), for reports in the spool and on the way to a collector.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

/// Compresses these parts, concatenated, into one member: some readers stop after the first.
pub(crate) fn gzip(parts: &[&[u8]]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = parts.iter().try_for_each(|part| encoder.write_all(part));
    written.and_then(|()| encoder.finish()).expect("writing into memory cannot fail")
}
