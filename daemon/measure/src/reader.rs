//! A thread that reads the rings of some taps into a shard, and closes windows there.
//!
//! The loop in plain text:
//!
//! ```text
//! open and close taps as ordered
//! for each tap: measure the packets of one block, if there is one
//! no block? wait for a block, a command, or a quarter of a second
//! ordered to read the open window? send what is counted so far
//! ordered to close the window? for each tap:
//!     read its statistics: packets that came before belong to this window, some of them dropped
//!     read exactly those that are still in the ring; then hand over shard and edge
//! ```

use std::{sync::Arc, time::Duration};

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use rustix::event::{PollFd, PollFlags};
use tracing::info;
use weir_common::control::Feeds;
use weir_config::Sampling;
use weir_datapath::{
    plan::Plan,
    rates::WindowSeconds,
    tap::{Command, ReaderCommands, Tapped, wait},
};
use weir_sketch::Seen;
use weir_system::{
    clock::{self, Moment},
    waker::Waker,
};

use super::{
    closed::Closed,
    order::{Change, CloseOrder, Order, WorkerError},
    sampling_control::{Load, SamplingControl},
    shard::Shard,
    userspace::UserspaceAggregator,
};

/// A reader looks at its taps at least this often, even if it is not woken.
const PATIENCE: Duration = Duration::from_millis(250);
/// How often statistics are read: the kernel counts drops in 32 bits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The state of a reader.
pub struct Reader {
    inbox: ReaderCommands,
    taps: Vec<Tapped>,
    aggregator: UserspaceAggregator,
    control: SamplingControl,
    looked: Duration,
    /// The start of the open window.
    begun: Duration,
}

impl Reader {
    /// A reader of the taps that arrive in `inbox`. It fills `shard`.
    pub fn new(inbox: ReaderCommands, plan: &Plan, sampling: &Sampling, seen: Arc<Seen>, shard: Box<Shard>) -> Self {
        let (aggregator, control) = (UserspaceAggregator::new(plan, seen, shard), SamplingControl::new(sampling));
        let now = clock::now().monotonic;
        Self { inbox, taps: Vec::new(), aggregator, control, looked: now, begun: now }
    }

    /// Returns a waker for this reader.
    pub fn waker(&self) -> Waker {
        self.inbox.waker.clone()
    }

    /// Reads until the last window, or until the sender of the orders is gone.
    ///
    /// # Errors
    ///
    /// The kernel refused something.
    pub fn run(mut self, orders: &Receiver<Order>, closed: &Sender<Closed>) -> Result<(), WorkerError> {
        loop {
            self.obey()?;
            let mut any = false;
            for tap in &mut self.taps {
                any |= tap.read(u64::MAX, |slot, buffer| self.aggregator.measure(slot, buffer)).is_some();
            }
            self.look()?;
            if !any {
                self.wait()?;
            }
            // One wake-up may stand for two orders.
            loop {
                match orders.try_recv() {
                    Ok(Order::Close(CloseOrder { spare: None, .. })) => {
                        let cut = self.settle()?;
                        // If nobody receives it, weir is ending anyway.
                        let _ = closed.send(self.control.end(self.aggregator.close_last(&cut)));
                        return Ok(());
                    }
                    Ok(Order::Close(CloseOrder { spare: Some(spare), change })) => {
                        let cut = self.settle()?;
                        let window = self.control.end(self.aggregator.close(spare, &cut));
                        // A reader gets interfaces with their taps.
                        if let Some(Change { interfaces: _, sampling }) = change
                            && let Some(rate) = self.control.change(&sampling)
                        {
                            self.aggregator.set_rate(rate);
                        }
                        if closed.send(window).is_err() {
                            return Ok(());
                        }
                    }
                    Ok(Order::Read(order)) => order.answer(self.aggregator.read(&order.wanted, &self.control)),
                    // The coordinator may have given up waiting.
                    Ok(Order::Answer(reply)) => drop(reply.try_send(())),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
        }
    }

    /// Opens and closes taps as ordered.
    fn obey(&mut self) -> Result<(), WorkerError> {
        while let Ok(command) = self.inbox.commands.try_recv() {
            match command {
                Command::Open(tap) => {
                    self.aggregator.provide(usize::from(tap.slot) + 1);
                    self.aggregator.begin(tap.slot, since_epoch(clock::now()));
                    self.taps.push(*tap);
                }
                Command::Close(slot) => {
                    if let Some(at) = self.taps.iter().position(|tap| tap.slot == slot) {
                        let mut tap = self.taps.swap_remove(at);
                        tap.look().map_err(WorkerError::Tap)?;
                        settle(&mut tap, &mut self.aggregator)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Measures what belongs to the window that ends now. Returns its seconds.
    fn settle(&mut self) -> Result<WindowSeconds, WorkerError> {
        // Commands that came before the order belong to that window.
        self.obey()?;
        let now = clock::now();
        let cut = WindowSeconds::at(since_epoch(now), now.monotonic.saturating_sub(self.begun));
        self.begun = now.monotonic;
        // Read the statistics of all taps first, so that their windows end together.
        for tap in &mut self.taps {
            tap.look().map_err(WorkerError::Tap)?;
        }
        for tap in &mut self.taps {
            settle(tap, &mut self.aggregator)?;
        }
        Ok(cut)
    }

    /// Reads the statistics of all taps from time to time, and sets the sampling rate accordingly.
    fn look(&mut self) -> Result<(), WorkerError> {
        let now = clock::now().monotonic;
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return Ok(());
        }
        self.looked = now;
        let mut has_dropped = false;
        for tap in &mut self.taps {
            has_dropped |= tap.look().map_err(WorkerError::Tap)? > 0;
        }
        if !self.control.is_automatic() {
            return Ok(());
        }
        let fill = if has_dropped { 1.0 } else { 0.0 };
        if let Some(rate) = self.control.observe(Load { fill, now, cpu: clock::thread_cpu_time() }) {
            info!(rate, "packet sockets: taking one packet in {rate}");
            self.aggregator.set_rate(rate);
        }
        Ok(())
    }

    fn wait(&self) -> Result<(), WorkerError> {
        let sockets = self.taps.iter().map(|tap| PollFd::new(tap.socket(), PollFlags::IN));
        let mut all: Vec<_> = sockets.chain([PollFd::new(&self.inbox.waker, PollFlags::IN)]).collect();
        wait(&mut all, PATIENCE).map_err(WorkerError::Tap)?;
        for (tap, ready) in self.taps.iter().zip(&all) {
            if ready.revents().contains(PollFlags::ERR) {
                tap.clear_error();
            }
        }
        self.inbox.waker.clear();
        Ok(())
    }
}

/// A moment in nanoseconds since the Unix epoch.
fn since_epoch(now: Moment) -> u64 {
    u64::try_from(now.wall.as_nanosecond()).unwrap_or(0)
}

/// Measures the remaining packets of a tap for this window, and accounts for packets that its socket dropped.
fn settle(tap: &mut Tapped, aggregator: &mut UserspaceAggregator) -> Result<(), WorkerError> {
    let settled = tap.settle(|slot, buffer| aggregator.measure(slot, buffer));
    let (counted, mut beyond) = settled.map_err(WorkerError::Tap)?;
    let feeds = tap.feeds();
    if feeds == Feeds::Local {
        // It is not known which of them the router itself sent.
        beyond.add(counted);
    }
    aggregator.lose(tap.slot, counted, beyond, feeds != Feeds::All);
    Ok(())
}
