//! Chooses the sampling rate of a CPU, so that the daemon keeps up. The kernel applies the rate with its valve
//! (`weir_common::sampling::Valve`).
//!
//! A fixed rate never changes. With `auto`, every packet is taken until the ring is half full, or until reading it
//! needs more CPU than allowed. Then half of the packets are taken, then a quarter, and so on, until the daemon keeps
//! up. After a second with enough room, the share is doubled again.

use std::time::Duration;

use weir_common::sampling::RATE_MAX;
use weir_config::{Packets, Sampling};

use super::closed::Closed;

/// If the ring is this full, 0 to 1, fewer packets are taken.
const FULL: f64 = 0.5;
/// If the ring was never fuller than this, more packets are taken.
const ROOMY: f64 = 0.1;
/// How long there must have been room before more packets are taken.
const PATIENCE: Duration = Duration::from_secs(1);
/// The CPU's share is measured over at least this long.
const SPAN: Duration = Duration::from_millis(200);
/// More packets are taken only if this many times the present work would still fit into the CPU budget.
const MARGIN: f64 = 2.5;

/// The load that a worker observes after reading its ring.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How full the ring was, 0 to 1.
    pub fill: f64,
    /// The time on the monotonic clock.
    pub now: Duration,
    /// The CPU time that the worker has used so far.
    pub cpu: Duration,
}

/// Chooses the rate of one CPU.
#[derive(Debug)]
pub struct SamplingControl {
    is_automatic: bool,
    budget: f64,
    rate: u32,
    /// The lowest and the highest rate that draws of this window may have.
    in_force: (u32, u32),
    /// When the rate last changed, or when the last second of room began.
    since: Duration,
    /// The highest fill of the ring since then.
    peak: f64,
    /// The load at the beginning of the open span.
    span: Option<Load>,
    /// The CPU share over the last complete span.
    share: f64,
}

impl SamplingControl {
    /// The control for these settings, at their initial rate.
    pub const fn new(sampling: &Sampling) -> Self {
        Self {
            is_automatic: matches!(sampling.packets, Packets::Auto),
            budget: sampling.cpu,
            rate: sampling.packets.first_rate(),
            in_force: (sampling.packets.first_rate(), sampling.packets.first_rate()),
            since: Duration::ZERO,
            peak: 0.0,
            span: None,
            share: 0.0,
        }
    }

    /// Uses other settings from now on. Returns the rate if it changes.
    pub fn change(&mut self, sampling: &Sampling) -> Option<u32> {
        let new = Self::new(sampling);
        let is_same = (new.is_automatic, new.budget) == (self.is_automatic, self.budget);
        // An automatic rate stays as it is.
        if is_same && (new.is_automatic || new.rate == self.rate) {
            return None;
        }
        // Earlier draws continue into this window.
        let (least, most) = self.in_force;
        let (before, now) = (self.rate, new.rate);
        *self = Self { in_force: (least.min(now), most.max(now)), ..new };
        (now != before).then_some(now)
    }

    /// The rate in force: one packet in this many is taken.
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    /// The lowest and the highest rate in force in the open window so far.
    pub const fn in_force(&self) -> (u32, u32) {
        self.in_force
    }

    /// The lowest and the highest rate in force in the window that ends now. `pending` has the lowest and the highest
    /// rate of draws that continue into the next window.
    ///
    /// Records alone do not show the rate: a draw may take a packet that has no record.
    fn end_window(&mut self, pending: (u32, u32)) -> (u32, u32) {
        // At a rate of 1, a draw leaves nothing out, or there was no draw.
        let drawn = |rate: u32| if rate > 1 { rate } else { self.rate };
        let (least, most) = (drawn(pending.0), drawn(pending.1));
        std::mem::replace(&mut self.in_force, (self.rate.min(least), self.rate.max(most)))
    }

    /// The window that ends now, with the rates in force.
    pub fn end(&mut self, mut window: Closed) -> Closed {
        let rates = self.end_window(window.edge.sampling);
        window.sampled_at(self.rate, rates);
        window
    }

    /// Returns true if the rate ever changes.
    pub const fn is_automatic(&self) -> bool {
        self.is_automatic
    }

    /// Observes the load. Returns the new rate if it changes.
    pub fn observe(&mut self, load: Load) -> Option<u32> {
        if !self.is_automatic {
            return None;
        }
        self.peak = self.peak.max(load.fill);
        let is_busy = self.measure_share(load) && self.share > self.budget;
        if load.fill >= FULL || is_busy {
            return self.change_to(load, self.rate.saturating_mul(2).min(RATE_MAX));
        }
        if load.now.saturating_sub(self.since) < PATIENCE {
            return None;
        }
        let has_room = self.peak <= ROOMY && self.share * MARGIN <= self.budget;
        self.change_to(load, if has_room { (self.rate / 2).max(1) } else { self.rate })
    }

    fn change_to(&mut self, load: Load, rate: u32) -> Option<u32> {
        let changes = rate != self.rate;
        self.rate = rate;
        self.in_force = (self.in_force.0.min(rate), self.in_force.1.max(rate));
        self.since = load.now;
        self.peak = 0.0;
        changes.then_some(rate)
    }

    /// Returns whether a span is over and the share updated.
    fn measure_share(&mut self, load: Load) -> bool {
        let start = *self.span.get_or_insert(load);
        let length = load.now.saturating_sub(start.now);
        if length < SPAN {
            return false;
        }
        self.share = load.cpu.saturating_sub(start.cpu).as_secs_f64() / length.as_secs_f64();
        self.span = Some(load);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Sampling = Sampling { packets: Packets::Auto, cpu: 0.5 };

    fn load(fill: f64, now_ms: u64, cpu_ms: u64) -> Load {
        Load { fill, now: Duration::from_millis(now_ms), cpu: Duration::from_millis(cpu_ms) }
    }

    #[test]
    fn a_fixed_rate_stays() {
        let mut control = SamplingControl::new(&Sampling { packets: Packets::OneIn(100), cpu: 0.5 });
        assert_eq!(control.rate(), 100);
        assert!(!control.is_automatic() && SamplingControl::new(&AUTO).is_automatic());
        assert_eq!(control.observe(load(1.0, 0, 0)), None);
        assert_eq!(control.observe(load(1.0, 5_000, 5_000)), None);
        assert_eq!(control.rate(), 100);
    }

    #[test]
    fn a_window_knows_every_rate_that_was_in_force() {
        let mut control = SamplingControl::new(&AUTO);
        assert_eq!(control.end_window((1, 1)), (1, 1));
        for nth in 0..3 {
            control.observe(load(1.0, nth, 0));
        }
        assert_eq!(control.end_window((8, 8)), (1, 8));
        control.observe(load(0.0, 2_000, 0));
        control.observe(load(0.0, 4_000, 0));
        // The pending draw was made before that.
        assert_eq!((control.end_window((8, 8)), control.rate()), ((2, 8), 2));
        assert_eq!(control.end_window((1, 1)), (2, 8), "the draw may have ended in this window");
        assert_eq!(control.end_window((1, 1)), (2, 2));
        let mut fixed = SamplingControl::new(&Sampling { packets: Packets::OneIn(100), cpu: 0.5 });
        assert_eq!([1, 100, 100].map(|pending| fixed.end_window((pending, pending))), [(100, 100); 3]);
    }

    #[test]
    fn a_full_ring_lowers_the_share_at_once_and_room_raises_it_slowly() {
        let mut control = SamplingControl::new(&AUTO);
        assert_eq!(control.observe(load(0.4, 1, 0)), None);
        assert_eq!(control.observe(load(0.5, 2, 0)), Some(2));
        assert_eq!(control.observe(load(0.9, 3, 0)), Some(4));
        assert_eq!(control.observe(load(0.05, 500, 0)), None, "not before a second has passed");
        assert_eq!(control.observe(load(0.05, 1_003, 0)), Some(2));
        assert_eq!(control.observe(load(0.3, 1_500, 0)), None);
        assert_eq!(control.observe(load(0.0, 2_100, 0)), None, "the ring was not roomy all the time");
        assert_eq!(control.observe(load(0.0, 3_200, 0)), Some(1));
        assert_eq!(control.observe(load(0.0, 9_000, 0)), None, "every packet is already taken");
    }

    #[test]
    fn a_busy_cpu_also_lowers_the_share() {
        let mut control = SamplingControl::new(&AUTO);
        assert_eq!(control.observe(load(0.0, 0, 0)), None);
        assert_eq!(control.observe(load(0.0, 200, 180)), Some(2));
        assert_eq!(control.observe(load(0.0, 400, 260)), None, "two fifths are within the budget");
        assert_eq!(control.observe(load(0.0, 1_300, 620)), None, "but twice as much would not be");
        assert_eq!(control.observe(load(0.0, 2_400, 650)), Some(1));
    }

    #[test]
    fn the_whole_budget_may_be_used_and_no_more() {
        let mut control = SamplingControl::new(&AUTO);
        assert_eq!(control.observe(load(0.0, 0, 0)), None);
        assert_eq!(control.observe(load(0.0, 200, 100)), None);
        assert_eq!(control.observe(load(0.0, 400, 201)), Some(2));
    }

    #[test]
    fn it_never_goes_beyond_the_largest_rate() {
        let mut control = SamplingControl::new(&AUTO);
        for now in 0..100 {
            control.observe(load(1.0, now, 0));
        }
        assert_eq!(control.rate(), RATE_MAX);
    }
}
