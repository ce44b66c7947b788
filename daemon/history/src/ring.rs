//! Blocks in a fixed number of bytes. The oldest blocks are dropped to make room for new ones.

use std::collections::VecDeque;

use jiff::Timestamp;

use weir_config::Addresses;

use crate::block::{Block, Kept, Open};

/// An open block of this many bytes is closed.
pub const OPEN_MAX: usize = 768 << 10;

/// Packed blocks, and the open block.
#[derive(Debug)]
pub struct Ring {
    blocks: VecDeque<Block>,
    open: Open,
    /// The size of the packed blocks and its limit, in bytes.
    bytes: u64,
    limit: u64,
}

impl Ring {
    /// An empty ring.
    pub fn new(limit: u64) -> Self {
        Self { blocks: VecDeque::new(), open: Open::default(), bytes: 0, limit }
    }

    /// The open block.
    pub const fn open(&self) -> &Open {
        &self.open
    }

    /// The packed blocks, the oldest first.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter()
    }

    /// All blocks, the open one packed.
    pub fn all(&self) -> impl Iterator<Item = Block> {
        self.blocks.iter().cloned().chain(self.open.pack())
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
        self.blocks.iter().map(|block| (block.start, block.end)).chain(self.open.times())
    }

    /// The number of the oldest window.
    pub fn first(&self) -> u64 {
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

    /// Closes the open block, and returns it.
    pub fn close(&mut self) -> Option<Block> {
        let block = self.open.pack()?;
        self.add(block.clone());
        Some(block)
    }

    /// Adds a block of an earlier weir, unless there are later blocks.
    pub fn resume(&mut self, block: Block) {
        if block.first >= self.next() {
            self.add(block);
        }
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
        while self.bytes > self.limit
            && let Some(oldest) = self.blocks.pop_front()
        {
            self.bytes -= oldest.bytes() as u64;
        }
    }
}
