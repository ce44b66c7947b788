//! Runs that were not one after the other, so two senders have the same identity: a router was cloned with its state
//! or its machine-id, or one went on from an older state.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::{Arrivals, Before, Run};

/// Two runs may have windows of the same time for at most so many seconds: if a clock is set back between two runs, the
/// second one repeats some time of the first. Runs of which reports say that one follows the other may always.
pub const SAME_TIME_SECONDS_MAX: u64 = 300;
/// Of so many runs at the same time, all pairs are compared. Of more, the others are not.
const TOGETHER_MAX: usize = 8;

/// A run that cannot have been the next one of its observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The run of weir that is a twin.
    pub boot_id: String,
    /// The run from which this is known.
    pub other: String,
    /// How it is known.
    pub sign: Sign,
}

/// How it is known that a run was not the next one of its observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// The first report names a report of the other run as the last one, but the other run has later ones.
    OtherWentOn,
    /// The first reports of both name the same report as the last one.
    SamePrevious,
    /// Both have windows of the same time, for longer than clocks explain, and nothing says that one follows the other.
    SameTime,
}

impl Sign {
    /// The sign in words, after the run and before the other run.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherWentOn => "began before the end of",
            Self::SamePrevious => "goes on from the same report as",
            Self::SameTime => "ran at the same time as",
        }
    }
}

impl Arrivals {
    /// The runs that were not one after the other, by time, each once.
    pub fn twins(&self) -> Vec<Twin> {
        let order = self.in_order();
        let mut twins: HashMap<usize, Twin> = HashMap::new();
        let mut add = |nth: usize, other: usize, sign| {
            let [boot_id, other] = [nth, other].map(|nth| self.runs[nth].boot_id.clone());
            twins.entry(nth).or_insert(Twin { boot_id, other, sign });
        };
        let mut first_after: HashMap<(&str, u64), usize> = HashMap::new();
        for nth in order.iter().copied() {
            let Some((before, seq)) = self.runs[nth].named() else { continue };
            let went_on = self.find(before).filter(|before| self.runs[*before].last() > seq);
            let first = *first_after.entry((before, seq)).or_insert(nth);
            if let Some(before) = went_on {
                add(nth, before, Sign::OtherWentOn);
            } else if first != nth {
                add(nth, first, Sign::SamePrevious);
            }
        }
        for (nth, other) in self.at_the_same_time(&order) {
            add(nth, other, Sign::SameTime);
        }
        let known = order.iter().filter_map(|nth| twins.remove(nth).or_else(|| self.runs[*nth].twin.clone()));
        known.collect()
    }

    /// Keeps in mind which runs have twins, before something is forgotten.
    pub(super) fn keep_twins(&mut self) {
        for twin in self.twins() {
            if let Some(nth) = self.find(&twin.boot_id) {
                self.runs[nth].twin = Some(twin);
            }
        }
    }

    /// Runs with windows of the same time: the one that began later, and the other one.
    fn at_the_same_time(&self, order: &[usize]) -> Vec<(usize, usize)> {
        let began = |place: &usize| {
            let run = &self.runs[order[*place]];
            (run.times.first(), &run.boot_id)
        };
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for (pair, seconds) in self.common_seconds(order) {
            let (earlier, later) = if began(&pair.0) < began(&pair.1) { pair } else { (pair.1, pair.0) };
            let [later_run, earlier_run] = [later, earlier].map(|place| order[place]);
            let is_after = self.follows(later_run, earlier_run) || self.follows(earlier_run, later_run);
            if seconds > SAME_TIME_SECONDS_MAX && !is_after {
                pairs.push((later, earlier));
            }
        }
        pairs.sort_by_key(|(later, earlier)| (*later, began(earlier)));
        pairs.into_iter().map(|(later, earlier)| (order[later], order[earlier])).collect()
    }

    /// For how many seconds two runs both have windows, by their places in the order.
    fn common_seconds(&self, order: &[usize]) -> HashMap<(usize, usize), u64> {
        let mut changes: Vec<(u64, bool, usize)> = Vec::new();
        for (place, nth) in order.iter().enumerate() {
            for (first, last) in self.runs[*nth].times.iter() {
                changes.extend([(first, true, place), (last.saturating_add(1), false, place)]);
            }
        }
        changes.sort_unstable();
        let (mut seconds, mut running, mut since) = (HashMap::new(), BTreeSet::new(), 0);
        for (at, begins, place) in changes {
            let together: Vec<usize> = running.iter().copied().take(TOGETHER_MAX).collect();
            for (nth, one) in together.iter().enumerate() {
                for other in &together[..nth] {
                    *seconds.entry((*other, *one)).or_default() += at - since;
                }
            }
            since = at;
            if begins {
                running.insert(place)
            } else {
                running.remove(&place)
            };
        }
        seconds
    }

    /// Returns true if first reports say that a run came after another one, directly or over others.
    fn follows(&self, run: usize, other: usize) -> bool {
        let mut at = run;
        // Forged reports may name each other.
        for _ in 0..self.runs.len() {
            match self.runs[at].named().and_then(|(before, _)| self.find(before)) {
                Some(before) if before == other => return true,
                Some(before) => at = before,
                None => return false,
            }
        }
        false
    }

    /// Forgets the oldest times, so that at most so many ranges are known.
    pub(super) fn forget_times(&mut self, ranges: usize) {
        if self.runs.iter().map(|run| run.times.len()).sum::<usize>() <= ranges {
            return;
        }
        self.keep_twins();
        let mut order = self.in_order();
        order.reverse();
        let mut room = ranges;
        for nth in order {
            self.runs[nth].times.keep_last(room);
            room -= self.runs[nth].times.len();
        }
    }
}

impl Run {
    /// The run and the number of the report before its first one.
    fn named(&self) -> Option<(&str, u64)> {
        match &self.lowest {
            Some((_, Before::OtherRun(run, Some(seq)))) => Some((run, *seq)),
            _ => None,
        }
    }
}
