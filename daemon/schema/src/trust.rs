//! Judges if a reader may rely on the numbers. All screens take their words and colours from here: tables, `weir top`,
//! `weir status`, `weir merge`. The page has the same rules in `daemon/page/assets/report/trust.js`, and a test
//! compares the two.
//!
//! Only certain facts are good. If an interface is not measured, its traffic is unknown, and then nothing about all
//! interfaces together is good.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use weir_system::numbers::{count, percent};

use super::{
    Bounds, Interface, Second, Tally, Uncertain,
    limits::{check_name, check_total},
};

/// The modes in which weir sees the packets of an interface. In any other mode its packets are unknown.
const MEASURED: [&str; 7] = ["xdp-native", "xdp-generic", "tcx", "tc", "afpacket", "replay", "others"];
/// If the lists are about less than this share of the packets or bytes, that is shown as a problem: an ordinary link
/// carries a little ARP and LLDP, too.
const LISTED_MIN: f64 = 0.99;
/// How many interfaces or reasons are named.
const NAMED_MAX: usize = 3;
/// How many interfaces that are not measured are kept to be named, and how many reasons: a report from elsewhere may
/// name any number.
const KEPT_MAX: usize = 64;
/// The text in place of a rate of an interface that is not measured.
pub const NOT_MEASURED: &str = "not measured";

/// Returns true if weir sees the packets of an interface in this mode.
pub fn is_measured(mode: &str) -> bool {
    MEASURED.contains(&mode)
}

/// How good a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is known to be as it should be.
    Good,
    /// It is not known, or neither good nor bad.
    Neutral,
    /// Something is wrong with the numbers.
    Bad,
}

/// A fact about how reliable the numbers are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// The fact in a few words.
    pub text: String,
    /// How good it is.
    pub verdict: Verdict,
}

impl Fact {
    /// Makes a fact with this verdict.
    pub fn new(text: impl Into<String>, verdict: Verdict) -> Self {
        Self { text: text.into(), verdict }
    }

    /// A fact that is good or bad.
    pub fn judged(text: impl Into<String>, is_good: bool) -> Self {
        Self::new(text, if is_good { Verdict::Good } else { Verdict::Bad })
    }
}

/// How reliable the numbers of these interfaces are. `now` is their last second if the numbers are shown as those of
/// now.
pub fn trust(interfaces: &[Interface], now: Option<&Second>) -> Vec<Fact> {
    Account::of(interfaces).facts(now)
}

/// An interface of a report, as far as it is judged. It is read from reports of any version: facts that a report does
/// not state are not judged.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Part {
    name: String,
    direction: Option<String>,
    mode: Option<String>,
    repeated: Tally,
    sampling: u32,
    ledger: Outcome,
    coverage: Option<f64>,
    coverage_lower: Option<f64>,
    coverage_upper: Option<f64>,
    blind_seconds: Option<f64>,
    trouble: Option<String>,
    unmeasured_seconds: Option<f64>,
}

/// The account of an interface's packets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Outcome {
    seen: Tally,
    attributed: Tally,
    sampled_out: Tally,
    skipped: BTreeMap<String, Tally>,
    lost: BTreeMap<String, Tally>,
    uncertain: Option<Uncertain>,
}

impl From<&Interface> for Part {
    fn from(of: &Interface) -> Self {
        let ledger = &of.ledger;
        Self {
            name: of.name.clone(),
            direction: of.direction.clone(),
            mode: Some(of.mode.clone()),
            repeated: of.repeated,
            sampling: of.sampling,
            ledger: Outcome {
                seen: ledger.seen,
                attributed: ledger.attributed,
                sampled_out: ledger.sampled_out,
                skipped: ledger.skipped.clone(),
                lost: ledger.lost.clone(),
                uncertain: ledger.uncertain,
            },
            coverage: of.coverage,
            coverage_lower: of.coverage_lower,
            coverage_upper: of.coverage_upper,
            blind_seconds: of.blind_seconds,
            trouble: of.trouble.clone(),
            unmeasured_seconds: of.unmeasured_seconds,
        }
    }
}

impl Part {
    /// Why it was not measured, or for how long; `None` if it was.
    fn unmeasured(&self) -> Option<String> {
        match (self.mode.as_deref().filter(|mode| !is_measured(mode)), self.unmeasured_seconds) {
            (Some(mode), _) => Some(mode.to_owned()),
            (None, Some(seconds)) => Some(format!("for {seconds:.0} s")),
            (None, None) => None,
        }
    }

    /// Checks that its names and numbers are such as weir writes.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let Outcome { seen, attributed, sampled_out, skipped, lost, uncertain } = &self.ledger;
        let names = [Some(&self.name), self.direction.as_ref(), self.mode.as_ref()].into_iter().flatten();
        names.chain(skipped.keys()).chain(lost.keys()).try_for_each(|name| check_name("interfaces", name))?;
        let all =
            [seen, attributed, sampled_out, &self.repeated].into_iter().chain(skipped.values()).chain(lost.values());
        let uncertain = uncertain.iter().flat_map(|of| [of.packets, of.bytes]);
        let numbers = all.flat_map(|tally| [tally.packets, tally.bytes]);
        let mut numbers = numbers.chain(uncertain.flat_map(|bounds| [bounds.lower, bounds.upper]));
        numbers.try_for_each(|number| check_total("interfaces[].ledger", number))
    }

    /// Returns true if it counts packets of a capture. Nothing is attached then.
    fn is_capture(&self) -> bool {
        self.mode.as_deref() == Some("replay")
    }
}

/// The account of the packets of some interfaces.
#[derive(Clone, Debug)]
pub struct Account {
    /// How many there are, without captures.
    interfaces: usize,
    /// Those that are not measured, with the reason. At most so many are kept.
    unmeasured: BTreeSet<String>,
    unmeasured_count: usize,
    has_trouble: bool,
    is_capture: bool,
    seen: Tally,
    lost: Tally,
    sampled_out: Tally,
    /// Packets that feed totals and lists.
    fed: Tally,
    /// The part of these that is not in the lists.
    unlisted: Tally,
    /// True if `unlisted` is an upper bound: a packet that is skipped may count in totals on another interface.
    is_bound: bool,
    reasons: BTreeMap<String, Tally>,
    /// The packets that weir may have seen in a different number than it says.
    uncertain: Option<Uncertain>,
    sampling: u32,
    blind_seconds: f64,
    coverage: Option<Coverage>,
    is_balanced: bool,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            interfaces: 0,
            unmeasured: BTreeSet::new(),
            unmeasured_count: 0,
            has_trouble: false,
            is_capture: false,
            seen: Tally::default(),
            lost: Tally::default(),
            sampled_out: Tally::default(),
            fed: Tally::default(),
            unlisted: Tally::default(),
            is_bound: false,
            reasons: BTreeMap::new(),
            uncertain: None,
            sampling: 1,
            blind_seconds: 0.0,
            coverage: None,
            is_balanced: true,
        }
    }
}

impl Account {
    /// The account of these interfaces.
    pub fn of(interfaces: &[Interface]) -> Self {
        Self::of_parts(&interfaces.iter().map(Part::from).collect::<Vec<_>>())
    }

    /// Adds up the account of interfaces that were read leniently.
    pub fn of_parts(parts: &[Part]) -> Self {
        let mut account = Self::default();
        for part in parts {
            account.add(part);
        }
        let all = parts.iter();
        account.name_unmeasured(all.map(|part| (part.name.as_str(), part.direction.as_deref(), part.unmeasured())));
        account
    }

    fn add(&mut self, part: &Part) {
        let Outcome { seen, attributed, sampled_out, skipped, lost, uncertain } = &part.ledger;
        self.add_uncertain(*uncertain);
        self.is_capture |= part.is_capture();
        self.interfaces += usize::from(!part.is_capture());
        self.has_trouble |= part.trouble.is_some();
        add(&mut self.seen, *seen);
        for lost in lost.values() {
            add(&mut self.lost, *lost);
        }
        add(&mut self.sampled_out, *sampled_out);
        self.sampling = self.sampling.max(part.sampling);
        self.blind_seconds = self.blind_seconds.max(part.blind_seconds.unwrap_or(0.0));
        if let Some(coverage) = Coverage::new(part)
            && self.coverage.as_ref().is_none_or(|lowest| coverage.value < lowest.value)
        {
            self.coverage = Some(coverage);
        }
        let mut all = Tally::default();
        for part in [attributed, sampled_out].into_iter().chain(skipped.values()).chain(lost.values()) {
            add(&mut all, *part);
        }
        self.is_balanced &= all == *seen;
        self.add_unlisted(part);
    }

    fn add_uncertain(&mut self, more: Option<Uncertain>) {
        match (&mut self.uncertain, more) {
            (Some(sum), Some(more)) => sum.add(more),
            (none, more) => *none = none.or(more),
        }
    }

    /// Adds the packets that are in totals, but in no list.
    fn add_unlisted(&mut self, Part { repeated, ledger: Outcome { seen, skipped, lost, .. }, .. }: &Part) {
        let fed = less(*seen, *repeated);
        add(&mut self.fed, fed);
        let mut unlisted = Tally::default();
        for (reason, tally) in skipped.iter().chain(lost).filter(|(_, tally)| tally.packets > 0) {
            let tally = least(*tally, fed);
            add(&mut unlisted, tally);
            self.add_reason(reason, tally);
        }
        self.is_bound |= *repeated != Tally::default() && unlisted.packets > 0;
        add(&mut self.unlisted, least(unlisted, fed));
    }

    fn add_reason(&mut self, reason: &str, tally: Tally) {
        let has_room = self.reasons.len() < KEPT_MAX || self.reasons.contains_key(reason);
        if tally.packets > 0 {
            add(self.reasons.entry(if has_room { reason } else { "other reasons" }.to_owned()).or_default(), tally);
        }
    }

    /// Notes which interfaces are not measured, from name, direction and reason of all. If both directions of one are
    /// not measured, it is named once.
    fn name_unmeasured<'a>(&mut self, all: impl Iterator<Item = (&'a str, Option<&'a str>, Option<String>)>) {
        let all: Vec<_> = all.collect();
        let measured: HashSet<&str> =
            all.iter().filter(|(.., reason)| reason.is_none()).map(|(name, ..)| *name).collect();
        for (name, direction, reason) in &all {
            let Some(reason) = reason else { continue };
            self.unmeasured_count += 1;
            let label = match direction.filter(|_| measured.contains(name)) {
                Some(direction) => format!("{name} {direction} ({reason})"),
                None => format!("{name} ({reason})"),
            };
            if self.unmeasured.len() < KEPT_MAX {
                self.unmeasured.insert(label);
            }
        }
    }

    /// Adds the account of other interfaces, or of the same ones in another window. `of` names their owner.
    pub fn join(&mut self, other: &Self, of: &str) {
        self.interfaces = self.interfaces.saturating_add(other.interfaces);
        self.unmeasured_count = self.unmeasured_count.saturating_add(other.unmeasured_count);
        for label in &other.unmeasured {
            if self.unmeasured.len() < KEPT_MAX {
                self.unmeasured.insert(if of.is_empty() { label.clone() } else { format!("{of} {label}") });
            }
        }
        self.has_trouble |= other.has_trouble;
        self.is_capture |= other.is_capture;
        add(&mut self.seen, other.seen);
        add(&mut self.lost, other.lost);
        add(&mut self.sampled_out, other.sampled_out);
        add(&mut self.fed, other.fed);
        add(&mut self.unlisted, other.unlisted);
        self.add_uncertain(other.uncertain);
        self.is_bound |= other.is_bound;
        for (reason, tally) in &other.reasons {
            self.add_reason(reason, *tally);
        }
        self.sampling = self.sampling.max(other.sampling);
        self.is_balanced &= other.is_balanced;
    }

    /// Returns true if all interfaces were measured.
    pub const fn is_whole(&self) -> bool {
        self.unmeasured_count == 0
    }

    /// Returns true if no interface was measured.
    pub const fn is_nothing(&self) -> bool {
        self.unmeasured_count > 0 && self.unmeasured_count == self.interfaces && self.seen.packets == 0
    }

    /// Packets that were lost, on all interfaces.
    pub const fn lost(&self) -> Tally {
        self.lost
    }

    /// Packets that sampling left out, on all interfaces.
    pub const fn sampled_out(&self) -> Tally {
        self.sampled_out
    }

    /// Returns the uncertain packets on all interfaces.
    pub const fn uncertain(&self) -> Option<Uncertain> {
        self.uncertain
    }

    /// Packets that are in totals but in no list, by reason.
    pub const fn reasons(&self) -> &BTreeMap<String, Tally> {
        &self.reasons
    }

    /// The interfaces that are not measured, with the reason.
    pub const fn unmeasured(&self) -> &BTreeSet<String> {
        &self.unmeasured
    }

    /// All facts, the most important ones first.
    pub fn facts(&self, now: Option<&Second>) -> Vec<Fact> {
        // If the current second is known, it says what is attached now; the window's own list is older.
        let attached = now.map(Self::attached_now);
        let attached = attached.as_ref().unwrap_or(self);
        let is_all = self.is_whole() && attached.is_whole() && !self.has_trouble && !attached.has_trouble;
        let mut facts = vec![self.kept()];
        if self.lost.packets > 0 {
            facts.push(Fact::new(format!("lost {}", count(self.lost.packets)), Verdict::Bad));
        }
        let losing = now.iter().flat_map(|now| &now.interfaces).filter_map(|of| of.lost);
        let losing = losing.fold(0_u64, |sum, lost| sum.saturating_add(lost.packets));
        if losing > 0 {
            facts.push(Fact::new(format!("now losing {}", count(losing)), Verdict::Bad));
        }
        if self.blind_seconds > 0.0 {
            facts.push(Fact::new(format!("BLIND {:.1} s", self.blind_seconds), Verdict::Bad));
        }
        facts.extend(attached.attached());
        facts.extend(attached.not_measured());
        if !std::ptr::eq(attached, self) && attached.is_whole() {
            // It is measured again, but was not in the window.
            facts.extend(self.not_measured());
        }
        facts.extend(self.listed());
        facts.extend(self.not_certain());
        facts.push(sampled(self.sampling));
        facts.extend(self.covered());
        facts.push(balanced(self.is_balanced));
        if is_all { facts } else { without_good(facts) }
    }

    /// The facts that can be told of several routers together.
    pub fn facts_of_fleet(&self) -> Vec<Fact> {
        let mut facts = vec![self.kept()];
        if self.lost.packets > 0 {
            facts.push(Fact::new(format!("lost {}", count(self.lost.packets)), Verdict::Bad));
        }
        facts.extend(self.not_measured());
        facts.extend(self.listed());
        facts.extend(self.not_certain());
        if !self.is_balanced {
            facts.push(balanced(false));
        }
        if self.is_whole() { facts } else { without_good(facts) }
    }

    /// Returns facts about the traffic that the numbers leave out: interfaces that are not measured, and packets that
    /// are in no list.
    pub fn left_out(&self) -> impl Iterator<Item = Fact> {
        self.not_measured().into_iter().chain(self.listed()).filter(|fact| fact.verdict == Verdict::Bad)
    }

    /// Returns the account of the interfaces that are attached in this second.
    fn attached_now(now: &Second) -> Self {
        let of = |mode: &str| Some(mode.to_owned()).filter(|mode| !is_measured(mode));
        let is_capture = now.interfaces.iter().any(|of| of.mode == "replay");
        let has_trouble = !now.troubles.is_empty() || now.interfaces.iter().any(|of| of.trouble.is_some());
        let interfaces = now.interfaces.iter().filter(|of| of.mode != "replay").count();
        let mut account = Self { interfaces, is_capture, has_trouble, ..Self::default() };
        let all = now.interfaces.iter();
        account.name_unmeasured(all.map(|one| (one.name.as_str(), one.direction.as_deref(), of(&one.mode))));
        account
    }

    fn kept(&self) -> Fact {
        match (self.seen.packets, self.is_whole()) {
            (0, false) => Fact::new("kept unknown", Verdict::Neutral),
            (0, true) => Fact::new("no packet seen", Verdict::Neutral),
            (seen, _) => {
                let lost = self.lost.packets as f64 / seen as f64;
                Fact::judged(format!("kept {}", percent((1.0 - lost).max(0.0))), self.lost.packets == 0)
            }
        }
    }

    /// How many packets are not certain. It is a problem if they change more than a small share of the totals.
    fn not_certain(&self) -> Option<Fact> {
        let Bounds { lower, upper } = self.uncertain?.packets;
        let text = format!("uncertain: {} to {} packets", count(lower), count(upper));
        let beyond = upper.saturating_sub(lower) as f64;
        let is_small = beyond <= (1.0 - LISTED_MIN) * (self.seen.packets as f64 + beyond);
        Some(Fact::new(text, if is_small { Verdict::Neutral } else { Verdict::Bad }))
    }

    fn attached(&self) -> Option<Fact> {
        let attached = self.interfaces.saturating_sub(self.unmeasured_count);
        let text = format!("attached {attached} of {}", self.interfaces);
        (self.interfaces > 0 || !self.is_capture).then(|| Fact::judged(text, attached > 0 && self.is_whole()))
    }

    fn not_measured(&self) -> Option<Fact> {
        let named: Vec<_> = self.unmeasured.iter().take(NAMED_MAX).map(String::as_str).collect();
        let more = self.unmeasured.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!("{NOT_MEASURED}: {}{more}", named.join(", "));
        (!self.unmeasured.is_empty()).then(|| Fact::new(text, Verdict::Bad))
    }

    /// How much of the packets and bytes the lists are about, and the largest reasons for the rest.
    fn listed(&self) -> Vec<Fact> {
        if self.fed.packets == 0 {
            return Vec::new();
        }
        if self.unlisted.packets == 0 {
            return vec![Fact::new("in lists 100.0 %", Verdict::Good)];
        }
        let shares = |tally: &Tally| [share(tally.packets, self.fed.packets), share(tally.bytes, self.fed.bytes)];
        let [packets, bytes] = shares(&self.unlisted).map(|unlisted| 1.0 - unlisted);
        let is_good = packets.min(bytes) >= LISTED_MIN;
        let at_least = if self.is_bound { "at least " } else { "" };
        let text = format!("in lists {at_least}{} of packets, {} of bytes", percent(packets), percent(bytes));
        let mut reasons: Vec<_> = self.reasons.iter().map(|(reason, tally)| (reason, shares(tally))).collect();
        reasons.sort_by(|(_, one), (_, other)| other[0].max(other[1]).total_cmp(&one[0].max(one[1])));
        let most = if is_good { 1 } else { NAMED_MAX };
        let named = reasons.iter().take(most).map(|(reason, [packets, bytes])| {
            let of = if bytes > packets { " of bytes" } else { "" };
            format!("{reason} {}{of}", percent(packets.max(*bytes)))
        });
        let more = reasons.len().saturating_sub(most);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let why = format!("not in lists: {}{more}", named.collect::<Vec<_>>().join(", "));
        vec![Fact::judged(text, is_good), Fact::new(why, if is_good { Verdict::Neutral } else { Verdict::Bad })]
    }

    /// The lowest coverage of all interfaces.
    fn covered(&self) -> Option<Fact> {
        match &self.coverage {
            Some(Coverage { text, is_low: true, name, .. }) => {
                Some(Fact::new(format!("{text} ({name})"), Verdict::Bad))
            }
            Some(Coverage { text, .. }) => Some(Fact::new(text, Verdict::Good)),
            None => (self.interfaces > 0).then(|| Fact::new("coverage unknown", Verdict::Neutral)),
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The coverage of an interface, in words.
#[derive(Clone, Debug)]
pub(super) struct Coverage {
    value: f64,
    pub(super) text: String,
    /// True if weir did not see some packets.
    pub(super) is_low: bool,
    name: String,
}

impl Coverage {
    /// The counters of weir and of the interface cannot be read at the same instant, so slightly more than 100 % is
    /// shown as 100 %.
    pub(super) fn new(part: &Part) -> Option<Self> {
        let coverage = part.coverage?;
        let lower = part.coverage_lower.unwrap_or(coverage);
        let is_about_all = coverage >= 1.0 && lower <= 1.0;
        let value = if is_about_all { 1.0 } else { coverage };
        let more = if value > 1.0 { ": the interface counted fewer" } else { "" };
        let text = format!("coverage {}{more}", percent(value));
        let is_low = part.coverage_upper.unwrap_or(coverage) < 1.0;
        Some(Self { value, text, is_low, name: part.name.clone() })
    }
}

/// The same facts if something is not known: then nothing is good.
fn without_good(mut facts: Vec<Fact>) -> Vec<Fact> {
    let good = facts.iter_mut().filter(|fact| fact.verdict == Verdict::Good);
    for fact in good {
        fact.verdict = Verdict::Neutral;
    }
    facts
}

/// Judges the sampling rate.
pub(super) fn sampled(sampling: u32) -> Fact {
    match sampling {
        0 | 1 => Fact::new("unsampled", Verdict::Good),
        many => Fact::new(format!("sampled 1 in {many}"), Verdict::Neutral),
    }
}

/// Judges if the ledgers add up.
pub(super) fn balanced(is_balanced: bool) -> Fact {
    Fact::judged(if is_balanced { "balanced: yes" } else { "balanced: NO" }, is_balanced)
}

const fn add(sum: &mut Tally, more: Tally) {
    sum.packets = sum.packets.saturating_add(more.packets);
    sum.bytes = sum.bytes.saturating_add(more.bytes);
}

const fn less(all: Tally, part: Tally) -> Tally {
    Tally { packets: all.packets.saturating_sub(part.packets), bytes: all.bytes.saturating_sub(part.bytes) }
}

fn least(one: Tally, other: Tally) -> Tally {
    Tally { packets: one.packets.min(other.packets), bytes: one.bytes.min(other.bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InterfaceSecond, Report, SECOND_SCHEMA};

    fn golden() -> Vec<Interface> {
        let report: Report = serde_json::from_str(include_str!("../tests/golden/report.json")).unwrap();
        report.interfaces
    }

    /// An interface on which everything is as it should be.
    fn fine(name: &str, direction: &str) -> Interface {
        let tally = Tally { packets: 1_000, bytes: 800_000 };
        let mut one = golden().swap_remove(0);
        (one.name, one.direction, one.sampling) = (name.to_owned(), Some(direction.to_owned()), 1);
        (one.ledger.seen, one.ledger.attributed, one.ledger.sampled_out) = (tally, tally, Tally::default());
        one.ledger.skipped.clear();
        for lost in one.ledger.lost.values_mut() {
            *lost = Tally::default();
        }
        (one.coverage, one.coverage_lower, one.coverage_upper) = (Some(1.0), Some(1.0), Some(1.0));
        (one.repeated, one.blind_seconds, one.trouble) = Default::default();
        one
    }

    fn detached(mut one: Interface) -> Interface {
        "detached".clone_into(&mut one.mode);
        (one.ledger.seen, one.ledger.attributed) = Default::default();
        (one.coverage, one.coverage_lower, one.coverage_upper) = Default::default();
        one
    }

    fn skip(one: &mut Interface, reason: &str, packets: u64, bytes: u64) {
        one.ledger.attributed.packets -= packets;
        one.ledger.attributed.bytes -= bytes;
        one.ledger.skipped.insert(reason.to_owned(), Tally { packets, bytes });
    }

    fn second(modes: &[(&str, &str)]) -> Second {
        let interface = |(name, mode): &(&str, &str)| InterfaceSecond {
            name: (*name).to_owned(),
            direction: Some("ingress".to_owned()),
            mode: (*mode).to_owned(),
            counted: None,
            total: None,
            lost: None,
            trouble: None,
        };
        let time = jiff::Timestamp::UNIX_EPOCH;
        Second {
            schema: SECOND_SCHEMA.to_owned(),
            time,
            seconds: 1.0,
            skipped: 0,
            window_start: time,
            last_report: None,
            interfaces: modes.iter().map(interface).collect(),
            troubles: Vec::new(),
        }
    }

    fn texts(facts: &[Fact]) -> Vec<&str> {
        facts.iter().map(|fact| fact.text.as_str()).collect()
    }

    fn has_good(facts: &[Fact]) -> bool {
        facts.iter().any(|fact| fact.verdict == Verdict::Good)
    }

    #[test]
    fn all_is_good_only_if_all_is_known() {
        let facts = trust(&[fine("eth0", "ingress"), fine("eth0", "egress")], None);
        let expected =
            ["kept 100.0 %", "attached 2 of 2", "in lists 100.0 %", "unsampled", "coverage 100.0 %", "balanced: yes"];
        assert_eq!(texts(&facts), expected);
        assert!(facts.iter().all(|fact| fact.verdict == Verdict::Good));
    }

    #[test]
    fn an_interface_that_is_not_measured_leaves_nothing_good() {
        for mode in ["detached", "absent", "waiting", "refused", "blind", "gone", "no-default-route", "of a later weir"]
        {
            let mut other = detached(fine("eth1", "ingress"));
            mode.clone_into(&mut other.mode);
            let facts = trust(&[fine("eth0", "ingress"), other], None);
            assert!(!has_good(&facts), "{mode}: {facts:?}");
            assert_eq!(texts(&facts)[1..3], ["attached 1 of 2", &format!("not measured: eth1 ({mode})")]);
        }
        let all = ["ingress", "egress"].map(|way| detached(fine("eth0", way)));
        let facts = trust(&all, None);
        let expected = ["kept unknown", "attached 0 of 2", "not measured: eth0 (detached)"];
        assert_eq!(texts(&facts)[..3], expected);
        assert!(!has_good(&facts));
        let facts = trust(&[fine("eth0", "ingress"), detached(fine("eth0", "egress"))], None);
        assert_eq!(facts[2].text, "not measured: eth0 egress (detached)");
    }

    #[test]
    fn what_is_attached_is_asked_now_and_not_in_the_last_window() {
        let interfaces = [fine("eth0", "ingress")];
        let facts = trust(&interfaces, Some(&second(&[("eth0", "detached")])));
        assert_eq!(texts(&facts)[1..3], ["attached 0 of 1", "not measured: eth0 (detached)"]);
        assert!(!has_good(&facts), "{facts:?}");
        let back = trust(&[detached(fine("eth0", "ingress"))], Some(&second(&[("eth0", "tcx")])));
        assert_eq!(texts(&back)[..3], ["kept unknown", "attached 1 of 1", "not measured: eth0 (detached)"]);
        let held_up = Second { troubles: vec!["the kernel does not answer".to_owned()], ..second(&[("eth0", "tcx")]) };
        assert!(!has_good(&trust(&interfaces, Some(&held_up))), "nothing is known while the kernel does not answer");
        assert!(has_good(&trust(&interfaces, Some(&second(&[("eth0", "tcx")])))));
    }

    #[test]
    fn windows_together_say_for_how_long_an_interface_was_not_measured() {
        let mut one = fine("eth0", "ingress");
        one.unmeasured_seconds = Some(20.0);
        let facts = trust(&[one, fine("eth1", "ingress")], None);
        assert_eq!(texts(&facts)[1..3], ["attached 1 of 2", "not measured: eth0 (for 20 s)"]);
        assert!(!has_good(&facts));
    }

    #[test]
    fn lists_say_of_how_many_packets_and_bytes_they_are() {
        let mut one = fine("eth0", "ingress");
        skip(&mut one, "macsec", 100, 640_000);
        skip(&mut one, "arp", 150, 9_000);
        let facts = Account::of(&[one.clone(), fine("eth1", "ingress")]).listed();
        let expected =
            ["in lists 87.5 % of packets, 59.4 % of bytes", "not in lists: macsec 40.0 % of bytes, arp 7.5 %"];
        assert_eq!((texts(&facts), facts[0].verdict), (expected.to_vec(), Verdict::Bad));
        // Packets that count on another interface are in its lists.
        one.repeated = one.ledger.seen;
        assert_eq!(texts(&Account::of(&[one.clone(), fine("eth1", "ingress")]).listed()), ["in lists 100.0 %"]);
        one.repeated = Tally { packets: 500, bytes: 400_000 };
        let bound = Account::of(&[one]).listed();
        assert_eq!(bound[0].text, "in lists at least 50.0 % of packets, 0.0 % of bytes");
        let mut little = fine("eth0", "ingress");
        skip(&mut little, "lldp", 1, 300);
        let facts = Account::of(&[little]).listed();
        assert_eq!(facts.iter().map(|fact| fact.verdict).collect::<Vec<_>>(), [Verdict::Good, Verdict::Neutral]);
    }

    #[test]
    fn a_capture_that_is_not_read_at_all_says_so() {
        let mut one = fine("can.pcap", "ingress");
        (one.mode, one.direction) = ("replay".to_owned(), None);
        skip(&mut one, "link_type", 1_000, 800_000);
        (one.coverage, one.coverage_lower, one.coverage_upper) = Default::default();
        let facts = trust(&[one], None);
        let expected = [
            "kept 100.0 %",
            "in lists 0.0 % of packets, 0.0 % of bytes",
            "not in lists: link_type 100.0 %",
            "unsampled",
            "balanced: yes",
        ];
        assert_eq!(texts(&facts), expected);
    }

    #[test]
    fn a_silent_link_is_neither_good_nor_bad() {
        let mut one = fine("eth0", "ingress");
        (one.ledger.seen, one.ledger.attributed) = Default::default();
        let facts = trust(&[one], None);
        assert_eq!((facts[0].text.as_str(), facts[0].verdict), ("no packet seen", Verdict::Neutral));
    }

    #[test]
    fn losses_and_blindness_come_first() {
        let facts = trust(&golden(), None);
        assert_eq!(texts(&facts)[..3], ["kept >99.9 %", "lost 280", "BLIND 1.2 s"]);
        assert!(texts(&facts).contains(&"sampled 1 in 4") && texts(&facts).contains(&"coverage 98.7 % (wan0.100)"));
    }

    #[test]
    fn a_fleet_names_what_no_router_measured() {
        let mut fleet = Account::default();
        fleet.join(&Account::of(&[detached(fine("eth0", "ingress"))]), "edge-1");
        fleet.join(&Account::of(&[fine("eth0", "ingress")]), "edge-2");
        let facts = fleet.facts_of_fleet();
        assert!(texts(&facts).contains(&"not measured: edge-1 eth0 (detached)"), "{facts:?}");
        assert!(!has_good(&facts));
    }

    #[test]
    fn an_old_report_is_judged_by_what_it_says() {
        let part: Part =
            serde_json::from_str(r#"{"ledger": {"lost": {"ring_full": {"packets": 1, "bytes": 60}}}}"#).unwrap();
        let account = Account::of_parts(&[part]);
        assert!(account.is_whole() && account.lost.packets == 1);
    }
}
