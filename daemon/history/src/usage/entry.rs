//! What the files of the usage are made of: entries, each with a checksum, so that a torn or damaged one does not hide
//! those after it.

/// The longest text on disk, in bytes. Names of interfaces are shorter.
const TEXT_MAX: usize = 255;
/// The magic, the observer, the length of the content, and its checksum.
const HEAD: usize = 24;

/// An entry of a file: an hour of all interfaces, or a day of all hosts.
pub trait Entry: Sized {
    /// The first bytes of each entry.
    const MAGIC: [u8; 8];
    /// How the names of its files begin.
    const PREFIX: &'static str;

    /// Distinguishes it from all others.
    fn id(&self) -> (i64, i64);

    /// The calendar month that it is in, such as `2026-11`.
    fn month(&self) -> String;

    /// Appends its content.
    fn put(&self, body: &mut Vec<u8>);

    /// Reads its content.
    fn take(body: &mut &[u8]) -> Option<Self>;
}

/// An entry in its format on disk.
pub fn to_bytes<E: Entry>(entry: &E, observer: &str) -> Vec<u8> {
    let mut body = Vec::new();
    entry.put(&mut body);
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend(E::MAGIC);
    bytes.extend(crate::block::name(observer));
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Calls `each` with every valid entry of this observer among these bytes. Returns how many bytes are in none.
pub fn visit<E: Entry>(mut bytes: &[u8], observer: &str, mut each: impl FnMut(E)) -> usize {
    let mut damaged = 0;
    while !bytes.is_empty() {
        match read(bytes, observer) {
            Some((entry, rest)) => {
                each(entry);
                bytes = rest;
            }
            None => {
                let next = bytes[1..].windows(E::MAGIC.len()).position(|some| some == E::MAGIC);
                let skipped = next.map_or(bytes.len(), |at| at + 1);
                damaged += skipped;
                bytes = &bytes[skipped..];
            }
        }
    }
    damaged
}

fn read<'b, E: Entry>(bytes: &'b [u8], observer: &str) -> Option<(E, &'b [u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let word = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    if head[..8] != E::MAGIC || head[8..16] != crate::block::name(observer) {
        return None;
    }
    let (mut body, rest) = rest.split_at_checked(word(16)? as usize)?;
    if crc32fast::hash(body) != word(20)? {
        return None;
    }
    let entry = E::take(&mut body)?;
    body.is_empty().then_some((entry, rest))
}

/// Appends a text, as much of it as there is room for.
pub fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(TEXT_MAX);
    bytes.push(end as u8);
    bytes.extend(&text.as_bytes()[..end]);
}

/// Reads a text.
pub fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let (&length, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(length.into())?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// A number that may be negative, so that small ones stay small.
pub const fn signed(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// The number that [`signed`] made this one of.
pub const fn unsigned(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// Seven bits in a byte, the lowest first.
pub fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
