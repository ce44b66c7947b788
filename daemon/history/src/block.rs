//! A block: some consecutive windows, packed. It is the same in memory and on disk.
//!
//! ```text
//! magic (8) | observer (8) | first number (8) | level (1) | index bytes (4) | body bytes (4) | CRC-32 (4) | index | body
//! ```
//!
//! Numbers are little-endian. The CRC-32 is that of all other bytes. The index has the totals of each window
//! ([`PastWindow`]), and the body its union: both are [packed](crate::packed).

use jiff::Timestamp;
use thiserror::Error;
use weir_config::Addresses;
use weir_report::{PastWindow, Report, Union};

use crate::packed::Packer;

const MAGIC: [u8; 8] = *b"weirhst1";
const HEAD: usize = 37;
/// Bytes of an observer's identity.
const OBSERVER: usize = 8;

/// How much of addresses a report has, by its own word.
pub fn addresses_of(report: &Report) -> Addresses {
    let Some(name) = &report.addresses else { return Addresses::Full };
    Addresses::ALL.into_iter().find(|addresses| addresses.name() == name).unwrap_or(Addresses::None)
}

/// A window of the history, or a few together.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Its totals.
    pub past: PastWindow,
    /// Its lists and ledgers.
    pub union: Union,
}

/// Windows that are collected for a block.
#[derive(Clone, Debug, Default)]
pub struct Open {
    first: u64,
    addresses: Addresses,
    index: Packer,
    body: Packer,
    /// How many windows they stand for.
    windows: u64,
    times: Option<(Timestamp, Timestamp)>,
}

impl Open {
    /// An empty one, whose first window will have this number.
    pub fn new(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    /// Adds a window.
    pub fn push(&mut self, kept: &Kept, addresses: Addresses) {
        let Kept { past, union } = kept;
        self.addresses = if self.is_empty() { addresses } else { self.addresses.min(addresses) };
        let text = |kept: Result<Vec<u8>, _>| kept.expect("it has text keys and is written into memory");
        self.index.push(&text(serde_json::to_vec(past)));
        self.body.push(&text(serde_json::to_vec(union)));
        self.windows += past.windows;
        let start = self.times.map_or(past.start, |(start, _)| start);
        self.times = Some((start, past.end));
    }

    /// The number of its first window.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next window.
    pub const fn next(&self) -> u64 {
        self.first + self.windows
    }

    /// Whether it has no window.
    pub const fn is_empty(&self) -> bool {
        self.body.count() == 0
    }

    /// How many entries it has.
    pub const fn count(&self) -> usize {
        self.body.count()
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.body.bytes()
    }

    /// When its first window began, and when its last one ended.
    pub const fn times(&self) -> Option<(Timestamp, Timestamp)> {
        self.times
    }

    /// The block, unless there is no window.
    pub fn pack(&self) -> Option<Block> {
        let (start, end) = self.times?;
        let Self { first, addresses, windows, .. } = *self;
        Some(Block { first, windows, addresses, start, end, index: self.index.pack(), body: self.body.pack() })
    }
}

/// Consecutive windows, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of the first window.
    pub first: u64,
    /// How many windows it stands for.
    pub windows: u64,
    /// How much any of them tells of addresses.
    pub addresses: Addresses,
    /// When the first one began.
    pub start: Timestamp,
    /// When the last one ended.
    pub end: Timestamp,
    index: Box<[u8]>,
    body: Box<[u8]>,
}

/// Why bytes are no block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoBlock {
    /// It ends too early, or its checksum is wrong.
    #[error("it is torn or damaged")]
    Torn,
    /// It has another format.
    #[error("it is not of this version of weir")]
    Foreign,
    /// Another machine wrote it.
    #[error("it is of another machine")]
    OfAnother,
}

impl Block {
    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.index.len() + self.body.len()
    }

    /// The number after that of its last window.
    pub const fn next(&self) -> u64 {
        self.first + self.windows
    }

    /// The totals of its windows.
    pub fn index(&self) -> Vec<PastWindow> {
        let index = Packer::unpack(&self.index);
        let texts = index.iter().flat_map(Packer::texts);
        texts.map_while(|text| serde_json::from_slice(&text).ok()).collect()
    }

    /// The totals of its windows, each with the number of the first window that it stands for.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, PastWindow)> {
        let mut next = self.first;
        self.index().into_iter().map(move |past| {
            let number = next;
            next += past.windows;
            (number, past)
        })
    }

    /// Those of its windows that are wanted, by their number and totals.
    pub fn kept(&self, is_wanted: impl Fn(u64, &PastWindow) -> bool) -> Vec<Kept> {
        let Some(body) = Packer::unpack(&self.body) else { return Vec::new() };
        let numbered = self.numbered().zip(body.texts());
        let wanted = numbered.filter(|((number, past), _)| is_wanted(*number, past));
        let kept = |((_, past), text): ((u64, PastWindow), Vec<u8>)| {
            Some(Kept { past, union: serde_json::from_slice(&text).ok()? })
        };
        wanted.filter_map(kept).collect()
    }

    /// The block as it is written to disk.
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

    /// Reads the block at the start of these bytes, and returns it with the rest of them.
    ///
    /// # Errors
    ///
    /// There is none of this observer.
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
        // An unknown one is shown only where whole addresses are.
        let addresses = Addresses::ALL.into_iter().find(|addresses| *addresses as u8 == head[24]).unwrap_or_default();
        let (index, body) = (index.into(), body.into());
        let (start, end) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let block = Self { first, windows: 0, addresses, start, end, index, body };
        let all = block.index();
        let (Some(oldest), Some(newest)) = (all.first(), all.last()) else { return Err(NoBlock::Torn) };
        let windows = all.iter().fold(0_u64, |sum, past| sum.saturating_add(past.windows));
        first.checked_add(windows).ok_or(NoBlock::Torn)?;
        Ok((Self { windows, start: oldest.start, end: newest.end, ..block }, rest))
    }
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
