//! Seconds of a capture without a long pause between them.
//!
//! The time that a capture covers is known at its end. Packets before it are strays (see
//! [`span`](crate::capture::span)): their seconds must not be among the rates. So rates are kept for each stretch until
//! then.

use weir_common::ledger::Tally;

use super::{NS, Rates, SECOND};
use crate::capture::span::BEHIND_NS;

/// At most this many stretches are known. If there are more, the two nearest become one.
const STRETCHES_MAX: usize = 8;

/// The stretches of a window so far, the earliest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretches(Vec<Stretch>);

/// Consecutive seconds that have rates.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// The first second, which may be incomplete.
    pub(super) first: (u64, Tally),
    /// The last second, and the rates of all others than the first.
    pub(super) others: Option<(u64, Box<Rates>)>,
    of_others: Tally,
}

impl Stretches {
    /// Adds a second later than all others.
    pub(super) fn add(&mut self, second: u64, came: Tally) {
        const PAUSE: u64 = BEHIND_NS / NS;
        match self.0.last_mut() {
            Some(last) if second - last.last() < PAUSE => last.add(second, came),
            _ => self.0.push(Stretch { first: (second, came), others: None, of_others: Tally::default() }),
        }
        if self.0.len() > STRETCHES_MAX {
            let pause = |place: &usize| self.0[place + 1].first.0 - self.0[*place].last();
            if let Some(place) = (0..self.0.len() - 1).min_by_key(pause) {
                let later = self.0.remove(place + 1);
                self.0[place].join(later);
            }
        }
    }

    /// Removes and returns all.
    pub(super) fn take(&mut self) -> Vec<Stretch> {
        std::mem::take(&mut self.0)
    }
}

impl Stretch {
    /// Returns the last second.
    pub(super) fn last(&self) -> u64 {
        self.others.as_ref().map_or(self.first.0, |(last, _)| *last)
    }

    /// Returns the sum of all packets.
    pub(super) fn all(&self) -> Tally {
        [self.first.1, self.of_others].into_iter().sum()
    }

    fn add(&mut self, second: u64, came: Tally) {
        let (last, rates) = self.others.get_or_insert_with(|| (second, Box::default()));
        *last = second;
        rates.add(came, SECOND);
        self.of_others.add(came);
    }

    fn join(&mut self, later: Self) {
        let Self { first: (second, came), others, of_others } = later;
        self.add(second, came);
        if let (Some((last, rates)), Some((later, more))) = (&mut self.others, others) {
            *last = later;
            rates.and(&more);
            self.of_others.add(of_others);
        }
    }
}
