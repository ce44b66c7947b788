//! Alerts: applies the [rules](weir_config::rule) to each report.
//!
//! A report is judged in the form in which it will be sent: [`Alerts::judge`] reads the numbers, takes the bound at
//! which a rule certainly holds, and advances the [`state`] of each rule by a window. This module reads no clock and
//! sends nothing. [`notice`] notifies people.

pub mod notice;
pub mod number;
mod reading;
pub mod state;

use std::time::Duration;

use jiff::Timestamp;
use weir_config::{interface, rule::Rule};

use self::{
    number::Number,
    state::{Change, Since, State, Verdict},
};
use crate::{Alert, Evidence, Length, Questions, Report, series::point::Owner};

/// The most numbers that an alert shows: enough to act on, and few enough to keep the report small.
pub const EVIDENCE_MAX: usize = 10;
/// The shortest and the longest complete window, as parts of the interval.
const WHOLE: [f64; 2] = [0.9, 1.1];

/// All rules with their states.
#[derive(Debug, Default)]
pub struct Alerts {
    rules: Vec<RuleState>,
    /// The length of a window that is neither cut off nor delayed, in seconds.
    interval: f64,
    /// The lengths of windows that are judged like such a window, in seconds.
    whole: [f64; 2],
    /// The end of the last window, if the next one may follow immediately.
    last_end: Option<Timestamp>,
}

/// A rule with its state.
#[derive(Debug)]
struct RuleState {
    rule: Rule,
    /// The fingerprint of the question that its view or list answers.
    question: String,
    state: State<Timestamp>,
    /// True if the next configuration drops the rule.
    leaves: bool,
}

impl Alerts {
    /// These rules about the answers to these questions, all inactive. Windows have this length unless they are cut off
    /// or delayed.
    pub fn new(rules: &[Rule], questions: &Questions, interval: Duration) -> Self {
        let mut alerts = Self::default();
        alerts.change(rules, questions, interval);
        alerts
    }

    /// The same for windows of any length from a second on. Shorter windows have no rate.
    pub fn of_any_length(rules: &[Rule], questions: &Questions) -> Self {
        Self { whole: [1.0, f64::INFINITY], ..Self::new(rules, questions, Duration::MAX) }
    }

    /// The state of each rule that is not inactive, with the rule in words and its question.
    pub fn states(&self) -> Vec<(String, State<Timestamp>)> {
        let active = self.rules.iter().filter(|rule_state| rule_state.state != State::Inactive);
        active.map(|rule_state| (rule_state.text(), rule_state.state)).collect()
    }

    /// Restores the states from an earlier weir for unchanged rules about the same question. Earlier versions did not
    /// write the question.
    pub fn resume(&mut self, states: &[(String, State<Timestamp>)]) {
        for rule_state in &mut self.rules {
            let texts = [rule_state.text(), rule_state.rule.to_string()];
            if let Some((_, state)) = states.iter().find(|(known, _)| texts.contains(known)) {
                rule_state.state = *state;
            }
        }
    }

    /// The alerts for the report of the next window. Inactive rules have none.
    pub fn judge(&mut self, report: &Report) -> Vec<Alert> {
        let extent = self.extent(report.window.seconds);
        // If the clock was stepped, the next window starts at another time although there is no gap.
        let end = Some(report.window.end).filter(|_| report.window.clock_step_seconds.is_none());
        if std::mem::replace(&mut self.last_end, end).is_some_and(|end| end < report.window.start) {
            for rule_state in &mut self.rules {
                rule_state.state.pause();
            }
        }
        self.rules.iter_mut().filter_map(|rule_state| rule_state.judge(report, extent)).collect()
    }

    /// How a window of this length is judged.
    fn extent(&self, length: Length) -> Extent {
        let [shortest, longest] = self.whole;
        match length.seconds() {
            Some(seconds) if seconds > longest => {
                let parts = (seconds / self.interval).ceil();
                Extent::Long { parts, longer: parts * self.interval / seconds }
            }
            Some(seconds) if seconds >= shortest => Extent::Whole,
            _ => Extent::Short,
        }
    }

    /// Returns true if there are no rules.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Announces the next rules and questions. Rules that are not among them, or whose view will ask another question,
    /// judge only the next report, and their alerts end with it.
    pub fn part_from(&mut self, next: &[Rule], questions: &Questions) {
        for rule_state in &mut self.rules {
            rule_state.leaves = !next.iter().any(|rule| rule_state.is_of(rule, questions));
        }
    }

    /// Replaces the rules. Rules that stay, about the same question, keep their states.
    pub fn change(&mut self, rules: &[Rule], questions: &Questions, interval: Duration) {
        let before = std::mem::take(&mut self.rules);
        let stand = |rule: &Rule| {
            let known = before.iter().find(|rule_state| rule_state.is_of(rule, questions));
            let state = known.map_or(State::Inactive, |rule_state| rule_state.state);
            RuleState { rule: rule.clone(), question: question(rule, questions).to_owned(), state, leaves: false }
        };
        self.rules = rules.iter().map(stand).collect();
        self.interval = interval.as_secs_f64();
        self.whole = WHOLE.map(|part| self.interval * part);
    }
}

/// The length of a window, compared with the interval.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extent {
    /// It was cut off. No limit for a whole window applies.
    Short,
    /// It is as long as it should be.
    Whole,
    /// weir was delayed. So many whole windows cover it, and these are so many times as long together.
    Long {
        /// The number of such parts that cover the window.
        parts: f64,
        /// How many times, at least once.
        longer: f64,
    },
}

/// Returns the question of the view or list whose numbers a rule compares.
fn question<'q>(rule: &Rule, questions: &'q Questions) -> &'q str {
    let labels = &rule.when.subject.selector.labels;
    let name = labels.iter().find(|(label, _)| matches!(*label, "view" | "list")).map(|(_, name)| name);
    name.and_then(|name| questions.by_name.get(name)).unwrap_or(&questions.unique)
}

impl RuleState {
    /// Returns true if it is the state of this rule, about the same question.
    fn is_of(&self, rule: &Rule, questions: &Questions) -> bool {
        self.rule == *rule && self.question == question(rule, questions)
    }

    fn text(&self) -> String {
        format!("{} [question {}]", self.rule, self.question)
    }

    fn judge(&mut self, report: &Report, extent: Extent) -> Option<Alert> {
        let Self { rule, question: _, state, leaves } = self;
        let mut result = RuleResult::of(rule, report);
        let is_upward = rule.when.operator.is_upward();
        let has_all = is_upward || report.self_metrics.late_cpus.is_empty();
        let is_certain = match extent {
            Extent::Whole => has_all,
            Extent::Long { parts, longer } => is_upward && result.holds_in_a_part(rule, parts, longer),
            Extent::Short => false,
        };
        if !is_certain {
            result.verdict = Verdict::Silent;
        }
        let before = *state;
        let change = state.step(result.verdict, report.window.start, rule.windows);
        if !*leaves {
            return alert(rule, *state, change, &result);
        }
        // No alert begins any more, and ongoing alerts end.
        match (before, change, *state) {
            (State::Firing { .. }, Change::None, State::Firing { since, .. }) => {
                let ended = alert(rule, State::Inactive, Change::Ends(since), &result)?;
                Some(Alert { state: "withdrawn".to_owned(), ..ended })
            }
            (State::Firing { .. }, ..) => alert(rule, *state, change, &result),
            _ => None,
        }
    }
}

/// The result of a rule for a report.
struct RuleResult<'r> {
    verdict: Verdict,
    /// The most extreme numbers on the side of the limit, in the unit of the rule, the most extreme first.
    farthest: Vec<(Number, Owner<'r>)>,
    beyond: usize,
    between: usize,
}

impl<'r> RuleResult<'r> {
    fn of(rule: &Rule, report: &'r Report) -> Self {
        let Rule { when, interface: only, clear, .. } = rule;
        let mut result = Self { verdict: Verdict::Within, farthest: Vec::new(), beyond: 0, between: 0 };
        // Without a length there are no rates, and no verdict.
        let Some(seconds) = report.window.seconds.seconds() else { return result };
        let (operator, scale) = (when.operator, when.scale(seconds));
        // A larger value is more extreme.
        let far =
            |number: &Number| if operator.is_upward() { number.judged(operator) } else { -number.judged(operator) };
        reading::visit(&when.subject.selector, report, &mut |number, owner| {
            let is_meant =
                only.as_ref().is_none_or(|only| owner.name().is_some_and(|name| interface::fits(only, name)));
            if !is_meant {
                return;
            }
            let number = number.per(scale);
            if operator.holds(number.judged(operator), when.limit.number) {
                result.beyond += 1;
            } else if operator.holds(number.judged(operator), *clear) {
                result.between += 1;
            }
            let place = result.farthest.partition_point(|(earlier, _)| far(earlier) >= far(&number));
            if place < EVIDENCE_MAX {
                result.farthest.truncate(EVIDENCE_MAX - 1);
                result.farthest.insert(place, (number, owner));
            }
        });
        result.verdict = match result {
            Self { beyond: 1.., .. } => Verdict::Beyond,
            Self { between: 1.., .. } => Verdict::Between,
            _ => Verdict::Within,
        };
        result
    }

    /// Returns true if the largest number must have been beyond the limit in a window of the usual length, wherever in
    /// this longer one its packets came: `parts` such windows, which are together `longer` by this factor, cover it,
    /// and one of them has at least the mean.
    fn holds_in_a_part(&self, rule: &Rule, parts: f64, longer: f64) -> bool {
        let when = &rule.when;
        let parts = match when.limit.unit {
            Some(unit) if unit.per_second => longer,
            _ => parts,
        };
        let mean = self.farthest.first().map(|(largest, _)| largest.per(parts).judged(when.operator));
        mean.is_some_and(|mean| when.operator.holds(mean, when.limit.number))
    }

    /// The numbers that decided, and how many more there are. These are the numbers beyond the limit; if there are
    /// none, those beyond the limit for ending; otherwise the number that is nearest to that limit.
    fn evidence(&self, is_scaled: bool) -> (Vec<Evidence>, u64) {
        let all = if self.beyond > 0 { self.beyond } else { self.between.max(1) };
        let shown = self.farthest.iter().take(all);
        let evidence: Vec<_> = shown.map(|(number, owner)| evidence(*number, owner, is_scaled)).collect();
        let more = if evidence.is_empty() { 0 } else { (all - evidence.len()) as u64 };
        (evidence, more)
    }
}

fn alert(rule: &Rule, state: State<Timestamp>, change: Change<Timestamp>, result: &RuleResult<'_>) -> Option<Alert> {
    let Rule { name, when, interface: _, windows, clear } = rule;
    let (told, since) = match (state, change) {
        (_, Change::Ends(since)) => ("cleared", since),
        (State::Inactive, _) => return None,
        (State::Pending(since), _) => ("pending", since),
        (State::Firing { since, within: 0 }, _) => ("firing", since),
        (State::Firing { since, .. }, _) => ("clearing", since),
    };
    let Since { start, windows: judged } = since;
    let (evidence, more) = result.evidence(when.limit.unit.is_some());
    Some(Alert {
        rule: name.clone(),
        when: when.to_string(),
        state: told.to_owned(),
        change: match change {
            Change::None => None,
            Change::Begins => Some("begins".to_owned()),
            Change::Ends(_) => Some("ends".to_owned()),
        },
        since: start,
        windows: judged,
        needed: *windows,
        clear: *clear,
        unit: when.unit().map(str::to_owned),
        evidence,
        more,
    })
}

fn evidence(number: Number, owner: &Owner<'_>, is_scaled: bool) -> Evidence {
    // A number in its own unit keeps the digits that it has in the report.
    let Number { value, lower, upper } = number;
    let round = |number: f64, to: fn(f64) -> f64| if is_scaled { rounded(number, to) } else { number };
    Evidence {
        key: owner.key(),
        value: round(value, f64::round),
        lower: round(lower, f64::floor),
        upper: upper.is_finite().then(|| round(upper, f64::ceil)),
    }
}

/// A number, rounded for people.
fn rounded(number: f64, to: fn(f64) -> f64) -> f64 {
    const DIGITS: i32 = 6;
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let places = DIGITS - 1 - number.abs().log10().floor() as i32;
    let (factor, is_small) = (10_f64.powi(places.abs()), places >= 0);
    if is_small { to(number * factor) / factor } else { to(number / factor) * factor }
}

#[cfg(test)]
mod tests;
