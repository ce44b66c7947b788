//! The state for the next weir. It is in a memory file that outlives this process, and is written at the end of each
//! window and whenever an interface gets a slot.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    time::Duration,
};

use jiff::Timestamp;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_common::{control::SLOTS_MAX, size::SIZE_CLASSES};
use weir_datapath::kept::SlotState;
use weir_report::observer::Last;
use weir_schema::{alerting::state::State, limits::SEQ_MAX};
use weir_system::clock::Moment;

/// The largest handover state, in bytes. 256 interfaces with numbers of twenty digits take a third of it.
const BYTES_MAX: usize = 1 << 20;
/// The offsets of the two copies, which are written in turn.
const COPIES: [u64; 2] = [4096, 4096 + BYTES_MAX as u64];

/// The state of a generation of the datapath.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct HandoverState {
    /// The layout of its maps: [`weir_common::cpu::LAYOUT`].
    pub layout: u32,
    /// The number of the network namespace.
    pub network: u64,
    /// The key that all keys of the run are derived from, if it was generated and not configured.
    pub secret: Option<[u64; 2]>,
    /// The end of the last reported window; before the first report, the beginning of the first window.
    pub until: Moment,
    /// The last report, once there is one.
    pub last: Option<Last>,
    /// When the open generation of seen flows began, on the monotonic clock, if known.
    pub generation_begun: Option<Duration>,
    /// The state of each rule of alerts that is not inactive.
    pub alerts: Vec<(String, State<Timestamp>)>,
    /// The interfaces. Earlier releases wrote this name.
    #[serde(rename = "pages")]
    pub slot_states: Vec<SlotState>,
    /// Packets by size class in all reports so far.
    pub sizes: Vec<u64>,
}

/// Why a handover state cannot be read.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The descriptor is not a file, or the file is too short.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Nothing was written yet.
    #[error("nothing is written in it")]
    Empty,
    /// Some number is out of range.
    #[error("its numbers are out of range")]
    Wild,
    /// It was written by a weir with another format.
    #[error("another version of weir wrote it: {0}")]
    Other(#[from] serde_json::Error),
}

/// The memory file for the handover state. It vanishes with its last descriptor.
#[derive(Debug)]
pub struct StateMemory {
    file: File,
    /// The copy that is written next.
    next: usize,
}

impl StateMemory {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// No more descriptors, or out of memory.
    pub fn new() -> io::Result<Self> {
        let memory = memfd_create("weir-state", MemfdFlags::CLOEXEC)?;
        Ok(Self { file: File::from(memory), next: 0 })
    }

    /// Returns the descriptor of the memory.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Replaces the state atomically: a later reader finds the old or the new one, even if this process is killed.
    ///
    /// # Errors
    ///
    /// It is too large, or there is no memory.
    pub fn write(&mut self, state: &HandoverState) -> io::Result<()> {
        let text = serde_json::to_vec(state)?;
        if text.len() > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all_at(&text, COPIES[self.next])?;
        // One word within a page of memory: it is written completely or not at all.
        let which = (self.next as u64) << u32::BITS | text.len() as u64;
        self.file.write_all_at(&which.to_ne_bytes(), 0)?;
        self.next = 1 - self.next;
        Ok(())
    }
}

/// Reads a handover state.
///
/// # Errors
///
/// See [`Unreadable`].
pub fn read(memory: OwnedFd) -> Result<HandoverState, Unreadable> {
    let file = File::from(memory);
    if file.metadata()?.len() == 0 {
        return Err(Unreadable::Empty);
    }
    let mut which = [0; 8];
    file.read_exact_at(&mut which, 0)?;
    let which = u64::from_ne_bytes(which);
    let (copy, bytes) = ((which >> u32::BITS) as usize, (which & u64::from(u32::MAX)) as usize);
    let place = COPIES.get(copy).filter(|_| (1..=BYTES_MAX).contains(&bytes)).ok_or(Unreadable::Empty)?;
    let mut text = vec![0; bytes];
    file.read_exact_at(&mut text, *place)?;
    let state: HandoverState = serde_json::from_slice(&text)?;
    let slots = state.slot_states.iter().all(|slot_state| slot_state.slot < SLOTS_MAX as usize);
    let seq = state.last.as_ref().is_none_or(|last| last.seq < SEQ_MAX);
    if slots && seq && state.sizes.len() == SIZE_CLASSES { Ok(state) } else { Err(Unreadable::Wild) }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::{Counters, Tally};
    use weir_config::interface::Way;
    use weir_datapath::kept::{Away, words};
    use weir_schema::alerting::state::Since;

    use super::*;

    fn state(seq: u64) -> HandoverState {
        let counters = Counters { seen: Tally::new(u64::MAX, 2), ..Counters::default() };
        let slot_state = SlotState {
            slot: 3,
            name: "eth0".to_owned(),
            way: Way::Egress,
            ifindex: Some(7),
            address: Some([2, 0, 0, 0, 0, 7]),
            own: Some(u64::MAX),
            own_bytes: Some(u64::MAX),
            seen: Some([[u64::MAX, 1, 0]; 2]),
            missed: [[7, 8], [9, u64::MAX]],
            away: vec![Away {
                ifindex: 9,
                address: None,
                has_moved: true,
                own: [[u64::MAX, 1]; 2],
                later: [[1, 2, 3]; 2],
                unseen: [[4, 5]; 2],
            }],
            reported: words(&counters),
        };
        HandoverState {
            layout: 1,
            network: 4_026_531_840,
            secret: Some([u64::MAX, 1]),
            until: Moment { wall: Timestamp::UNIX_EPOCH, monotonic: Duration::new(5, 999_999_999) },
            last: Some(Last { seq, id: "a/b/1".to_owned() }),
            generation_begun: None,
            alerts: vec![(
                "when: packets > 1".to_owned(),
                State::Pending(Since { start: Timestamp::UNIX_EPOCH, windows: 2 }),
            )],
            slot_states: vec![slot_state],
            sizes: vec![seq; SIZE_CLASSES],
        }
    }

    fn copy(memory: &StateMemory) -> OwnedFd {
        memory.descriptor().try_clone_to_owned().unwrap()
    }

    #[test]
    fn the_latest_state_is_read_completely() {
        let mut memory = StateMemory::new().unwrap();
        assert!(matches!(read(copy(&memory)), Err(Unreadable::Empty)));
        for seq in [1, SEQ_MAX - 1, 7] {
            memory.write(&state(seq)).unwrap();
            assert_eq!(read(copy(&memory)).unwrap(), state(seq));
        }
        assert_eq!(state(1).slot_states[0].reported().unwrap().seen, Tally::new(u64::MAX, 2));
        for wild in [
            state(SEQ_MAX),
            HandoverState { sizes: vec![1], ..state(1) },
            HandoverState { slot_states: vec![SlotState { slot: 256, ..state(1).slot_states[0].clone() }], ..state(1) },
        ] {
            memory.write(&wild).unwrap();
            assert!(matches!(read(copy(&memory)), Err(Unreadable::Wild)), "{wild:?}");
        }
        let short = SlotState { reported: vec![1], ..state(1).slot_states[0].clone() };
        assert_eq!(short.reported(), None);
    }

    #[test]
    fn an_unfinished_write_leaves_the_previous_state() {
        let mut memory = StateMemory::new().unwrap();
        memory.write(&state(1)).unwrap();
        // Killed before the word is written.
        memory.file.write_all_at(b"{\"layout\": 2, ", COPIES[1]).unwrap();
        assert_eq!(read(copy(&memory)).unwrap(), state(1));
        let damage: [&[u8]; 3] = [&[0xff; 8], &(7_u64 << 32).to_ne_bytes(), &5_u64.to_ne_bytes()];
        for word in damage {
            memory.file.write_all_at(word, 0).unwrap();
            assert!(read(copy(&memory)).is_err(), "{word:?}");
        }
    }
}
