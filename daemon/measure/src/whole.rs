//! The whole of a window: all packets, of which rows and sums are parts.
//!
//! With sampling, a row is estimated from a sample, but its whole is known: the ledger counts every packet. Samples
//! scaled by their rates add up to more or less than that. So each scaled sum is multiplied by the ratio of the known
//! whole to the scaled sum of all samples (ratio estimation: Cochran, "Sampling Techniques", chapter 6). Then all
//! packets together are exactly those that were seen, parts add up to their whole, and estimates are closer to the
//! truth, because they do not depend on how many packets the draw happened to take.
//!
//! It is not known how many of the left-out packets have a flow. The same proportion is assumed as among the taken
//! ones.

use weir_common::{
    ledger::{Ledger, Tally},
    sketch::Metric,
};
use weir_sketch::Estimate;

use super::ranking::Ranked;

/// All packets of a window that have a flow, on all interfaces or on one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Whole {
    /// An upper bound of packets and bytes.
    pub most: Tally,
    /// The factor for scaled sums of samples; `None` if every packet was taken, or if the factor is unknown.
    due: Option<[f64; 2]>,
}

/// The packets that a whole counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Each packet once: the packets that feed totals and lists on this interface.
    Once,
    /// Each packet on each interface that carried it.
    Everywhere,
}

impl Whole {
    /// The whole of these ledgers. The records of its packets, each scaled by its rate, add up to `scaled`, if that is
    /// known.
    pub fn new(ledgers: &[Ledger], counted: Counted, scaled: Option<Tally>) -> Self {
        let sum = |of: &dyn Fn(&Ledger) -> Tally| ledgers.iter().map(of).sum::<Tally>();
        let beyond = sum(&|ledger| ledger.counters.uncertain.beyond());
        let dropped = sum(&Ledger::unread);
        let skipped = sum(&Ledger::skipped);
        let attributed = sum(&|ledger| ledger.attributed);
        let drawn = sum(&Ledger::lost).since(dropped);
        // The two are equal, unless a ledger does not balance, which is a bug.
        let accounted = [attributed, skipped, drawn, dropped, sum(&|ledger| ledger.counters.sampled_out)];
        let (all, accounted) = (sum(&|ledger| ledger.counters.seen), accounted.into_iter().sum());
        let all = Metric::each(|metric| metric.of(all).max(metric.of(accounted)));
        let seen = match counted {
            Counted::Once => all.since(sum(&|ledger| ledger.counters.repeated)),
            Counted::Everywhere => all,
        };
        let most = Metric::each(|metric| {
            let with_flow = metric.of(all).saturating_sub(metric.of(skipped));
            metric.of(seen).min(with_flow).saturating_add(metric.of(beyond))
        });
        let due = |metric: Metric, scaled: u64| {
            let taken = metric.of(attributed).saturating_add(metric.of(skipped)).saturating_add(metric.of(drawn));
            let whole = metric.of(seen).saturating_sub(metric.of(dropped)) as f64;
            let due = whole * (metric.of(attributed) as f64 / taken as f64) / scaled as f64;
            if due.is_finite() && due > 0.0 { due } else { 1.0 }
        };
        let due = scaled.map(|scaled| [due(Metric::Packets, scaled.packets), due(Metric::Bytes, scaled.bytes)]);
        Self { most, due }
    }

    /// Corrects a scaled sum of samples by the ratio.
    pub fn due(&self, scaled: Tally) -> Tally {
        let Some([packets, bytes]) = self.due else { return scaled };
        Tally::new((scaled.packets as f64 * packets).round() as u64, (scaled.bytes as f64 * bytes).round() as u64)
    }

    /// This whole as the total of a list without its own total.
    pub fn as_total<K: Default>(&self, scaled: Tally) -> Ranked<K> {
        let due = self.due(scaled);
        let whole = |metric: Metric| {
            let most = metric.of(self.most);
            Estimate { value: metric.of(due).min(most), lower: most, upper: most }
        };
        Ranked { key: K::default(), packets: whole(Metric::Packets), bytes: whole(Metric::Bytes), sampled: None }
    }
}

/// Makes rows and their total agree. No row exceeds the total. If each packet is in only one row (`is_disjoint`), all
/// rows together do not exceed it either. If all bounds held before, all still hold.
pub fn reconcile<'a, K: 'a>(rows: impl Iterator<Item = &'a mut Ranked<K>>, total: &mut Ranked<K>, is_disjoint: bool) {
    let mut rows: Vec<_> = rows.collect();
    for metric in [Metric::Packets, Metric::Bytes] {
        let whole = total.estimate(metric);
        for row in &mut rows {
            let estimate = row.estimate_mut(metric);
            estimate.upper = estimate.upper.min(whole.upper);
            estimate.lower = estimate.lower.min(estimate.upper);
        }
        let least = |rows: &[&mut Ranked<K>]| {
            let lower = rows.iter().map(|row| row.estimate(metric).lower);
            if is_disjoint { lower.fold(0, u64::saturating_add) } else { lower.max().unwrap_or(0) }
        };
        let sure = least(&rows);
        if sure > whole.upper {
            // Some of these bounds have failed, but it is not known which. Lower values are safe.
            let part = whole.upper as f64 / sure as f64;
            for row in &mut rows {
                let lower = &mut row.estimate_mut(metric).lower;
                *lower = (*lower as f64 * part * (1.0 - f64::EPSILON)) as u64;
            }
        }
        let sure = least(&rows).min(whole.upper);
        let whole = total.estimate_mut(metric);
        // The total is at least the sum of the lower bounds.
        whole.lower = whole.lower.max(sure);
        whole.value = whole.value.clamp(whole.lower, whole.upper);
        let whole = *whole;
        for row in &mut rows {
            let estimate = row.estimate_mut(metric);
            estimate.value = estimate.value.clamp(estimate.lower, estimate.upper).min(whole.value);
        }
        if is_disjoint {
            shrink(&mut rows, metric, whole.value, sure);
        }
    }
}

/// Moves the values of rows towards their lower bounds, which add up to `sure`, until they add up to no more than
/// `whole`.
fn shrink<K>(rows: &mut [&mut Ranked<K>], metric: Metric, whole: u64, sure: u64) {
    let sum = rows.iter().map(|row| row.estimate(metric).value).fold(0, u64::saturating_add);
    if sum <= whole {
        return;
    }
    let part = (whole.saturating_sub(sure) as f64 / (sum - sure).max(1) as f64).min(1.0);
    for row in rows {
        let estimate = row.estimate_mut(metric);
        estimate.value = estimate.lower + ((estimate.value - estimate.lower) as f64 * part) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(seen: u64, attributed: u64, arp: u64) -> Ledger {
        let tally = |packets| Tally::new(packets, packets * 100);
        let mut ledger = Ledger { attributed: tally(attributed), ..Ledger::default() };
        ledger.counters.seen = tally(seen);
        ledger.counters.skipped[0] = tally(arp);
        ledger.counters.sampled_out = tally(seen - attributed - arp);
        ledger
    }

    fn row(value: u64, lower: u64, upper: u64) -> Ranked<u8> {
        let packets = Estimate { value, lower, upper };
        Ranked { key: 0, packets, bytes: packets, sampled: None }
    }

    #[test]
    fn the_taken_packets_stand_for_all_seen_packets() {
        let whole = |ledger, scaled| Whole::new(&[ledger], Counted::Once, Some(scaled));
        // 12 of 100 packets were taken, at a rate of one in ten.
        let lucky = whole(ledger(100, 12, 0), Tally::new(120, 12_000));
        assert_eq!(lucky.due(Tally::new(120, 12_000)), Tally::new(100, 10_000));
        assert_eq!(lucky.due(Tally::new(60, 6_000)), Tally::new(50, 5_000));
        // A quarter of the taken packets have no flow.
        let some = whole(ledger(100, 6, 2), Tally::new(60, 6_000));
        assert_eq!((some.due(Tally::new(60, 6_000)), some.most), (Tally::new(75, 7_500), Tally::new(98, 9_800)));
        let nothing = whole(ledger(100, 0, 0), Tally::default());
        assert_eq!(nothing.due(Tally::default()), Tally::default());
        let all = Whole::new(&[ledger(100, 100, 0)], Counted::Once, None);
        assert_eq!(all.due(Tally::new(7, 700)), Tally::new(7, 700));
    }

    #[test]
    fn a_packet_that_feeds_another_interface_is_left_out() {
        let mut twice = ledger(100, 100, 0);
        twice.counters.repeated = Tally::new(40, 4_000);
        let most = |counted| Whole::new(&[twice], counted, None).most.packets;
        assert_eq!([Counted::Once, Counted::Everywhere].map(most), [60, 100]);
    }

    #[test]
    fn parts_never_exceed_their_whole_and_keep_their_bounds() {
        let mut state = 7_u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit.max(1)
        };
        for _ in 0..2_000 {
            let mut estimate = || {
                let lower = random(50);
                let upper = lower + random(100);
                (lower + random(upper - lower + 1), lower, upper)
            };
            let (value, lower, upper) = estimate();
            let mut total = row(3 * value, 3 * lower, 3 * upper);
            let before: Vec<_> =
                (0..5).map(|_| estimate()).map(|(value, lower, upper)| row(value, lower, upper)).collect();
            for is_disjoint in [true, false] {
                let mut rows = before.clone();
                reconcile(rows.iter_mut(), &mut total, is_disjoint);
                let parts = |of: fn(Estimate) -> u64| rows.iter().map(|row| of(row.packets)).collect::<Vec<_>>();
                for (old, new) in before.iter().zip(&rows) {
                    let Estimate { value, lower, upper } = new.packets;
                    assert!(lower <= value && value <= upper && upper <= total.packets.upper, "{new:?} of {total:?}");
                    assert!(lower <= old.packets.lower && value <= total.packets.value, "{new:?} of {total:?}");
                }
                let (values, lowers) = (parts(|part| part.value), parts(|part| part.lower));
                if is_disjoint {
                    assert!(values.iter().sum::<u64>() <= total.packets.value, "{rows:?} of {total:?}");
                    assert!(lowers.iter().sum::<u64>() <= total.packets.lower, "{rows:?} of {total:?}");
                }
                assert!(lowers.iter().all(|lower| *lower <= total.packets.lower));
            }
        }
    }

    #[test]
    fn rows_that_agree_stay_as_they_are() {
        let (mut rows, mut total) = ([row(60, 50, 70), row(30, 20, 40)], row(100, 90, 120));
        let before = (rows, total);
        reconcile(rows.iter_mut(), &mut total, true);
        assert_eq!((rows, total), before);
    }
}
