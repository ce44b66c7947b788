//! A block: some consecutive windows, packed. It is the same in memory and on disk.
//!
//! ```text
//! magic (8) | observer (8) | first number (8) | level (1) | index bytes (4) | body bytes (4) | CRC-32 (4) | index | body
//! ```
//!
//! Numbers are little-endian. The CRC-32 covers all other bytes. The index has the totals of each window
//! ([`PastWindow`]), and the body its union, which the sketches of its distinct counts may follow: both are
//! [packed](crate::packed). Blocks of [samples](crate::samples) have a sample in place of a union.

use jiff::Timestamp;
use serde_json::value::RawValue;
use thiserror::Error;
use weir_config::Addresses;
use weir_schema::{FromJson, PastWindow, Union};

use crate::{distinct::Distincts, packed::Packer};

pub const MAGIC: [u8; 8] = *b"weirhst1";
const HEAD: usize = 37;
/// Why a window can be written as JSON.
const WRITTEN: &str = "it has text keys and is written into memory";
/// Bytes of an observer's identity.
const OBSERVER: usize = 8;

/// A window of the history, or several together.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The totals of the window.
    pub past: PastWindow,
    /// The lists and ledgers of the window.
    pub union: Union,
    /// The sketches of its distinct counts. Windows in blocks of single windows have none.
    pub distinct: Option<Distincts>,
}

/// A block that is still being filled.
#[derive(Clone, Debug, Default)]
pub struct Open {
    first: u64,
    addresses: Addresses,
    index: Packer,
    body: Packer,
    /// How many original windows it has.
    windows: u64,
    times: Option<(Timestamp, Timestamp)>,
}

impl Open {
    /// An empty block, whose first window will have this number.
    pub fn new(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    /// Adds a window.
    pub fn push(&mut self, kept: &Kept, addresses: Addresses) {
        let Kept { past, union, distinct } = kept;
        let mut body = serde_json::to_vec(union).expect(WRITTEN);
        body.extend(distinct.iter().flat_map(|distinct| distinct.to_json().into_bytes()));
        self.push_body(past, &body, addresses);
    }

    /// Adds the totals of a window, and what else is kept of it: a JSON text of one line.
    pub fn push_body(&mut self, past: &PastWindow, body: &[u8], addresses: Addresses) {
        self.addresses = if self.is_empty() { addresses } else { self.addresses.min(addresses) };
        self.index.push(&serde_json::to_vec(past).expect(WRITTEN));
        self.body.push(body);
        self.windows += past.windows;
        let (start, end) = self.times.unwrap_or((past.start, past.end));
        self.times = Some((start.min(past.start), end.max(past.end)));
    }

    /// The number of its first window.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next window.
    pub const fn next(&self) -> u64 {
        self.first + self.windows
    }

    /// Returns true if it has no windows.
    pub const fn is_empty(&self) -> bool {
        self.body.count() == 0
    }

    /// The number of entries.
    pub const fn count(&self) -> usize {
        self.body.count()
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.body.bytes()
    }

    /// The earliest start and the latest end of its windows.
    pub const fn times(&self) -> Option<(Timestamp, Timestamp)> {
        self.times
    }

    /// The packed block, or `None` if it has no windows.
    pub fn pack(&self) -> Option<Block> {
        let (start, end) = self.times?;
        let Self { first, addresses, windows, .. } = *self;
        let entries = self.count();
        let (index, body) = (self.index.pack(), self.body.pack());
        Some(Block { first, windows, entries, addresses, start, end, index, body })
    }
}

/// Windows that follow each other, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of the first window.
    pub first: u64,
    /// How many original windows it has.
    pub windows: u64,
    /// How many windows and unions it has.
    pub entries: usize,
    /// The most that any of its windows shows of addresses.
    pub addresses: Addresses,
    /// The earliest start of its windows. If the clock was set back, that is not the first one.
    pub start: Timestamp,
    /// The latest end of its windows.
    pub end: Timestamp,
    index: Box<[u8]>,
    body: Box<[u8]>,
}

/// Why bytes are not a valid block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoBlock {
    /// It ends too early, or its checksum is wrong.
    #[error("it is torn or damaged")]
    Torn,
    /// It has another format.
    #[error("another version of weir wrote it")]
    Foreign,
    /// Another machine wrote it.
    #[error("another machine wrote it")]
    OfAnother,
}

impl Block {
    /// What this number says of addresses. If it is unknown, the block is used only if whole addresses may be shown.
    pub fn level(number: u8) -> Addresses {
        Addresses::ALL.into_iter().find(|addresses| *addresses as u8 == number).unwrap_or_default()
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.index.len() + self.body.len()
    }

    /// The number of the window after its last one.
    pub const fn next(&self) -> u64 {
        self.first + self.windows
    }

    /// The totals of its windows.
    pub fn index(&self) -> Vec<PastWindow> {
        let index = Packer::unpack(&self.index);
        let texts = index.iter().flat_map(Packer::texts);
        texts.map_while(|text| PastWindow::from_json(&text).ok()).collect()
    }

    /// The totals of its entries, each with the number of its first original window.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, PastWindow)> {
        let mut next = self.first;
        self.index().into_iter().map(move |past| {
            let number = next;
            next += past.windows;
            (number, past)
        })
    }

    /// Unpacks the windows for which `is_wanted` returns true, given their number and totals.
    pub fn kept(&self, is_wanted: impl Fn(u64, &PastWindow) -> bool) -> Vec<Kept> {
        self.bodies(is_wanted).into_iter().filter_map(|(past, text)| entry(past, &text)).collect()
    }

    /// Unpacks what is kept of the windows for which `is_wanted` returns true, besides their totals.
    pub fn bodies(&self, is_wanted: impl Fn(u64, &PastWindow) -> bool) -> Vec<(PastWindow, Vec<u8>)> {
        let Some(body) = Packer::unpack(&self.body) else { return Vec::new() };
        let numbered = self.numbered().zip(body.texts());
        let wanted = numbered.filter(|((number, past), _)| is_wanted(*number, past));
        wanted.map(|((_, past), text)| (past, text)).collect()
    }

    /// The block in its format on disk.
    pub fn to_bytes(&self, observer: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.index.len() + self.body.len());
        bytes.extend(MAGIC);
        bytes.extend(name(observer));
        bytes.extend(self.first.to_le_bytes());
        bytes.push(self.addresses as u8);
        bytes.extend((self.index.len() as u32).to_le_bytes());
        bytes.extend((self.body.len() as u32).to_le_bytes());
        bytes.extend(checksum(&bytes, &self.index, &self.body).to_le_bytes());
        bytes.extend(&self.index);
        bytes.extend(&self.body);
        bytes
    }

    /// Reads the block at the start of these bytes. Returns it and the remaining bytes.
    ///
    /// # Errors
    ///
    /// The bytes do not begin with a valid block of this observer.
    pub fn read<'b>(bytes: &'b [u8], observer: &str) -> Result<(Self, &'b [u8]), NoBlock> {
        let (head, rest) = bytes.split_at_checked(HEAD).ok_or(NoBlock::Torn)?;
        if head[..8] != MAGIC {
            return Err(NoBlock::Foreign);
        }
        let word = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).map_err(|_| NoBlock::Torn);
        let (index, rest) = rest.split_at_checked(word(25)? as usize).ok_or(NoBlock::Torn)?;
        let (body, rest) = rest.split_at_checked(word(29)? as usize).ok_or(NoBlock::Torn)?;
        if checksum(&head[..33], index, body) != word(33)? {
            return Err(NoBlock::Torn);
        }
        if head[8..16] != name(observer) {
            return Err(NoBlock::OfAnother);
        }
        let first = head[16..24].try_into().map(u64::from_le_bytes).map_err(|_| NoBlock::Torn)?;
        let addresses = Self::level(head[24]);
        let (index, body) = (index.into(), body.into());
        let (start, end) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let block = Self { first, windows: 0, entries: 0, addresses, start, end, index, body };
        let all = block.index();
        let times = (all.iter().map(|past| past.start).min(), all.iter().map(|past| past.end).max());
        let (Some(start), Some(end)) = times else { return Err(NoBlock::Torn) };
        let windows = all.iter().fold(0_u64, |sum, past| sum.saturating_add(past.windows));
        first.checked_add(windows).ok_or(NoBlock::Torn)?;
        Ok((Self { windows, entries: all.len(), start, end, ..block }, rest))
    }
}

/// An entry out of its body: a union, and perhaps sketches after it.
fn entry(past: PastWindow, body: &[u8]) -> Option<Kept> {
    let mut texts = serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>();
    let union = Union::from_json(texts.next()?.ok()?.get().as_bytes()).ok()?;
    let distinct = texts.next().and_then(|text| Distincts::from_json(text.ok()?.get().as_bytes()));
    Some(Kept { past, union, distinct })
}

pub fn name(observer: &str) -> [u8; OBSERVER] {
    let mut name = [0; OBSERVER];
    for (byte, letter) in name.iter_mut().zip(observer.bytes()) {
        *byte = letter;
    }
    name
}

fn checksum(head: &[u8], index: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [head, index, body] {
        hasher.update(part);
    }
    hasher.finalize()
}
