//! Holds records that sampling took, until it is known if their window left any packet out.
//!
//! A packet that a draw took stands for the packets that the draw left out. But all of those may have been counted in
//! an earlier window, if the valve has opened since, or if only one packet came. In a window that left nothing out,
//! every packet was counted, so each stands for itself, and all numbers are certain. Such a window has few records of
//! draws: an open valve draws nothing, and a valve that is not open soon leaves something out. So room for a few
//! records is enough. If more come, something was left out.

use weir_common::record::Record;

/// The most records that are held: 4 KiB. At a rate of two, this many packets in a row are taken once in 2^64 windows.
const HELD_MAX: usize = 64;

/// Records that are held.
pub struct Drawn {
    records: Vec<Record>,
    is_open: bool,
}

impl Default for Drawn {
    fn default() -> Self {
        Self { records: Vec::with_capacity(HELD_MAX), is_open: true }
    }
}

impl Drawn {
    /// Returns true if records of draws are held.
    #[inline(always)]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Holds a record, if it comes from a draw and there is room.
    pub fn hold(&mut self, record: &Record) -> bool {
        let holds = self.is_open && record.sampling > 1 && self.records.len() < HELD_MAX;
        if holds {
            self.records.push(*record);
        }
        holds
    }

    /// Takes out the held records.
    pub fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Holds nothing more in this window. `emptied` is the vector that [`Drawn::take`] returned; its memory is reused.
    pub fn close(&mut self, mut emptied: Vec<Record>) {
        emptied.clear();
        self.records = emptied;
        self.is_open = false;
    }

    /// Begins the next window.
    pub fn clear(&mut self) {
        self.records.clear();
        self.is_open = true;
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limited_number_of_drawn_records_is_held() {
        let mut drawn = Drawn::default();
        let record = |sampling| Record { packets: 1, sampling, ..Record::default() };
        assert!(drawn.is_open() && !drawn.hold(&record(1)));
        assert!((0..HELD_MAX).all(|_| drawn.hold(&record(2))) && !drawn.hold(&record(2)));
        let memory = drawn.memory_bytes();
        let held = drawn.take();
        assert_eq!(held.len(), HELD_MAX);
        drawn.close(held);
        assert!(!drawn.is_open() && !drawn.hold(&record(2)));
        drawn.clear();
        assert!(drawn.hold(&record(2)) && drawn.memory_bytes() == memory);
    }
}
