//! The body of a request, and the lines in it.

use std::io::{self, BufRead, BufReader, Read};

use axum::{body::Bytes, http::HeaderMap, http::header::CONTENT_ENCODING};
use flate2::bufread::GzDecoder;

/// Maximum bytes of a body as it is sent.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Maximum bytes of an unpacked body. weir sends some 1 MiB at a time, or one report.
pub const UNPACKED_BYTES_MAX: u64 = 32 << 20;
/// Maximum number of lines in a body, including empty ones. weir sends 100 at a time.
pub const LINES_MAX: u64 = 10_000;
/// Maximum number of gzip members in a body, including empty ones: each costs some microseconds, however little it
/// unpacks to. weir sends one.
pub const MEMBERS_MAX: u64 = 10_000;
/// Memory that a zstd frame may ask for, as a power of two: 8 MiB, enough for every level up to 19.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// It is not compressed.
    None,
    /// gzip, one member or several.
    Gzip,
    /// zstd, one frame or several.
    Zstd,
}

impl Packing {
    /// The packing according to a request's headers; `None` if it is another one.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CONTENT_ENCODING).into_iter();
        let (value, further) = (values.next(), values.next());
        let Some(value) = value else { return Some(Self::None) };
        let value = value.to_str().ok().filter(|_| further.is_none())?.trim();
        let names = [("identity", Self::None), ("gzip", Self::Gzip), ("x-gzip", Self::Gzip), ("zstd", Self::Zstd)];
        names.into_iter().find(|(name, _)| value.eq_ignore_ascii_case(name)).map(|(_, packing)| packing)
    }
}

/// Why no further line can be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is too large.
    #[error("the body has more than {UNPACKED_BYTES_MAX} bytes when it is unpacked: send fewer reports at a time")]
    TooLarge,
    /// The body has too many lines.
    #[error("the body has more than {LINES_MAX} lines: send fewer reports at a time")]
    TooManyLines,
    /// The body cannot be unpacked.
    #[error("the body cannot be unpacked: {0}")]
    Damaged(io::Error),
}

/// The lines of a body.
pub struct Lines<'b> {
    unpacked: Box<dyn BufRead + 'b>,
    left: u64,
    lines_left: u64,
    line: Vec<u8>,
}

/// The members of a body that is packed by gzip, one after the other.
struct Members<'b> {
    member: GzDecoder<&'b [u8]>,
    left: u64,
}

impl Read for Members<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.member.read(buffer)?;
            let rest = *self.member.get_ref();
            if read > 0 || rest.is_empty() || buffer.is_empty() {
                return Ok(read);
            }
            self.left = self
                .left
                .checked_sub(1)
                .ok_or_else(|| io::Error::other(format!("it has more than {MEMBERS_MAX} members of gzip: send one")))?;
            self.member = GzDecoder::new(rest);
        }
    }
}

impl<'b> Lines<'b> {
    /// The lines of a body with this packing.
    pub fn new(body: &'b Bytes, packing: Packing) -> Result<Self, BodyError> {
        let unpacked: Box<dyn BufRead + 'b> = match packing {
            Packing::None => Box::new(&body[..]),
            Packing::Gzip => Box::new(BufReader::new(Members { member: GzDecoder::new(&body[..]), left: MEMBERS_MAX })),
            Packing::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(&body[..]).map_err(BodyError::Damaged)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(BodyError::Damaged)?;
                Box::new(BufReader::new(decoder))
            }
        };
        Ok(Self { unpacked, left: UNPACKED_BYTES_MAX, lines_left: LINES_MAX, line: Vec::new() })
    }

    /// The next line, without its line break; `None` at the end.
    ///
    /// # Errors
    ///
    /// The body is too large, has too many lines, or cannot be unpacked.
    pub fn next(&mut self) -> Result<Option<&[u8]>, BodyError> {
        self.line.clear();
        // Reads up to one byte more than allowed, to detect a body that is too large.
        let read = (&mut self.unpacked).take(self.left + 1).read_until(b'\n', &mut self.line);
        let read = read.map_err(BodyError::Damaged)? as u64;
        self.left = self.left.checked_sub(read).ok_or(BodyError::TooLarge)?;
        if read == 0 {
            return Ok(None);
        }
        self.lines_left = self.lines_left.checked_sub(1).ok_or(BodyError::TooManyLines)?;
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn lines(body: Vec<u8>, packing: Packing) -> Result<Vec<String>, BodyError> {
        let body = Bytes::from(body);
        let mut lines = Lines::new(&body, packing)?;
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            all.push(String::from_utf8(line.to_vec()).unwrap());
        }
        Ok(all)
    }

    #[test]
    fn lines_are_the_same_however_they_are_packed() {
        let text = b"one\r\ntwo\n\nfour";
        let bodies = [
            (text.to_vec(), Packing::None),
            (gzip(text), Packing::Gzip),
            ([gzip(b"one\r\ntw"), gzip(b"o\n\nfour")].concat(), Packing::Gzip),
            (zstd::encode_all(&text[..], 3).unwrap(), Packing::Zstd),
            (
                [zstd::encode_all(&b"one\r\ntw"[..], 3).unwrap(), zstd::encode_all(&b"o\n\nfour"[..], 19).unwrap()]
                    .concat(),
                Packing::Zstd,
            ),
        ];
        for (body, packing) in bodies {
            assert_eq!(lines(body, packing).unwrap(), ["one", "two", "", "four"], "{packing:?}");
        }
    }

    #[test]
    fn a_bomb_is_too_large() {
        let bomb = vec![b' '; UNPACKED_BYTES_MAX as usize + 1];
        let full = &bomb[1..];
        for (packing, pack) in
            [(Packing::Gzip, gzip as fn(&[u8]) -> Vec<u8>), (Packing::Zstd, |text| zstd::encode_all(text, 1).unwrap())]
        {
            assert!(matches!(lines(pack(&bomb), packing), Err(BodyError::TooLarge)), "{packing:?}");
            assert_eq!(lines(pack(full), packing).unwrap().len(), 1, "{packing:?}");
        }
    }

    /// An empty member costs work but adds no bytes, so the limit on unpacked bytes does not stop it.
    #[test]
    fn a_body_has_a_maximum_number_of_members() {
        let members = |most: u64| [gzip(b"").repeat(most as usize), gzip(b"one")].concat();
        assert_eq!(lines(members(MEMBERS_MAX), Packing::Gzip).unwrap(), ["one"]);
        let error = lines(members(MEMBERS_MAX + 1), Packing::Gzip).unwrap_err();
        assert!(matches!(error, BodyError::Damaged(_)) && error.to_string().contains("members of gzip"), "{error}");
    }

    #[test]
    fn a_body_has_a_maximum_number_of_lines() {
        let text = "{\n".repeat(LINES_MAX as usize);
        assert_eq!(lines(gzip(text.as_bytes()), Packing::Gzip).unwrap().len(), LINES_MAX as usize);
        let text = "\n".repeat(LINES_MAX as usize + 1);
        assert!(matches!(lines(gzip(text.as_bytes()), Packing::Gzip), Err(BodyError::TooManyLines)));
    }

    #[test]
    fn a_cut_or_changed_body_is_damaged() {
        for (packing, packed) in
            [(Packing::Gzip, gzip(b"one\ntwo\n")), (Packing::Zstd, zstd::encode_all(&b"one\ntwo\n"[..], 3).unwrap())]
        {
            for end in 1..packed.len() {
                assert!(
                    matches!(lines(packed[..end].to_vec(), packing), Err(BodyError::Damaged(_))),
                    "{packing:?} {end}"
                );
            }
            assert!(matches!(lines(b"one\ntwo\n".to_vec(), packing), Err(BodyError::Damaged(_))), "{packing:?}");
        }
        let mut changed = gzip(b"one\ntwo\n");
        let checksum = changed.len() - 8;
        changed[checksum] ^= 1;
        assert!(matches!(lines(changed, Packing::Gzip), Err(BodyError::Damaged(_))));
    }

    #[test]
    fn a_frame_that_asks_for_much_memory_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(b"one\n").unwrap();
        assert!(matches!(lines(encoder.finish().unwrap(), Packing::Zstd), Err(BodyError::Damaged(_))));
    }
}
