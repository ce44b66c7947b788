//! The verdict: compares reports with the truth, and lists each deviation in a line of its own.
//!
//! Each line begins with the place in the report, written as a path for `jq`.

pub(super) mod lists;
mod sums;

use std::collections::HashSet;

use serde_json::Value;
use weir_common::ledger::Tally;

use super::{By, Dimension, Oracle};
use crate::chance;

/// The largest relative error of a distinct count. This makes counts below 50 exact.
const UNIQUE_ERROR_MAX: f64 = 0.02;
/// The largest relative error of a quantile of packet sizes.
const QUANTILE_ERROR_MAX: f64 = 0.02;

impl Oracle {
    /// Compares one report with everything that is known about its window.
    ///
    /// Ledgers, totals, and the number, minimum and maximum of packet sizes must be exact. Every truth must lie within
    /// its reported bounds. Distinct counts must be right to 2 %. The first ten entries of each top list must be the
    /// true ones; equal entries may change places.
    ///
    /// If the ledger declares packets lost, a count may be too small by that many packets, and two keys may change
    /// places if they are no further apart. Bounds must still hold. If packets were sampled out, the order of lists and
    /// the counts of protocols depend on chance and are not checked; ledgers and all bounds still are.
    ///
    /// # Errors
    ///
    /// All deviations.
    pub fn check_report(&self, report: &Value) -> Result<(), Vec<String>> {
        let mut verdict = Verdict::default();
        let missing = self.check_sums(std::slice::from_ref(report), &mut verdict);
        self.check_unique(report, missing, &mut verdict);
        self.check_new_flows(report, &mut verdict);
        self.check_quantiles(report, &mut verdict);
        for (place, by) in [("top", By::Bytes), ("top_by_packets", By::Packets)] {
            self.check_top(&report[place], place, by, missing, &mut verdict);
            let is_complete = missing.lost.is_zero() && missing.sampled_out.is_zero();
            self.check_prefixes(&report[place], place, by, is_complete, &mut verdict);
            self.check_hosts(&report[place], place, &mut verdict);
        }
        verdict.result()
    }

    /// Compares the sums over reports of consecutive windows with the truth about all packets. Also checks that each
    /// ledger adds up.
    ///
    /// This is for live traffic, where it is not known exactly which packet fell into which window.
    ///
    /// # Errors
    ///
    /// All deviations.
    pub fn check_reports(&self, reports: &[Value]) -> Result<(), Vec<String>> {
        let mut verdict = Verdict::default();
        self.check_sums(reports, &mut verdict);
        let ids: HashSet<_> = reports.iter().map(|report| report["id"].to_string()).collect();
        verdict.equal(".id: different ones", reports.len() as u64, ids.len() as u64);
        for pair in reports.windows(2) {
            let [earlier, later] = [&pair[0], &pair[1]].map(|report| verdict.number(report, "/observer/seq"));
            verdict.equal(".observer.seq", earlier + 1, later);
        }
        verdict.result()
    }

    fn check_unique(&self, report: &Value, missing: Missing, verdict: &mut Verdict) {
        for (name, dimension) in
            [("src_ip", Dimension::Sources), ("dst_ip", Dimension::Destinations), ("flows", Dimension::Flows)]
        {
            let place = format!(".unique.{name}");
            let unique = &report["unique"][name];
            let truth = self.distinct(dimension);
            let Some(estimate) = verdict.bounds(unique, &place, truth) else { continue };
            // A packet that is missing may have been the only one of its flow.
            let least = truth.saturating_sub(missing.lost.packets);
            let close = least as f64 * (1.0 - UNIQUE_ERROR_MAX)..=truth as f64 * (1.0 + UNIQUE_ERROR_MAX);
            if missing.sampled_out.is_zero() && !close.contains(&(estimate.value as f64)) {
                verdict.deviates(
                    &place,
                    &format!(
                        "{} is more than 2 % away from {truth}, of which at least {least} are known",
                        estimate.value
                    ),
                );
            }
        }
    }

    fn check_new_flows(&self, report: &Value, verdict: &mut Verdict) {
        verdict.bounds(&report["new_flows"], ".new_flows", self.new_flows());
    }

    fn check_quantiles(&self, report: &Value, verdict: &mut Verdict) {
        let packets = self.sent().packets;
        // Without packets there are no quantiles.
        if packets == 0 {
            return;
        }
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let place = format!(".histograms.packet_size_bytes.{name}");
            let value = verdict.number(report, &format!("/histograms/packet_size_bytes/{name}"));
            // Rounding the rank in another way gives the neighbouring packet.
            let nth = (share * packets as f64) as u64;
            let [low, high] = [nth.saturating_sub(1), nth + 2].map(|nth| self.size_of_nth(nth).unwrap_or_default());
            let (least, most) = (low as f64 * (1.0 - QUANTILE_ERROR_MAX), high as f64 * (1.0 + QUANTILE_ERROR_MAX));
            if !(least..=most).contains(&(value as f64)) {
                verdict.deviates(&place, &format!("{value} is more than 2 % away from {low} to {high}"));
            }
        }
    }
}

/// Packets and bytes that the ledgers declare as missing from the records.
#[derive(Clone, Copy)]
struct Missing {
    lost: Tally,
    sampled_out: Tally,
}

impl Missing {
    /// How far two keys may be apart and still change places in a list: 0 if nothing is missing. `None` if the order
    /// depends on chance.
    fn slack(self, by: By) -> Option<u64> {
        self.sampled_out.is_zero().then(|| by.of(self.lost))
    }
}

/// An estimate with its bounds; a plain number is exact.
#[derive(Clone, Copy, Default)]
pub(super) struct Estimate {
    pub(super) value: u64,
    lower: u64,
    upper: u64,
}

/// The factor that widens bounds that fail with this probability to bounds that fail once in a million, if the error is
/// distributed normally.
fn stretch(failure: f64) -> f64 {
    (chance::deviations(chance::FALSE_ALARM) / chance::deviations(failure)).max(1.0)
}

impl Estimate {
    pub(super) const fn is_exact(self) -> bool {
        self.lower == self.upper
    }

    pub(super) fn holds(self, truth: u64) -> bool {
        (self.lower..=self.upper).contains(&truth)
    }

    /// The same with bounds this many times as far from the value.
    fn stretched(self, times: f64) -> Self {
        let Self { value, lower, upper } = self;
        let below = (value.saturating_sub(lower) as f64 * times).ceil() as u64;
        let above = (upper.saturating_sub(value) as f64 * times).ceil() as u64;
        Self { value, lower: value.saturating_sub(below), upper: value.saturating_add(above) }
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} [{}, {}]", self.value, self.lower, self.upper)
    }
}

/// The deviations so far.
#[derive(Default)]
pub(super) struct Verdict {
    deviations: Vec<String>,
}

impl Verdict {
    pub(super) fn result(self) -> Result<(), Vec<String>> {
        if self.deviations.is_empty() { Ok(()) } else { Err(self.deviations) }
    }

    pub(super) fn deviates(&mut self, place: &str, how: &str) {
        self.deviations.push(format!("{place}: {how}"));
    }

    pub(super) fn equal(&mut self, place: &str, truth: u64, reported: u64) {
        if truth != reported {
            let difference = i128::from(reported) - i128::from(truth);
            self.deviates(place, &format!("{reported} should be {truth} ({difference:+})"));
        }
    }

    /// Compares a count that may be below the truth by the number of missing packets.
    fn short_by(&mut self, place: &str, truth: u64, reported: u64, missing: u64) {
        let nearest = reported.clamp(truth.saturating_sub(missing), truth);
        self.equal(place, nearest, reported);
    }

    fn equal_tally(&mut self, place: &str, truth: Tally, reported: Tally) {
        self.equal(&format!("{place}, packets"), truth.packets, reported.packets);
        self.equal(&format!("{place}, bytes"), truth.bytes, reported.bytes);
    }

    /// The number at a JSON pointer; 0, and a deviation, if there is none.
    fn number(&mut self, value: &Value, pointer: &str) -> u64 {
        let number = value.pointer(pointer).and_then(Value::as_u64);
        number.unwrap_or_else(|| {
            self.deviates(&pointer.replace('/', "."), "is not a number from 0 up");
            0
        })
    }

    pub(super) fn estimate(&mut self, value: &Value, place: &str) -> Option<Estimate> {
        if let Some(value) = value.as_u64() {
            return Some(Estimate { value, lower: value, upper: value });
        }
        let [estimated, lower, upper] = ["value", "lower", "upper"].map(|name| value[name].as_u64());
        let (Some(estimated), Some(lower), Some(upper)) = (estimated, lower, upper) else {
            self.deviates(place, &format!("has no value, lower and upper: {value}"));
            return None;
        };
        if !(lower..=upper).contains(&estimated) {
            self.deviates(place, &format!("{estimated} is outside of its own bounds {lower} to {upper}"));
        }
        Some(Estimate { value: estimated, lower, upper })
    }

    /// Compares the bounds of an estimate with the truth.
    ///
    /// Bounds at a confidence of 99.9 % fail once in a thousand reports, so a test suite with hundreds of numbers would
    /// often fail by chance. Therefore bounds are widened as [`stretch`] says. It takes many draws to show that the
    /// bounds themselves hold as often as they say: see `replay/confidence.rs`.
    pub(super) fn bounds(&mut self, value: &Value, place: &str, truth: u64) -> Option<Estimate> {
        let estimate = self.estimate(value, place)?;
        let stretch = stretch(1.0 - value["confidence"].as_f64().unwrap_or(1.0));
        if !estimate.stretched(stretch).holds(truth) {
            self.deviates(place, &format!("{truth} is outside of {stretch:.2} times the bounds {estimate}"));
        }
        Some(estimate)
    }
}

#[cfg(test)]
mod tests;
