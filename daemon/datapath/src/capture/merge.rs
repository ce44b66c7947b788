//! Merges the packets of several captures in time order.
//!
//! Each capture is read from start to end. So if each capture is sorted, the result is sorted, too. The packets of one
//! capture keep their order even if it is not sorted. A packet without a time comes right after the one before it, and
//! so does a stray: its capture does not wait for a wrong time.
//!
//! Memory: one read buffer per open capture. If there are many captures, each is open only from its first packet to its
//! last, so only captures that overlap in time are open together.

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    path::PathBuf,
    rc::Rc,
};

use super::{
    Broken, Capture, Packet, Reason,
    input::{self, Input},
    span::Covered,
    strays::Settled,
};

/// Up to this many captures stay open from the start.
const KEPT_OPEN: usize = 64;
/// The initial read buffers of all captures together, in bytes, and the limits of a single buffer.
const BUFFERS_BYTES: usize = 4 << 20;
const BUFFER_BYTES: [usize; 2] = [16 << 10, 256 << 10];

/// Captures that are read together.
pub struct Merge {
    sources: Vec<Source>,
    /// Captures that have not ended, by the time at which their next packet is due. The capture that was read last has
    /// the time of the packet that it returned.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    buffer_bytes: usize,
    read: Rc<Cell<u64>>,
    captures: usize,
    broken: Vec<(usize, Broken)>,
    /// The time of all captures that have ended.
    covered: Covered,
}

struct Source {
    path: PathBuf,
    /// `None` if it is not open yet, or already closed.
    capture: Option<Settled<Input>>,
}

impl Merge {
    /// Opens these captures and peeks at the first packet of each.
    pub fn new(files: &[PathBuf]) -> Self {
        let [least, most] = BUFFER_BYTES;
        let mut merge = Self {
            sources: Vec::new(),
            next: BinaryHeap::new(),
            buffer_bytes: (BUFFERS_BYTES / files.len().max(1)).clamp(least, most),
            read: Rc::default(),
            captures: 0,
            broken: Vec::new(),
            covered: Covered::default(),
        };
        for (nth, path) in files.iter().enumerate() {
            merge.sources.push(Source { path: path.clone(), capture: None });
            if let Err(broken) = merge.look_at(nth, files.len() > KEPT_OPEN) {
                merge.broken.push((nth, broken));
            }
        }
        merge
    }

    /// How many files are captures.
    pub const fn captures(&self) -> usize {
        self.captures
    }

    /// How many bytes of the files have been read.
    pub fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    /// The time that the captures cover which have been read to their end.
    pub const fn covered(&self) -> Covered {
        self.covered
    }

    /// The captures that could not be read to the end, in the order of the files.
    pub fn into_broken(mut self) -> Vec<Broken> {
        self.broken.sort_by_key(|(nth, _)| *nth);
        self.broken.into_iter().map(|(_, broken)| broken).collect()
    }

    /// The next packet of all captures; `None` at the end.
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        let nth = loop {
            let Reverse((due_ns, nth)) = *self.next.peek()?;
            match self.next_due(nth) {
                Ok(Some(next_ns)) if next_ns == due_ns => break nth,
                Ok(Some(next_ns)) => {
                    if let Some(mut first) = self.next.peek_mut() {
                        *first = Reverse((next_ns, nth));
                    }
                }
                end => {
                    self.next.peek_mut().map(PeekMut::pop);
                    if let Some(ended) = self.sources[nth].capture.take() {
                        self.covered.add(ended.times().covered());
                    }
                    self.broken.extend(end.err().map(|broken| (nth, broken)));
                }
            }
        };
        // It is known when the packet is due, so it exists.
        self.sources[nth].capture.as_mut()?.next_packet().ok()?
    }

    /// When a capture's next packet is due; `None` at its end.
    fn next_due(&mut self, nth: usize) -> Result<Option<u64>, Broken> {
        if self.sources[nth].capture.is_none() {
            self.sources[nth].capture = Some(self.open(nth)?);
        }
        self.sources[nth].capture.as_mut().map_or(Ok(None), Settled::next_due)
    }

    fn open(&self, nth: usize) -> Result<Settled<Input>, Broken> {
        let path = &self.sources[nth].path;
        let file = input::name(path);
        match Input::open(path, &self.read) {
            Ok(input) => Capture::with_buffer(input, file, self.buffer_bytes).map(Settled::new),
            Err(error) => Err(Broken { file, packets: 0, offset: 0, reason: Reason::Open(error) }),
        }
    }

    /// Opens a capture for the first time. Closes it again if there are many captures.
    fn look_at(&mut self, nth: usize, are_many: bool) -> Result<(), Broken> {
        let before = self.read.get();
        self.sources[nth].capture = Some(self.open(nth)?);
        self.captures += 1;
        if let Some(due_ns) = self.next_due(nth)? {
            self.next.push(Reverse((due_ns, nth)));
            if are_many && input::can_be_read_again(&self.sources[nth].path) {
                self.sources[nth].capture = None;
                self.read.set(before);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;

    /// A folder for one test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("weir-merge-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A capture of packets at these times in milliseconds, each with the length `mark` on the wire.
    fn capture(folder: &Path, name: &str, mark: u32, times_ms: &[u32]) -> PathBuf {
        let mut bytes = Vec::new();
        let words = |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        words(&mut bytes, &[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1]);
        for ms in times_ms {
            words(&mut bytes, &[ms / 1_000, ms % 1_000 * 1_000, 0, mark]);
        }
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn size(files: &[PathBuf]) -> u64 {
        files.iter().map(|file| file.metadata().unwrap().len()).sum()
    }

    fn read(files: &[PathBuf]) -> (Vec<(u64, u32)>, Merge) {
        let mut merge = Merge::new(files);
        let mut packets = Vec::new();
        while let Some(packet) = merge.next_packet() {
            packets.push((packet.time_ns.unwrap() / 1_000_000, packet.wire_bytes));
        }
        (packets, merge)
    }

    #[test]
    fn captures_are_merged_in_time_order_and_each_packet_is_read_once() {
        let folder = Folder::new("order");
        let captures: [&[u32]; 4] = [&[10, 20, 20, 90], &[5, 15, 20, 30], &[], &[20, 100]];
        let file = |(nth, times): (u32, &&[u32])| capture(folder.path(), &format!("{nth}"), nth, times);
        let files: Vec<_> = (0..).zip(&captures).map(file).collect();
        let (packets, merge) = read(&files);
        let expected = [(5, 1), (10, 0), (15, 1), (20, 0), (20, 0), (20, 1), (20, 3), (30, 1), (90, 0), (100, 3)];
        assert_eq!(packets, expected);
        assert_eq!((merge.captures(), merge.bytes_read()), (4, size(&files)));
        assert!(merge.into_broken().is_empty());
    }

    #[test]
    fn only_captures_that_overlap_in_time_are_open() {
        const FILES: u32 = 3 * KEPT_OPEN as u32;
        let folder = Folder::new("many");
        // The captures are sorted from last to first; each overlaps the one before.
        let times = |nth: u32| [nth * 100, nth * 100 + 50, nth * 100 + 120];
        let files: Vec<_> =
            (0..FILES).rev().map(|nth| capture(folder.path(), &format!("{nth}"), nth, &times(nth))).collect();
        let mut merge = Merge::new(&files);
        let (mut before, mut packets, mut most) = (0, 0, 0);
        while let Some(packet) = merge.next_packet() {
            assert!(packet.time_ns.unwrap() >= before);
            before = packet.time_ns.unwrap();
            packets += 1;
            most = most.max(merge.sources.iter().filter(|source| source.capture.is_some()).count());
        }
        assert_eq!((packets, most, merge.captures()), (3 * FILES, 2, FILES as usize));
        assert_eq!(merge.bytes_read(), size(&files));
    }

    #[test]
    fn an_error_only_ends_its_own_capture() {
        let folder = Folder::new("broken");
        let mut files: Vec<_> =
            (0..3).map(|nth| capture(folder.path(), &format!("{nth}"), nth, &[nth, nth + 10, nth + 20])).collect();
        let bytes = fs::read(&files[1]).unwrap();
        fs::write(&files[1], &bytes[..bytes.len() - 3]).unwrap();
        files.insert(0, folder.path().join("not there"));
        let (packets, merge) = read(&files);
        assert_eq!(packets, [(0, 0), (1, 1), (2, 2), (10, 0), (11, 1), (12, 2), (20, 0), (22, 2)]);
        let broken: Vec<_> = merge.into_broken().iter().map(|broken| broken.packets).collect();
        assert_eq!(broken, [0, 2], "they are in the order of the files");
    }
}
