//! Reads files whose size is decided elsewhere: by the kernel, another process, or the user who made them. Without a
//! limit, such a file could take all memory.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    path::Path,
};

/// The most bytes of a file of the kernel. Lists of modules, sockets and types have less.
pub const KERNEL_FILE_MAX: u64 = 64 << 20;

/// The content of a file of the kernel, in `/proc` or `/sys`.
///
/// # Errors
///
/// It cannot be read, or has more than [`KERNEL_FILE_MAX`] bytes.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    // The types of the kernel have some megabytes: a buffer that grows would take twice as much.
    let bytes = file.metadata()?.len().min(KERNEL_FILE_MAX);
    into(Vec::with_capacity(bytes as usize + 1), file, KERNEL_FILE_MAX)
}

/// The text of such a file.
///
/// # Errors
///
/// As [`read`], or it is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Everything that is left to read.
///
/// # Errors
///
/// It cannot be read, or it is more than `bytes_max`.
pub fn all(reader: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    into(Vec::new(), reader, bytes_max)
}

fn into(mut bytes: Vec<u8>, reader: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    if reader.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)? as u64 > bytes_max {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_the_limit_is_not_read() {
        assert_eq!(all(&b"abc"[..], 3).unwrap(), b"abc");
        let error = all(io::repeat(0), 1_000).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::InvalidData, "it has more than 1000 bytes".to_owned())
        );
        assert!(read_to_string("/proc/self/statm").is_ok_and(|text| !text.is_empty()));
        assert!(read("/dev/zero").unwrap_err().to_string().contains("more than"));
    }
}
