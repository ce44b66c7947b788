//! One thread that reads the rings of some taps into a shard, and closes windows there.
//!
//! The loop in plain text:
//!
//! ```text
//! open and close taps as told
//! for each tap: measure the packets of one block, if one is there
//! nothing there? wait for a block, a word, or a quarter of a second
//! ordered to close the window? for each tap:
//!     look at its statistics: what came before belongs to this window, and how much of it was dropped
//!     read exactly what is still to be read of it; then hand over shard and edge
//! ```

use std::{sync::Arc, time::Duration};

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tracing::{debug, info};
use weir_common::{
    ledger::Tally,
    packet::{Link, REACH_MAX},
};
use weir_sketch::Seen;

use super::{Command, Opened};
use crate::{
    clock,
    config::Sampling,
    datapath::{
        kernel::Plan,
        ring::Waker,
        userspace::{Buffer, Twin},
    },
    measure::{
        sampling_control::{Load, Valve},
        shard::Shard,
        worker::{Closed, Order, WorkerError},
    },
};

/// A reader looks at its taps at least this often, woken or not.
const PATIENCE: Duration = Duration::from_millis(250);
/// Statistics are looked at this often: the kernel counts drops in 32 bits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A packet that came is in a block that can be read some milliseconds later. One that is not after this is lost, and
/// is passed over should it come.
const OVERDUE: Duration = Duration::from_secs(1);

/// Reads some taps.
pub struct Reader {
    commands: Receiver<Command>,
    waker: Waker,
    taps: Vec<Tapped>,
    twin: Twin,
    valve: Valve,
    looked: Duration,
}

/// A tap, and what came of it in the open window.
struct Tapped {
    opened: Opened,
    sizes: Sizes,
    /// Dropped by the socket.
    dropped: u64,
}

/// How large the buffers of a tap are: the socket tells no more of those that it dropped than how many they were.
struct Sizes {
    /// Handed over by the socket in the open window: buffers, and bytes on the wire.
    taken: Tally,
    /// Bytes on the wire of a buffer, in the last window that had any.
    mean: u64,
    /// Packets, and bytes on the wire, that no buffer exceeded since the tap was opened: at least what the interface
    /// takes for one packet. A merged buffer that was dropped may still have been larger than any that came.
    largest: Tally,
}

impl Reader {
    pub(super) fn new(
        commands: Receiver<Command>,
        waker: Waker,
        plan: &Plan,
        sampling: &Sampling,
        seen: Arc<Seen>,
        shard: Box<Shard>,
    ) -> Self {
        let (twin, valve) = (Twin::new(plan, seen, shard), Valve::new(sampling));
        Self { commands, waker, taps: Vec::new(), twin, valve, looked: clock::now().monotonic }
    }

    /// Wakes this reader.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Reads until the sender of the orders is gone.
    ///
    /// # Errors
    ///
    /// The kernel refused something.
    pub fn run(mut self, orders: &Receiver<Order>, closed: &Sender<Closed>) -> Result<(), WorkerError> {
        loop {
            self.obey()?;
            let mut any = false;
            for tap in &mut self.taps {
                any |= tap.read(u64::MAX, &mut self.twin).is_some();
            }
            self.look()?;
            if !any {
                self.wait()?;
            }
            match orders.try_recv() {
                Ok(Order::Close(spare)) => {
                    // What was told before the order belongs to the window.
                    self.obey()?;
                    let window = self.close(spare)?;
                    if closed.send(window).is_err() {
                        return Ok(());
                    }
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn obey(&mut self) -> Result<(), WorkerError> {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Open(opened) => self.taps.push(Tapped::new(*opened)),
                Command::Close(slot) => {
                    if let Some(at) = self.taps.iter().position(|tap| tap.opened.slot == slot) {
                        let mut tap = self.taps.swap_remove(at);
                        tap.look()?;
                        tap.settle(&mut self.twin)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn close(&mut self, spare: Box<Shard>) -> Result<Closed, WorkerError> {
        // All of them first, so that their windows end together.
        for tap in &mut self.taps {
            tap.look()?;
        }
        for tap in &mut self.taps {
            tap.settle(&mut self.twin)?;
        }
        Ok(self.twin.close(spare))
    }

    /// Looks at the statistics of all taps, once in a while, and turns the valve by them.
    fn look(&mut self) -> Result<(), WorkerError> {
        let now = clock::now().monotonic;
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return Ok(());
        }
        self.looked = now;
        let mut has_dropped = false;
        for tap in &mut self.taps {
            has_dropped |= tap.look()? > 0;
        }
        if !self.valve.is_automatic() {
            return Ok(());
        }
        let fill = if has_dropped { 1.0 } else { 0.0 };
        if let Some(rate) = self.valve.observe(Load { fill, now, cpu: clock::thread_cpu_time() }) {
            info!(rate, "packet sockets: taking one packet in {rate}");
            self.twin.set_rate(rate);
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), WorkerError> {
        let sockets = self.taps.iter().map(|tap| PollFd::new(&tap.opened.socket, PollFlags::IN));
        let mut all: Vec<_> = sockets.chain([PollFd::new(&self.waker, PollFlags::IN)]).collect();
        wait(&mut all, PATIENCE)?;
        for (tap, ready) in self.taps.iter().zip(&all) {
            if ready.revents().contains(PollFlags::ERR) {
                tap.clear_error();
            }
        }
        self.waker.clear();
        Ok(())
    }
}

fn wait(sockets: &mut [PollFd<'_>], timeout: Duration) -> Result<(), WorkerError> {
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    match poll(sockets, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(WorkerError::Tap(error.into())),
    }
}

impl Tapped {
    fn new(opened: Opened) -> Self {
        Self { sizes: Sizes::new(opened.link, opened.mtu), opened, dropped: 0 }
    }

    /// Measures at most `most` packets of the next block, if one is there.
    fn read(&mut self, most: u64, twin: &mut Twin) -> Option<u64> {
        let Self { opened: Opened { slot, link, socket, .. }, sizes, dropped: _ } = self;
        let mut scratch = [0; REACH_MAX];
        socket.read(most, |frame| {
            let tally = frame.tally(*link);
            sizes.take(tally);
            twin.measure(*slot, &Buffer { headers: frame.headers(&mut scratch), link: *link, tally, tick: frame.tick });
        })
    }

    /// Takes note of what the socket has dropped since the last time.
    fn look(&mut self) -> Result<u64, WorkerError> {
        let dropped = self.opened.socket.drops().map_err(WorkerError::Tap)?;
        self.dropped += dropped;
        Ok(dropped)
    }

    /// Takes the socket's error from it, with which nobody could wait for packets.
    fn clear_error(&self) {
        if let Some(error) = self.opened.socket.take_error() {
            // Its interface went down, most likely, and may come up again.
            debug!(slot = self.opened.slot, "a packet socket says: {error}");
        }
    }

    /// Measures everything that had come when the statistics were last looked at, and accounts for what was dropped.
    fn settle(&mut self, twin: &mut Twin) -> Result<(), WorkerError> {
        let begun = clock::now().monotonic;
        while self.opened.socket.unread() > 0 {
            let most = self.opened.socket.unread();
            if self.read(most, twin).is_some() {
                continue;
            }
            if clock::now().monotonic.saturating_sub(begun) > OVERDUE {
                self.dropped += self.opened.socket.give_up();
            }
            self.clear_error();
            wait(&mut [PollFd::new(&self.opened.socket, PollFlags::IN)], PATIENCE / 50)?;
        }
        let (counted, beyond) = self.sizes.close(std::mem::take(&mut self.dropped));
        twin.lose(self.opened.slot, counted, beyond);
        Ok(())
    }
}

impl Sizes {
    fn new(link: Link, mtu: u32) -> Self {
        /// With one VLAN tag, which the MTU leaves out as well.
        const ETHERNET_BYTES: u64 = 14 + 4;
        let header = if link == Link::Ethernet { ETHERNET_BYTES } else { 0 };
        let largest = Tally::new(1, u64::from(mtu) + header);
        Self { taken: Tally::default(), mean: largest.bytes, largest }
    }

    /// A buffer came that stands for this.
    fn take(&mut self, tally: Tally) {
        self.taken.add(Tally::new(1, tally.bytes));
        self.largest = Tally::new(self.largest.packets.max(tally.packets), self.largest.bytes.max(tally.bytes));
    }

    /// Ends the window: what the buffers are counted for that were `dropped` in it, and what they may come to beyond.
    /// All that came may have been measured in the window before, if the ring was full at its end.
    fn close(&mut self, dropped: u64) -> (Tally, Tally) {
        let taken = std::mem::take(&mut self.taken);
        if taken.packets > 0 {
            self.mean = taken.mean_bytes();
        }
        let counted = Tally::new(dropped, dropped * self.mean);
        let most = Tally::new(dropped * self.largest.packets, dropped * self.largest.bytes);
        (counted, most.since(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_after_the_last_buffer_came_has_its_size() {
        let mut sizes = Sizes::new(Link::Ethernet, 1500);
        sizes.take(Tally::new(1, 1000));
        sizes.take(Tally::new(1, 1200));
        assert_eq!(sizes.close(0), (Tally::default(), Tally::default()));
        assert_eq!(sizes.close(10), (Tally::new(10, 11_000), Tally::new(0, 10 * 1518 - 11_000)));
    }

    #[test]
    fn what_is_dropped_may_be_larger_than_what_came() {
        let mut sizes = Sizes::new(Link::Ethernet, 1500);
        assert_eq!(sizes.close(1), (Tally::new(1, 1518), Tally::default()), "nothing is known but the MTU");
        sizes.take(Tally::new(1, 66));
        assert_eq!(sizes.close(10), (Tally::new(10, 660), Tally::new(0, 15_180 - 660)));
        sizes.take(Tally::new(45, 68_130));
        assert_eq!(sizes.close(1), (Tally::new(1, 68_130), Tally::new(44, 0)));
        sizes.take(Tally::new(1, 66));
        assert_eq!(sizes.close(1), (Tally::new(1, 66), Tally::new(44, 68_130 - 66)), "it stays for the tap's life");
        assert_eq!(Sizes::new(Link::RawIp, 1420).largest, Tally::new(1, 1420));
    }
}
