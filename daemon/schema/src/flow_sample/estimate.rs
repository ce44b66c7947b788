//! What samples say of a part of the traffic, with bounds.
//!
//! A part has certain records, whose sum is exact, and others. Of these, each is in the sample with the probability
//! weight / threshold, and then adds to the estimate of a metric at most threshold (in bytes; for packets, threshold /
//! [`BYTES_PER_PACKET`]). So in these units the estimate is a sum of independent numbers from 0 to 1, and Chernoff's
//! bound of a Poisson variable holds for it, whatever the records are: if the true sum is m, the estimate is n or
//! further out with a probability of at most exp(-D), where D = n ln(n / m) - n + m. (Thorup: "Confidence intervals
//! for priority sampling", SIGMETRICS 2006, which treats the threshold as given, too.) The bounds of a part are those
//! true sums for which its estimate is not too far out. All other records are a part, too, and the sum of both is known
//! exactly: where the rest is small, its bounds are the closer ones.
//!
//! A list shows the groups that chance has favoured. So the bounds of its rows hold for *all* groups together, listed
//! or not, however many there are: the chance of a failure is divided among them by their true sizes (Bonferroni's
//! inequality, with weights). A group of size m may then fail with the probability share * m / all. Such a bound says
//! nothing of a group with a single record in the sample. But that record is there, so the group has it at least.
//!
//! Samples whose thresholds differ much, such as those of a flood and of the hours around it, have bounds of their own,
//! which are added up (`Class`).
//!
//! If sampling left packets out in the kernel, the same bound holds once more: a packet that was taken stands for at
//! most the rate times the largest packet.

use weir_common::{ledger::Tally, sketch::Metric};
use weir_config::priority::{BYTES_PER_PACKET, weight};

use super::{FlowSample, SampleError, SampledRecord, sum};
use crate::Estimate;

/// The probability that all bounds of an answer hold together.
pub const CONFIDENCE: f64 = 0.999;
/// The largest ratio of the thresholds of a class.
const RATIO: f64 = 4.0;
const METRICS: [Metric; 2] = [Metric::Packets, Metric::Bytes];
/// Packets and bytes, below and above.
const SIDES: f64 = 4.0;
/// Rounding must not make bounds narrower.
const ROUNDING: f64 = 1e-9;

/// Samples with thresholds of about the same size.
#[derive(Clone, Debug)]
struct Class {
    exponent: i32,
    /// The largest of their thresholds.
    threshold: f64,
    /// The true sums of their records that are not certain.
    total: Tally,
    /// The estimates of these sums.
    all: [f64; 2],
}

/// What samples say of a part of the traffic.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// The sum of certain records.
    certain: Tally,
    /// The sum of its other records in the sample. It has these at least.
    seen: Tally,
    /// The estimates of packets and bytes of records that are not certain, by class.
    others: Vec<[f64; 2]>,
}

impl Share {
    /// The estimated packets and bytes, by which shares are put in an order.
    pub fn estimate(&self) -> [f64; 2] {
        [0, 1].map(|nth| {
            let certain = METRICS[nth].of(self.certain) as f64;
            certain + self.others.iter().map(|others| others[nth]).sum::<f64>()
        })
    }

    /// Adds a record of the sample that [`Estimator::add`] has counted in this class.
    pub fn add(&mut self, sample: &FlowSample, class: Option<usize>, record: &SampledRecord) {
        let Some(class) = class.filter(|_| !sample.is_certain(record)) else {
            self.certain = sum(self.certain, record.tally);
            return;
        };
        self.seen = sum(self.seen, record.tally);
        if self.others.len() <= class {
            self.others.resize(class + 1, [0.0; 2]);
        }
        for (others, of) in self.others[class].iter_mut().zip(estimates(sample.threshold, record.tally)) {
            *others += of;
        }
    }
}

/// The packets and bytes for which a record stands that is not certain.
fn estimates(threshold: f64, tally: Tally) -> [f64; 2] {
    let part = threshold / weight(tally).max(1) as f64;
    METRICS.map(|metric| metric.of(tally) as f64 * part)
}

/// The most that a record adds to an estimate of packets and of bytes.
fn units(threshold: f64) -> [f64; 2] {
    [threshold / BYTES_PER_PACKET as f64, threshold]
}

/// How the chance that bounds fail is divided.
#[derive(Clone, Copy)]
enum Failure {
    /// Each of these bounds may fail with e to the minus this.
    Each(f64),
    /// All bounds of all groups together may fail with e to the minus this: each in proportion to its size.
    Together(f64),
}

impl Failure {
    /// How far out an estimate may be if the true sum is `m`, of `all`.
    fn limit(self, m: f64, all: f64) -> f64 {
        match self {
            Self::Each(limit) => limit,
            Self::Together(limit) => limit + (all / m).ln().max(0.0),
        }
    }

    /// The least true sum whose estimate may be `n`. `all` is the sum of all groups.
    fn least(self, n: f64, all: f64) -> f64 {
        let is_out = |m: f64| excess(n, m) > self.limit(m, all);
        match self {
            Self::Each(_) => Self::between(0.0, n, is_out),
            // The chance that such an estimate is that far out has its minimum, per size of the group, at n - 1.
            Self::Together(_) if n > 1.0 => Self::between(0.0, n - 1.0, is_out),
            Self::Together(_) => 0.0,
        }
    }

    /// The largest true sum whose estimate may be `n`.
    fn most(self, n: f64, all: f64) -> f64 {
        let is_out = |m: f64| excess(n, m) > self.limit(m, all);
        let mut out = n.max(1.0) * 2.0;
        while !is_out(out) && out < f64::MAX / 4.0 {
            out *= 2.0;
        }
        Self::between(out, n, is_out)
    }

    /// The last number that is out, between one that is and one that is not.
    fn between(mut out: f64, mut within: f64, is_out: impl Fn(f64) -> bool) -> f64 {
        /// How often the interval is halved.
        const STEPS: usize = 50;
        for _ in 0..STEPS {
            let middle = f64::midpoint(out, within);
            if is_out(middle) { out = middle } else { within = middle }
        }
        out
    }
}

/// How far out the estimate `n` is if the true sum is `m`: minus the logarithm of Chernoff's bound.
fn excess(n: f64, m: f64) -> f64 {
    if n <= 0.0 {
        return m;
    }
    if m <= 0.0 {
        return f64::INFINITY;
    }
    n * (n / m).ln() - n + m
}

/// Adds up samples, and says what they have of shares of the traffic.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    classes: Vec<Class>,
    /// All records.
    total: Tally,
    certain: Tally,
    error: SampleError,
}

impl Estimator {
    /// Counts a sample. Returns its class; `None` if all of its records are certain. Every record of the part that is
    /// asked for is to be added to its [`Share`].
    pub fn add(&mut self, sample: &FlowSample) -> Option<usize> {
        self.total = sum(self.total, sample.total);
        self.error = self.error.and(sample.error);
        let (mut certain, mut all, mut has_others) = (Tally::default(), [0.0; 2], false);
        for record in &sample.records {
            if sample.is_certain(record) {
                certain = sum(certain, record.tally);
                continue;
            }
            has_others = true;
            for (all, of) in all.iter_mut().zip(estimates(sample.threshold, record.tally)) {
                *all += of;
            }
        }
        self.certain = sum(self.certain, certain);
        let total = Metric::each(|metric| metric.of(sample.total).saturating_sub(metric.of(certain)));
        if !has_others && total.is_zero() {
            return None;
        }
        let exponent = sample.threshold.max(1.0).log(RATIO).floor() as i32;
        let place = self.classes.iter().position(|class| class.exponent == exponent);
        let place = place.unwrap_or_else(|| {
            self.classes.push(Class { exponent, threshold: 0.0, total: Tally::default(), all: [0.0; 2] });
            self.classes.len() - 1
        });
        let class = &mut self.classes[place];
        class.threshold = class.threshold.max(sample.threshold);
        class.total = sum(class.total, total);
        for (all, more) in class.all.iter_mut().zip(all) {
            *all += more;
        }
        Some(place)
    }

    /// The probability that all bounds hold together.
    pub const fn confidence(&self) -> f64 {
        if self.classes.is_empty() && self.error.rate == 1 { 1.0 } else { CONFIDENCE }
    }

    /// The packets and bytes of everything.
    pub fn all(&self) -> [Estimate; 2] {
        METRICS.map(|metric| {
            let total = metric.of(self.total);
            let exact = Estimate { value: total, lower: total, upper: total, sampled: None };
            self.of_packets(exact, metric, true, self.share_of_failure())
        })
    }

    /// The packets and bytes of the part that a question is about. It may be divided into groups with bounds of their
    /// own.
    pub fn part(&self, share: &Share) -> [Estimate; 2] {
        self.bounds(share, true)
    }

    /// The packets and bytes of a group of that part. The bounds of all groups hold together.
    pub fn group(&self, share: &Share) -> [Estimate; 2] {
        self.bounds(share, false)
    }

    /// The chance that the bounds of a part, or those of all of its groups, fail because of this sample; and if there
    /// are samples of packets, because of those.
    fn share_of_failure(&self) -> f64 {
        (1.0 - CONFIDENCE) / if self.error.rate > 1 { 4.0 } else { 2.0 }
    }

    fn bounds(&self, share: &Share, is_part: bool) -> [Estimate; 2] {
        let chance = self.share_of_failure();
        [0, 1].map(|nth| {
            let scaled = self.scaled(share, nth, is_part, chance);
            self.of_packets(scaled, METRICS[nth], is_part, chance)
        })
    }

    /// The sum of a share's records, as if sampling in the kernel had left nothing out.
    fn scaled(&self, share: &Share, nth: usize, is_part: bool, chance: f64) -> Estimate {
        let classes = self.classes.len().max(1) as f64;
        let metric = METRICS[nth];
        // For a part, the bounds of the rest may be the closer ones.
        let failure = match is_part {
            true => Failure::Each((2.0 * SIDES * classes / chance).ln()),
            false => Failure::Together((SIDES * classes / chance).ln()),
        };
        let (mut value, mut lower, mut upper) = (0.0, 0.0, 0.0);
        for (place, class) in self.classes.iter().enumerate() {
            let (unit, total) = (units(class.threshold)[nth], metric.of(class.total) as f64);
            let own = share.others.get(place).map_or(0.0, |others| others[nth]);
            let (mut least, mut most) = (failure.least(own / unit, total / unit) * unit, total);
            most = most.min(failure.most(own / unit, total / unit) * unit);
            if is_part {
                let rest = (class.all[nth] - own).max(0.0);
                least = least.max(total - failure.most(rest / unit, total / unit) * unit);
                most = most.min(total - failure.least(rest / unit, total / unit) * unit);
            }
            lower += least.min(total).max(0.0);
            upper += most;
            // All parts together are what there was.
            value += if class.all[nth] > 0.0 { total * (own / class.all[nth]) } else { 0.0 };
        }
        let (certain, seen) = (metric.of(share.certain), metric.of(share.seen));
        let lower = certain.saturating_add(((lower * (1.0 - ROUNDING)).floor() as u64).max(seen));
        let upper = certain.saturating_add((upper * (1.0 + ROUNDING)).ceil() as u64).min(metric.of(self.total));
        let value = certain.saturating_add(value.round() as u64);
        let upper = upper.max(lower);
        Estimate { value: value.clamp(lower, upper), lower, upper, sampled: None }
    }

    /// The packets that passed, if the sum of their records is between these bounds.
    fn of_packets(&self, scaled: Estimate, metric: Metric, is_part: bool, chance: f64) -> Estimate {
        let SampleError { lost, drawn, most, rate, largest } = self.error;
        let [lost, drawn, most] = [lost, drawn, most].map(|tally| metric.of(tally));
        let Estimate { mut value, mut lower, mut upper, .. } = scaled;
        upper = upper.saturating_add(drawn);
        if rate > 1 {
            let unit = f64::from(rate) * metric.of(largest).max(1) as f64;
            let limit = (SIDES / chance).ln();
            let failure = if is_part { Failure::Each(limit) } else { Failure::Together(limit) };
            let all = most.max(metric.of(self.total)) as f64 / unit;
            let taken = (lower as f64 / f64::from(rate)).floor() as u64;
            lower = ((failure.least(lower as f64 / unit, all) * unit * (1.0 - ROUNDING)).floor() as u64).max(taken);
            upper = (failure.most(upper as f64 / unit, all) * unit * (1.0 + ROUNDING)).ceil() as u64;
            let total = metric.of(self.total).max(1) as f64;
            value = (value as f64 * (most as f64 / total)).round() as u64;
        }
        upper = upper.saturating_add(lost).min(most);
        lower = lower.min(upper);
        Estimate { value: value.clamp(lower, upper), lower, upper, sampled: None }
    }
}
