//! Why the true numbers of a window may differ from those of its records: packets were lost, or left out by sampling.

use weir_common::{ledger::Tally, sketch::Metric};
use weir_sketch::Estimate;

use super::{
    heavy_hitters::Held,
    ranking::Ranked,
    sampling_error::{Sampling, SamplingError},
};

/// What is not known of a window's packets.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// The most that is missing of what was never drawn.
    pub lost: Tally,
    /// What is missing of the packets that were drawn. Each stands for as many as the sampling rate says.
    pub drawn: Tally,
    /// Packets of which nothing is known: each may be of one more address or flow.
    pub unknown: u64,
    /// New flows that no view counted, at most: the filter of seen flows took them for known ones, or their packets are
    /// unknown.
    pub missed_flows: u64,
    /// How packets were left out, if they were.
    pub sampling: Option<Sampling>,
    /// The probability that all bounds of a view hold.
    pub confidence: f64,
}

/// The same for one view.
pub struct ViewDoubt {
    doubt: Doubt,
    /// The sum of all records of the view, scaled by their sampling rates: no key has more.
    total: Tally,
    sampling: Option<SamplingError>,
}

impl Doubt {
    /// Whether packets are missing.
    pub fn is_some(&self) -> bool {
        self.sampling.is_some() || !self.lost.is_zero() || !self.drawn.is_zero()
    }

    /// What it means for a view whose records add up to `total`, each of which counts for so many keys.
    pub fn of_view(&self, total: Tally, keys: u64) -> ViewDoubt {
        let sampling = self.sampling.map(|sampling| {
            let all = Tally::new(sampling.total.packets * keys, sampling.total.bytes * keys);
            SamplingError::new(Sampling { total: all, ..sampling }, self.confidence)
        });
        ViewDoubt { doubt: *self, total, sampling }
    }

    /// A count of new flows, all of which are new. Those that were not counted may all be of the same key, so what is
    /// missing in all is the most that any key misses: the bounds of all rows fail only together with that one.
    pub const fn new_flows(&self, mut counted: Estimate) -> Estimate {
        counted.upper = counted.upper.saturating_add(self.missed_flows);
        counted
    }

    /// A count of distinct values, of which each unknown packet may have one more.
    pub const fn distinct(&self, mut counted: Estimate) -> Estimate {
        counted.upper = counted.upper.saturating_add(self.unknown);
        counted
    }
}

impl ViewDoubt {
    /// The most that any key's records add up to.
    pub const fn total(&self) -> Tally {
        self.total
    }

    /// The true sum of a key whose records, scaled by their sampling rates, add up to between `lower` and `upper`.
    pub fn bounds(&self, metric: Metric, lower: Tally, upper: Tally) -> (u64, u64) {
        let Doubt { lost, drawn, .. } = self.doubt;
        let lower = metric.of(lower);
        // No key has more than all, nor less than was counted of it.
        let upper = metric.of(upper).min(metric.of(self.total)).max(lower);
        let (lower, upper) = match &self.sampling {
            None => (lower, upper.saturating_add(metric.of(drawn))),
            Some(error) => {
                let (lower, upper) = error.bounds(metric, lower, upper.saturating_add(metric.of(error.scaled(drawn))));
                // However many keys a packet counts for, each of them has it once.
                let most = self.doubt.sampling.map_or(u64::MAX, |sampling| metric.of(sampling.total));
                (lower.min(most), upper.min(most))
            }
        };
        (lower, upper.saturating_add(metric.of(lost)))
    }

    /// A row. `needed` is what a key needed to be listed; 0 if there is room for all.
    pub fn ranked<K: Copy>(&self, held: &Held<K>, order: Metric, needed: u64) -> Ranked<K> {
        let Held { key, lower, value, upper } = *held;
        let likeliest = self.sampling.as_ref().map_or(value, |error| error.likeliest(value, order, needed));
        let estimate = |metric: Metric| {
            let (lower, upper) = self.bounds(metric, lower, upper);
            Estimate { value: metric.of(likeliest).clamp(lower, upper), lower, upper }
        };
        Ranked {
            key,
            packets: estimate(Metric::Packets),
            bytes: estimate(Metric::Bytes),
            sampled: self.sampling.as_ref().map(|error| error.taken(value)),
        }
    }
}

/// The most that one draw takes: a whole socket buffer, however many packets an offload merged into it.
pub fn largest(largest_bytes: u64, has_merged: bool) -> Tally {
    /// The most that offloads merge into one buffer (64 KiB), with the headers that each packet had. "BIG TCP" can be
    /// configured to merge more; these bounds do not cover it.
    const BUFFER: Tally = Tally::new(128, 128 << 10);
    if has_merged { BUFFER } else { Tally::new(1, largest_bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_takes_a_whole_buffer() {
        assert_eq!(largest(1_514, false), Tally::new(1, 1_514));
        // Forty-five segments of 1,448 bytes, each with 66 of headers, came as one.
        let buffer = largest(1_514, true);
        assert!(buffer.packets >= 45 && buffer.bytes >= 45 * 1_514, "{buffer:?}");
    }
}
