//! Top lists: which keys are listed, in which order, within which bounds.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use serde_json::Value;
use weir_common::ledger::Tally;

use super::{Missing, Verdict, stretch};
use crate::{
    oracle::{By, Dimension, Oracle, Subject, proto},
    truth::{Key, Lacks},
};

/// How many entries of each top list must be there, in the right order.
const TOP_RANKED: usize = 10;

impl Oracle {
    /// The traffic of every flow (or source, ...).
    pub fn truths(&self, dimension: Dimension) -> Truths {
        Truths { dimension, tallies: self.tallies(dimension) }
    }

    pub(super) fn check_top(&self, top: &Value, place: &str, by: By, missing: Missing, verdict: &mut Verdict) {
        if top["by"].as_str().is_some_and(|named| named != by.name()) {
            verdict.deviates(&format!(".{place}.by"), &format!("{} should be \"{}\"", top["by"], by.name()));
        }
        let stretch = stretch(1.0 - top["confidence"].as_f64().unwrap_or(1.0));
        for dimension in Dimension::ALL {
            let place = format!(".{place}.{}", dimension.name());
            let Some(list) = top[dimension.name()].as_array() else {
                verdict.deviates(&place, "is not a list");
                continue;
            };
            let (truths, slack) = (self.truths(dimension), missing.slack(by));
            TopCheck { truths, by, slack, stretch, place }.check(list, verdict);
        }
    }
}

/// The traffic of every key of a dimension.
pub struct Truths {
    dimension: Dimension,
    tallies: HashMap<Subject, Tally>,
}

impl Truths {
    /// Returns true if all bounds of a list hold, whatever its order.
    ///
    /// # Errors
    ///
    /// An entry cannot be read, or its key was never sent.
    pub fn hold(&self, list: &Value) -> Result<bool, String> {
        let entries = list.as_array().ok_or_else(|| format!("no list: {list}"))?;
        let mut all = true;
        for entry in entries {
            let mut verdict = Verdict::default();
            let estimates = ["bytes", "packets"].map(|measure| verdict.estimate(&entry[measure], measure));
            let ([Some(bytes), Some(packets)], Some(subject)) = (estimates, self.subject(entry)) else {
                return Err(format!("cannot be read: {entry}"));
            };
            let Some(truth) = self.tallies.get(&subject) else { return Err(format!("was not there: {entry}")) };
            all &= bytes.holds(truth.bytes) && packets.holds(truth.packets);
        }
        Ok(all)
    }

    /// The key of an entry.
    fn subject(&self, entry: &Value) -> Option<Subject> {
        let ip = |name: &str| entry[name].as_str()?.parse::<IpAddr>().ok();
        let port = |name: &str| u16::try_from(entry[name].as_u64()?).ok();
        let proto = || proto::number(entry["proto"].as_str()?);
        Some(match self.dimension {
            Dimension::Sources => Subject::Source(ip("src_ip")?),
            Dimension::Destinations => Subject::Destination(ip("dst_ip")?),
            Dimension::Pairs => Subject::Pair(ip("src_ip")?, ip("dst_ip")?),
            Dimension::Services => Subject::Service(proto()?, port("port")?),
            Dimension::Flows => {
                let (src, dst) = (ip("src_ip")?, ip("dst_ip")?);
                let (src_port, dst_port, proto) = (port("src_port")?, port("dst_port")?, proto()?);
                Subject::Flow(Key { src, dst, src_port, dst_port, proto, lacks: Lacks::Nothing })
            }
        })
    }
}

/// The check of one top list.
///
/// If a key truly had t, at least t - `slack` was counted. So the key at rank r truly had the amount of the r-th
/// largest key, give or take `slack`. A key that had more than `slack` above the last rank must be listed.
struct TopCheck {
    truths: Truths,
    by: By,
    slack: Option<u64>,
    /// The factor by which bounds are widened: see [`Verdict::bounds`].
    stretch: f64,
    place: String,
}

impl TopCheck {
    fn check(&self, list: &[Value], verdict: &mut Verdict) {
        let mut ranked: Vec<_> = self.truths.tallies.values().map(|tally| self.by.of(*tally)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(slack) = self.slack {
            // A key whose amount is at most the missing amount may not be listed at all.
            let expected = ranked.iter().take(TOP_RANKED).filter(|truth| **truth > slack).count();
            if list.len() < expected {
                verdict.deviates(
                    &self.place,
                    &format!("{} entries, but at least {expected} keys must be listed", list.len()),
                );
            }
        }
        let mut listed = HashSet::new();
        let mut last = u64::MAX;
        for (rank, entry) in list.iter().enumerate() {
            let place = format!("{}[{rank}]", self.place);
            let Some(subject) = self.truths.subject(entry) else {
                verdict.deviates(&place, &format!("cannot be read: {entry}"));
                continue;
            };
            let [bytes, packets] =
                ["bytes", "packets"].map(|measure| verdict.estimate(&entry[measure], &format!("{place}.{measure}")));
            let (Some(bytes), Some(packets)) = (bytes, packets) else { continue };
            let known = self.truths.tallies.get(&subject).copied();
            if !listed.insert(subject) {
                verdict.deviates(&place, &format!("{subject} is listed again"));
            }
            if known.is_none() {
                verdict.deviates(&place, &format!("{subject} was not there"));
            }
            let [far_bytes, far_packets] = [bytes, packets].map(|estimate| estimate.stretched(self.stretch));
            let held = |tally: &Tally| far_bytes.holds(tally.bytes) && far_packets.holds(tally.packets);
            if let Some(truth) = known.filter(|truth| !held(truth)) {
                let truth = format!("{} bytes, {} packets", truth.bytes, truth.packets);
                verdict.deviates(&place, &format!("{subject}: {truth}; outside of bytes {bytes}, packets {packets}"));
            }
            let value = if self.by == By::Bytes { bytes.value } else { packets.value };
            if value > last {
                verdict.deviates(&place, &format!("{value} comes after {last}"));
            }
            last = value;
            let true_ranked = ranked.get(rank).copied();
            let belongs = |tally: &Tally, slack| true_ranked.is_some_and(|t| t.abs_diff(self.by.of(*tally)) <= slack);
            if rank < TOP_RANKED
                && let Some(slack) = self.slack
                && !known.is_some_and(|tally| belongs(&tally, slack))
            {
                let had = known.map_or_else(|| "nothing".to_owned(), |tally| self.by.of(tally).to_string());
                let should = true_ranked.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
                verdict.deviates(
                    &place,
                    &format!("{subject} had {had} {}; this rank belongs to {should}", self.by.name()),
                );
            }
        }
    }
}
