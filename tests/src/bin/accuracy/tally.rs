//! The results of all seeds, and whether they show a fault.

use std::collections::BTreeMap;

use weir_tests::{chance, oracle::Dimension};

use crate::scenario::{Geometry, Rate};

/// The confidence that reports state.
pub const STATED: f64 = 0.999;
/// The confidences at which bounds are judged. At the lower ones, some bounds must fail.
pub const CONFIDENCES: [f64; 3] = [STATED, 0.9, 0.5];

/// The subject of a statement. A statement fails if any of its bounds fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    /// Both lists of a dimension.
    List(&'static str),
    /// A distinct count.
    Unique(&'static str),
    /// The number of new flows.
    New,
    /// A view with bytes and packets, in both orders.
    Sums(&'static str),
    /// Distinct counts by key.
    Spread(&'static str),
}

impl About {
    /// Returns true if the statement is certain when every packet is taken.
    const fn is_sum(self) -> bool {
        matches!(self, Self::List(_) | Self::Sums(_))
    }
}

/// How often statements failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    pub failed: u64,
    pub trials: u64,
}

impl Failures {
    pub fn add(&mut self, failed: bool) {
        self.failed += u64::from(failed);
        self.trials += 1;
    }

    pub fn merge(&mut self, other: Self) {
        self.failed += other.failed;
        self.trials += other.trials;
    }
}

/// A mean, kept as a sum and a count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    pub fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    /// The mean; NaN if there are no values.
    pub fn value(self) -> f64 {
        self.sum / self.count as f64
    }
}

/// The results of all seeds of a cell. Statements are keyed by their confidence in ten-thousandths.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub statements: BTreeMap<(u32, About), Failures>,
    /// The distance between the bounds of the ten largest flows by bytes, as a share of the truth.
    pub width: Mean,
    /// The distance of their values from the truth, as a share of it.
    pub error: Mean,
    /// The share of listed flows that belong into the list, and the share of flows belonging there that are listed.
    pub precision: Mean,
    pub recall: Mean,
    pub memory: usize,
}

impl Cell {
    pub fn judge(&mut self, confidence: f64, about: About, failed: bool) {
        self.statements.entry((per_10_000(confidence), about)).or_default().add(failed);
    }

    fn merge(&mut self, other: &Self) {
        for (statement, failures) in &other.statements {
            self.statements.entry(*statement).or_default().merge(*failures);
        }
        self.width.merge(other.width);
        self.error.merge(other.error);
        self.precision.merge(other.precision);
        self.recall.merge(other.recall);
        self.memory = other.memory;
    }
}

/// How often a list had the true ten, over all seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tens {
    /// Lists that lacked one or more of them.
    pub incomplete: Failures,
    /// How many of them were missing.
    pub missing: Failures,
}

impl Tens {
    /// The share of windows in which the lists of floods and scans must have all ten. For the top lists it is 999 of
    /// 1,000.
    const FOUND: f64 = 0.95;
    /// Rows of a list.
    const ROWS: u64 = 10;

    fn merge(&mut self, other: Self) {
        self.incomplete.merge(other.incomplete);
        self.missing.merge(other.missing);
    }
}

/// A confidence as a key.
pub fn per_10_000(confidence: f64) -> u32 {
    (confidence * 10_000.0).round() as u32
}

/// The key of a cell: the scenario, the size of sketches, the sampling rate.
pub type CellKey = (&'static str, Geometry, Rate);

/// The results of all cells.
#[derive(Clone, Debug, Default)]
pub struct Tallies {
    pub cells: BTreeMap<CellKey, Cell>,
    /// Failures by family of keys, number of keys, and confidence.
    pub distinct: BTreeMap<(&'static str, u64, u32), Failures>,
    /// The squared relative error, by family of keys and number of keys.
    pub squares: BTreeMap<(&'static str, u64), Mean>,
    /// By list: the largest of a million flows, and those of a million keys that touch most items.
    pub tens: BTreeMap<&'static str, Tens>,
    /// Lists of long times: by traffic, rows kept of a window, and minutes.
    pub spans: BTreeMap<(&'static str, usize, i64), Span>,
}

/// How close the lists of a long time are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Lists with a bound that failed.
    pub failures: Failures,
    /// The error of the twentieth row, and the distance between its bounds, as shares of the truth.
    pub error: Mean,
    pub width: Mean,
}

impl Tallies {
    /// The cell with this key, whose sketches take `memory` bytes.
    pub fn cell(&mut self, place: CellKey, memory: usize) -> &mut Cell {
        let cell = self.cells.entry(place).or_default();
        cell.memory = memory;
        cell
    }

    /// Notes that a list had `found` of the true ten.
    pub fn ten(&mut self, list: &'static str, found: u64) {
        let missing = Failures { failed: Tens::ROWS - found.min(Tens::ROWS), trials: Tens::ROWS };
        let incomplete = Failures { failed: u64::from(missing.failed > 0), trials: 1 };
        self.tens.entry(list).or_default().merge(Tens { incomplete, missing });
    }

    /// Notes the error and the width of the twentieth row of a long time, and whether a bound failed.
    pub fn span(&mut self, place: (&'static str, usize, i64), (error, width): (f64, f64), has_failed: bool) {
        let Span { failures, error: errors, width: widths } = self.spans.entry(place).or_default();
        failures.add(has_failed);
        errors.add(error);
        widths.add(width);
    }

    pub fn merge(&mut self, other: Self) {
        for (place, Span { failures, error, width }) in other.spans {
            let known = self.spans.entry(place).or_default();
            known.failures.merge(failures);
            known.error.merge(error);
            known.width.merge(width);
        }
        for (list, tens) in other.tens {
            self.tens.entry(list).or_default().merge(tens);
        }
        for (place, cell) in other.cells {
            self.cells.entry(place).or_default().merge(&cell);
        }
        for (place, failures) in other.distinct {
            self.distinct.entry(place).or_default().merge(failures);
        }
        for (place, mean) in other.squares {
            self.squares.entry(place).or_default().merge(mean);
        }
    }

    /// The lists of all cells with a steady sampling rate, at a confidence of 0.5. (If the rate changed, bounds are
    /// wider than necessary.)
    fn sampled_lists(&self) -> Failures {
        let mut all = Failures::default();
        for ((_, _, rate), cell) in &self.cells {
            for ((confidence, about), failures) in &cell.statements {
                let is_sampled = matches!(rate, Rate::OneIn(2..));
                if is_sampled && *confidence == per_10_000(0.5) && matches!(about, About::List(_)) {
                    all.merge(*failures);
                }
            }
        }
        all
    }

    /// Every statement with its name, its confidence and, if it must sometimes fail at that confidence, the minimum
    /// share of failures.
    fn statements(&self) -> impl Iterator<Item = (String, u32, Failures, Option<f64>)> {
        /// Fewer distinct keys than registers are counted more exactly than the bounds state.
        const MANY: u64 = 65_536;
        let of_cells = self.cells.iter().flat_map(|((scenario, geometry, rate), cell)| {
            cell.statements.iter().map(move |((confidence, about), failures)| {
                let name = format!("{scenario}, {}, 1 in {}, {about:?}", geometry.name(), rate.name());
                // Without sampling, lists leave nothing to chance.
                let certain = rate.is_every_packet() && about.is_sum();
                (name, if certain { 10_000 } else { *confidence }, *failures, None)
            })
        });
        let of_counts = self.distinct.iter().map(|((family, count, confidence), failures)| {
            let must_fail = (*count >= MANY && *confidence == per_10_000(0.5)).then_some(0.25);
            (format!("{count} {family}"), *confidence, *failures, must_fail)
        });
        // Bounds of lists hold for all keys, listed or not, so they fail less often than stated.
        let lists = ("all sampled lists".to_owned(), per_10_000(0.5), self.sampled_lists(), Some(0.01));
        let of_tens = self.tens.iter().map(|(list, Tens { incomplete, missing: _ })| {
            let is_top = Dimension::ALL.iter().any(|dimension| dimension.name() == *list);
            let (of, share) = if is_top { ("flows", STATED) } else { ("keys", Tens::FOUND) };
            (format!("{list}, the true ten of a million {of}"), per_10_000(share), *incomplete, None)
        });
        let together = self.together().into_iter().map(|((confidence, about), failures)| {
            (format!("all traffic that is left to chance, {about:?}"), confidence, failures, None)
        });
        let lists = [lists].into_iter().filter(|(_, _, lists, _)| lists.trials > 0);
        // The windows have exact lists, so nothing is left to chance.
        let of_spans = self.spans.iter().map(|((traffic, rows, minutes), Span { failures, .. })| {
            (format!("{minutes} minutes, {traffic}, {rows} rows"), 10_000, *failures, None)
        });
        of_cells.chain(together).chain(of_counts).chain(of_tens).chain(lists).chain(of_spans)
    }

    /// Each statement over all cells in which chance decides: a fault that is rare everywhere shows here first.
    fn together(&self) -> BTreeMap<(u32, About), Failures> {
        let mut all = BTreeMap::<_, Failures>::new();
        for ((_, _, rate), cell) in &self.cells {
            for ((confidence, about), failures) in &cell.statements {
                if !(rate.is_every_packet() && about.is_sum()) {
                    all.entry((*confidence, *about)).or_default().merge(*failures);
                }
            }
        }
        all
    }

    /// How many statements are judged.
    pub fn judged(&self) -> usize {
        self.statements().count()
    }

    /// Results that chance does not explain. If nothing is wrong, any of them occurs in one of a million runs.
    pub fn alarms(&self) -> Vec<String> {
        // Bonferroni correction: each statement gets its part of the probability, half of it for each side.
        let each = chance::FALSE_ALARM / (2 * self.judged().max(1)) as f64;
        let mut alarms = Vec::new();
        for (name, confidence, Failures { failed, trials }, must_fail) in self.statements() {
            let allowed = 1.0 - f64::from(confidence) / 10_000.0;
            if chance::at_least(failed, trials, allowed) < each {
                alarms.push(format!("{name}: {failed} of {trials} failed at {}", f64::from(confidence) / 10_000.0));
            }
            if let Some(least) = must_fail
                && chance::at_least(trials - failed, trials, 1.0 - least) < each
            {
                alarms.push(format!("{name}: only {failed} of {trials} failed at 0.5: the bounds say little"));
            }
        }
        alarms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tallies(failed: u64, trials: u64, confidence: f64) -> Tallies {
        let mut tallies = Tallies::default();
        tallies.distinct.insert(("keys", 100_000, per_10_000(confidence)), Failures { failed, trials });
        tallies
    }

    #[test]
    fn bounds_that_fail_too_often_or_never_are_noticed_and_others_are_not() {
        assert!(tallies(10, 10_000, STATED).alarms().is_empty());
        assert_eq!(tallies(40, 10_000, STATED).alarms().len(), 1);
        assert!(tallies(500, 1_000, 0.5).alarms().is_empty());
        assert_eq!(tallies(700, 1_000, 0.5).alarms().len(), 1);
        assert_eq!(tallies(100, 1_000, 0.5).alarms().len(), 1, "too wide");
    }

    #[test]
    fn a_fault_that_is_rare_everywhere_is_noticed_over_all_cells() {
        let mut tallies = Tallies::default();
        let about = About::Spread("scans");
        for (nth, traffic) in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].into_iter().enumerate() {
            let cell = tallies.cell((traffic, Geometry::Default, Rate::OneIn(1)), 1);
            for seed in 0..20 {
                cell.judge(STATED, about, nth < 8 && seed == 0);
            }
        }
        let alarms = tallies.alarms();
        assert!(alarms.len() == 1 && alarms[0].contains("all traffic"), "{alarms:?}");
    }

    #[test]
    fn lists_that_lack_true_ones_are_noticed() {
        let mut tallies = Tallies::default();
        for seed in 0..1_000 {
            tallies.ten("flows", if seed == 0 { 9 } else { 10 });
        }
        for seed in 0..100 {
            tallies.ten("ports_per_source", if seed % 25 == 0 { 8 } else { 10 });
        }
        assert_eq!(tallies.alarms(), Vec::<String>::new());
        for seed in 0..100 {
            tallies.ten("flows", if seed % 10 == 0 { 9 } else { 10 });
        }
        for seed in 0..100 {
            tallies.ten("ports_per_source", if seed % 2 == 0 { 9 } else { 10 });
        }
        assert_eq!(tallies.alarms().len(), 2);
    }

    #[test]
    fn lists_without_sampling_may_never_fail() {
        let mut tallies = Tallies::default();
        tallies.cell(("traffic", Geometry::Default, Rate::OneIn(1)), 1).judge(STATED, About::List("flows"), false);
        assert!(tallies.alarms().is_empty());
        tallies.cell(("traffic", Geometry::Default, Rate::OneIn(1)), 1).judge(STATED, About::List("flows"), true);
        assert_eq!(tallies.alarms().len(), 1);
    }
}
