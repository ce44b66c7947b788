//! Reads captures compressed with gzip (RFC 1952) or zstd (RFC 8878), which it recognises by their first bytes. They
//! are decompressed while they are read, so a small file with large content takes no more memory than any other file.
//!
//! If the data is damaged, everything before the damage is still returned, as far as the format allows: up to the
//! damaged byte for gzip, up to the damaged block for zstd.

use std::io::{BufRead, BufReader, Chain, Cursor, Error, ErrorKind, Read, Result};

use flate2::{Crc, bufread::DeflateDecoder};
use weir_system::magic::{GZIP, is_zstd};

/// The input again from its start, after [`Unpacked`] has inspected the first bytes.
type Looked<R> = Chain<Cursor<Vec<u8>>, R>;

/// How many bytes identify the compression.
const MAGIC_BYTES: usize = 4;
/// zstd refuses a larger window by default (`zstd --long`): 128 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Input bytes per zstd call. If the data is damaged, zstd withholds everything that it decompressed in the same call.
const SIP_BYTES: usize = 128;

/// The decompressed content of a file, which may be uncompressed.
pub(super) enum Unpacked<R> {
    Plain(Looked<R>),
    Gzip(Box<Gunzip<BufReader<Looked<R>>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, SmallReads<BufReader<Looked<R>>>>>),
}

impl<R: Read> Unpacked<R> {
    /// Inspects the first bytes of `reader`.
    ///
    /// # Errors
    ///
    /// The first bytes cannot be read.
    pub(super) fn new(mut reader: R) -> Result<Self> {
        let mut first = Vec::with_capacity(MAGIC_BYTES);
        reader.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut first)?;
        let (is_gzip, is_zstd) = (first.starts_with(GZIP), is_zstd(&first));
        let whole = Cursor::new(first).chain(reader);
        if is_gzip {
            return Ok(Self::Gzip(Box::new(Gunzip::new(BufReader::new(whole)))));
        }
        if is_zstd {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(SmallReads(BufReader::new(whole)))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            return Ok(Self::Zstd(Box::new(decoder)));
        }
        Ok(Self::Plain(whole))
    }

    /// The compression, if any.
    pub(super) const fn packing(&self) -> Option<&'static str> {
        match self {
            Self::Plain(_) => None,
            Self::Gzip(_) => Some("gzip"),
            Self::Zstd(_) => Some("zstd"),
        }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(into),
            Self::Gzip(reader) => reader.read(into),
            Self::Zstd(reader) => reader.read(into),
        }
    }
}

/// Limits the number of bytes per read.
pub(super) struct SmallReads<R>(R);

impl<R: BufRead> Read for SmallReads<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.0.read(into)
    }
}

impl<R: BufRead> BufRead for SmallReads<R> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        let there = self.0.fill_buf()?;
        Ok(&there[..there.len().min(SIP_BYTES)])
    }

    fn consume(&mut self, bytes: usize) {
        self.0.consume(bytes);
    }
}

/// Decompresses gzip, member by member. `flate2` has a reader for that, too, but on damaged data it withholds
/// everything that it decompressed in the same call.
pub(super) struct Gunzip<R> {
    /// The current member; `None` between two members.
    member: Option<DeflateDecoder<R>>,
    /// The input, between two members.
    between: Option<R>,
    /// The checksum of the data that the member has decompressed so far.
    check: Crc,
    /// The error to return next.
    damage: Option<Error>,
}

impl<R: BufRead> Gunzip<R> {
    fn new(reader: R) -> Self {
        Self { member: None, between: Some(reader), check: Crc::new(), damage: None }
    }

    /// Starts the next member, if there is one.
    fn begin(&mut self) -> Result<bool> {
        if self.between.as_mut().is_none_or(|reader| reader.fill_buf().is_ok_and(<[u8]>::is_empty)) {
            return Ok(false);
        }
        let Some(mut reader) = self.between.take() else { return Ok(false) };
        skip_header(&mut reader)?;
        self.check.reset();
        self.member = Some(DeflateDecoder::new(reader));
        Ok(true)
    }

    /// Ends the member: its checksum and length must match what was decompressed.
    fn end(&mut self) -> Result<()> {
        let Some(member) = self.member.take() else { return Ok(()) };
        let mut reader = member.into_inner();
        let [check, length] = [bytes(&mut reader)?, bytes(&mut reader)?].map(u32::from_le_bytes);
        if (check, length) != (self.check.sum(), self.check.amount()) {
            return Err(Error::new(ErrorKind::InvalidData, "the checksum is wrong"));
        }
        self.between = Some(reader);
        Ok(())
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let Some(member) = &mut self.member else {
                if self.begin()? {
                    continue;
                }
                return Ok(0);
            };
            let before = member.total_out();
            let read = member.read(into);
            // This includes data that was decompressed before an error.
            let unpacked = (member.total_out() - before) as usize;
            self.check.update(&into[..unpacked]);
            match read {
                Ok(0) => self.end()?,
                Ok(unpacked) => return Ok(unpacked),
                Err(error) if unpacked == 0 => return Err(error),
                Err(error) => {
                    self.damage = Some(error);
                    return Ok(unpacked);
                }
            }
        }
    }
}

/// Skips the header of a gzip member (RFC 1952, 2.3).
fn skip_header(reader: &mut impl BufRead) -> Result<()> {
    const DEFLATE: u8 = 8;
    const HEADER_CHECK: u8 = 1 << 1;
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;
    let [first, second, method, flags, ..] = bytes::<10>(reader)?;
    if [first, second] != GZIP || method != DEFLATE {
        return Err(Error::new(ErrorKind::InvalidData, "the data that follows is not gzip"));
    }
    if flags & EXTRA != 0 {
        let length = u16::from_le_bytes(bytes(reader)?);
        skip(reader, u64::from(length))?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            reader.skip_until(0)?;
        }
    }
    if flags & HEADER_CHECK != 0 {
        skip(reader, 2)?;
    }
    Ok(())
}

fn bytes<const N: usize>(reader: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn skip(reader: &mut impl Read, bytes: u64) -> Result<()> {
    std::io::copy(&mut reader.take(bytes), &mut std::io::sink()).map(drop)
}
