//! Blocks in a fixed number of bytes. The oldest blocks are dropped to make room for new ones. If there is an
//! [archive](crate::archive), all blocks are on disk, too, and older ones are read from there.

use std::{collections::VecDeque, ops::Range};

use jiff::Timestamp;

use weir_config::Addresses;
use weir_schema::PastWindow;

use crate::{
    archive::{Archive, Entry},
    block::{Block, Kept, Open},
    time::Time,
};

/// An open block of this many bytes is closed.
pub const OPEN_MAX: usize = 1536 << 10;

/// Packed blocks, and the open block.
#[derive(Debug)]
pub struct Ring {
    blocks: VecDeque<Block>,
    open: Open,
    /// The size of the packed blocks and its limit, in bytes.
    bytes: u64,
    limit: u64,
    archive: Option<Archive>,
}

impl Ring {
    /// Makes a ring without windows.
    pub fn new(limit: u64) -> Self {
        Self { blocks: VecDeque::new(), open: Open::default(), bytes: 0, limit, archive: None }
    }

    /// Returns the block to which windows are still added.
    pub const fn open(&self) -> &Open {
        &self.open
    }

    /// Continues the blocks of an archive, and keeps new ones there, too.
    pub fn keep_in(&mut self, archive: Archive) {
        self.begin(archive.next());
        self.archive = Some(archive);
    }

    /// Its archive, if there is one.
    pub const fn archive(&self) -> Option<&Archive> {
        self.archive.as_ref()
    }

    /// The blocks with windows of these numbers that touch this time, the oldest first.
    pub fn touching<'a>(&'a self, numbers: Range<u64>, time: &'a Time) -> impl Iterator<Item = Block> + 'a {
        let archive = self.archive.as_ref();
        let older = self.archived(&numbers, time).into_iter().filter_map(move |entry| archive?.read(&entry));
        older.chain(self.in_memory(numbers, time))
    }

    /// Those of them that memory holds, the open one packed.
    pub fn in_memory<'a>(&'a self, numbers: Range<u64>, time: &'a Time) -> impl Iterator<Item = Block> + 'a {
        let touches = move |block: &Block| {
            let is_within = block.first < numbers.end && numbers.start < block.next();
            is_within && time.overlaps(block.start, block.end)
        };
        let blocks = self.blocks.iter().filter(move |block| touches(block)).cloned();
        blocks.chain(self.open.pack().into_iter().filter(move |block| touches(block)))
    }

    /// Those of them that only the archive has.
    pub fn archived(&self, numbers: &Range<u64>, time: &Time) -> Vec<(usize, Entry)> {
        let Some(archive) = &self.archive else { return Vec::new() };
        archive.entries(&(numbers.start..numbers.end.min(self.first_in_memory())), time)
    }

    /// How many windows and unions the blocks have that touch this time.
    pub fn count(&self, numbers: &Range<u64>, time: &Time) -> u64 {
        let older = numbers.start..numbers.end.min(self.first_in_memory());
        let older = self.archive.as_ref().map_or(0, |archive| archive.count(&older, time));
        older + self.in_memory(numbers.clone(), time).map(|block| block.entries as u64).sum::<u64>()
    }

    /// The size of the packed blocks in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The earliest start of a window.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.times().map(|(start, _)| start).min()
    }

    /// The latest end of a window.
    pub fn newest(&self) -> Option<Timestamp> {
        self.times().map(|(_, end)| end).max()
    }

    fn times(&self) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let archived = self.archive.iter().filter_map(|archive| archive.oldest().zip(archive.newest()));
        archived.chain(self.blocks.iter().map(|block| (block.start, block.end))).chain(self.open.times())
    }

    /// The number of the oldest window.
    pub fn first(&self) -> u64 {
        let archived = self.archive.as_ref().and_then(Archive::first);
        archived.into_iter().chain([self.first_in_memory()]).min().unwrap_or(0)
    }

    fn first_in_memory(&self) -> u64 {
        self.blocks.front().map_or_else(|| self.open.first(), |block| block.first)
    }

    /// The number of the next window.
    pub fn next(&self) -> u64 {
        self.open.next()
    }

    /// Adds a window to the open block.
    pub fn push(&mut self, kept: &Kept, addresses: Addresses) {
        self.open.push(kept, addresses);
    }

    /// Adds a window that is kept in another form, in a block of its own.
    pub fn push_alone(&mut self, past: &PastWindow, body: &[u8], addresses: Addresses) {
        self.open.push_body(past, body, addresses);
        self.close();
    }

    /// Changes what the archive may take.
    pub fn limit_archive(&mut self, limits: crate::archive::Limits) {
        if let Some(archive) = &mut self.archive {
            archive.limit(limits);
        }
    }

    /// Closes the open block, and returns it.
    pub fn close(&mut self) -> Option<Block> {
        let block = self.open.pack()?;
        self.add(block.clone());
        Some(block)
    }

    /// Sets the number of the next window, if the open block is empty and the number is not used yet.
    pub fn begin(&mut self, first: u64) {
        if self.open.is_empty() && first > self.next() {
            self.open = Open::new(first);
        }
    }

    fn add(&mut self, block: Block) {
        self.open = Open::new(block.next());
        self.bytes += block.bytes() as u64;
        self.blocks.push_back(block);
        if let Some(archive) = &mut self.archive {
            // What could not be written before is still here, perhaps.
            let next = archive.next();
            archive.append(self.blocks.iter().filter(|block| block.first >= next));
        }
        while self.bytes > self.limit
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.bytes -= oldest.bytes() as u64;
        }
    }
}
