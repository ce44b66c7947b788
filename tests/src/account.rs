//! The ledger of every report: the exact sum, stated once for all tests, and the losses that a run may have.
//!
//! weir checks the same sum in `weir_common::ledger`. It is written a second time here, for the JSON that a collector
//! receives, so that the tests share no code with the daemon that they judge.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;

/// The losses that a run may have, with reasons named as in the ledger's `lost`.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// No losses. Such a test paces its traffic or has room for all of it.
    None,
    /// The test provokes loss: at least one packet is lost, for these reasons and no others.
    Provoked(&'static [&'static str]),
    /// Packets may be lost for these reasons and no others: whether they are depends on the machine.
    Possible(&'static [&'static str]),
}

/// One interface's ledger in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Every packet that was seen.
    pub seen: Tally,
    /// Packets that are in flows.
    pub attributed: Tally,
    /// Packets that sampling left out.
    pub sampled_out: Tally,
    /// Packets without a flow, by reason.
    pub skipped: BTreeMap<String, Tally>,
    /// Missing packets, by reason; they may have had a flow.
    pub lost: BTreeMap<String, Tally>,
}

impl Ledger {
    /// Reads the ledger of an element of `interfaces`.
    ///
    /// # Errors
    ///
    /// A part of the ledger is missing.
    pub fn read(interface: &Value) -> Result<Self> {
        let ledger = &interface["ledger"];
        let part = |name: &str| tally(&ledger[name]).with_context(|| name.to_owned());
        let reasons = |name: &str| -> Result<BTreeMap<String, Tally>> {
            let reasons = ledger[name].as_object().with_context(|| format!("{name} is no table of reasons"))?;
            let read = |(reason, value)| {
                let tally = tally(value).with_context(|| format!("{name}.{reason}"))?;
                Ok((String::clone(reason), tally))
            };
            reasons.iter().map(read).collect()
        };
        Ok(Self {
            seen: part("seen")?,
            attributed: part("attributed")?,
            sampled_out: part("sampled_out")?,
            skipped: reasons("skipped")?,
            lost: reasons("lost")?,
        })
    }

    /// The sum that `seen` must equal: attributed, sampled out, skipped and lost.
    pub fn accounted(&self) -> Tally {
        let parts = [self.attributed, self.sampled_out].into_iter();
        parts.chain(self.skipped.values().copied()).chain(self.lost.values().copied()).sum()
    }

    /// Everything that was lost.
    pub fn all_lost(&self) -> Tally {
        self.lost.values().copied().sum()
    }

    /// Adds another interface's ledger, or another window's.
    pub fn add(&mut self, other: &Self) {
        let Self { seen, attributed, sampled_out, skipped, lost } = other;
        self.seen.add(*seen);
        self.attributed.add(*attributed);
        self.sampled_out.add(*sampled_out);
        for (mine, others) in [(&mut self.skipped, skipped), (&mut self.lost, lost)] {
            for (reason, tally) in others {
                mine.entry(reason.clone()).or_default().add(*tally);
            }
        }
    }
}

/// Adds up the ledgers of reports. Checks that each ledger balances; that each report's totals are the packets of its
/// interfaces, without those that were already counted on another interface; and that each interface's packet sizes
/// cover all its packets.
///
/// # Errors
///
/// The first check that fails, with the report's id and the interface.
pub fn add_up<'a>(reports: impl IntoIterator<Item = &'a Value>) -> Result<Ledger> {
    let (mut all, mut behind) = (Ledger::default(), Behind::default());
    for report in reports {
        let id = &report["id"];
        let mut seen = Tally::default();
        for interface in report["interfaces"].as_array().with_context(|| format!("report {id} has no interfaces"))? {
            let name = &interface["name"];
            let ledger = Ledger::read(interface).with_context(|| format!("report {id}, {name}"))?;
            let accounted = ledger.accounted();
            ensure!(ledger.seen == accounted, "report {id}, {name}: seen {:?}, accounted {accounted:?}", ledger.seen);
            let repeated = tally(&interface["repeated"]).with_context(|| format!("report {id}, {name}, repeated"))?;
            let (packets, bytes) = (repeated.packets <= ledger.seen.packets, repeated.bytes <= ledger.seen.bytes);
            ensure!(packets && bytes, "report {id}, {name}: {repeated:?} of {:?} are repeated", ledger.seen);
            behind.add(interface, &ledger).with_context(|| format!("report {id}, {name}, packet sizes"))?;
            seen.add(ledger.seen.since(repeated));
            all.add(&ledger);
        }
        let totals = tally(&report["totals"]).with_context(|| format!("report {id}, totals"))?;
        ensure!(totals == seen, "report {id}: the totals are {totals:?} and the interfaces fed {seen:?}");
        if report["self"]["late_cpus"].is_null() {
            behind.check().with_context(|| format!("report {id}, packet sizes"))?;
        }
    }
    Ok(all)
}

/// How many packets weir saw, per packet that the interfaces counted, over all windows. The two counts of one window
/// are not read at the same instant; over all windows the difference vanishes. Windows in which nothing was seen are
/// left out.
///
/// # Errors
///
/// No window states its coverage.
pub fn coverage(reports: &[Value]) -> Result<f64> {
    let (mut seen, mut counted) = (0.0, 0.0);
    for interface in reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten() {
        if let Some(coverage) = interface["coverage"].as_f64().filter(|coverage| *coverage > 0.0) {
            let ledger = Ledger::read(interface)?;
            let missed = ledger.lost.get("blind").copied().unwrap_or_default();
            let packets = ledger.seen.since(missed).packets as f64;
            seen += packets;
            counted += packets / coverage;
        }
    }
    ensure!(counted > 0.0, "no window has a coverage");
    Ok(seen / counted)
}

/// How many packets are missing from each interface's packet sizes: a late CPU adds its sizes in a later report.
/// Packets that a socket dropped have no size.
#[derive(Default)]
struct Behind(BTreeMap<(String, String), i128>);

impl Behind {
    fn add(&mut self, interface: &Value, ledger: &Ledger) -> Result<()> {
        let sized: u64 = sizes(interface)?.iter().map(|(_, packets)| packets).sum();
        let unread = ["socket_drop", "blind"].iter().filter_map(|reason| ledger.lost.get(*reason));
        let dropped: u64 = unread.map(|tally| tally.packets).sum();
        let key = (interface["name"].to_string(), interface["direction"].to_string());
        *self.0.entry(key).or_default() += i128::from(ledger.seen.packets - dropped) - i128::from(sized);
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let wrong = self.0.iter().find(|(_, packets)| **packets != 0);
        wrong.map_or(Ok(()), |(interface, packets)| anyhow::bail!("{interface:?}: {packets} packets have no size"))
    }
}

/// An interface's packets by size: the upper edge of each class, and its packets.
///
/// # Errors
///
/// The field is not such a list.
pub fn sizes(interface: &Value) -> Result<Vec<(u64, u64)>> {
    let sizes = &interface["packet_sizes"];
    serde_json::from_value(sizes.clone()).with_context(|| format!("packet_sizes are {sizes}"))
}

/// Adds up the ledgers of a run's reports, and compares their losses with those that the test allows.
///
/// # Errors
///
/// As for [`add_up`]; or packets are lost that may not be, or the test provokes a loss and none occurs.
pub fn check(reports: &[Value], loss: Loss) -> Result<Ledger> {
    let all = add_up(reports)?;
    let (allowed, least) = match loss {
        Loss::None => (&[][..], 0),
        Loss::Provoked(reasons) => (reasons, 1),
        Loss::Possible(reasons) => (reasons, 0),
    };
    for (reason, tally) in &all.lost {
        let expected = allowed.contains(&reason.as_str());
        ensure!(expected || tally.is_zero(), "lost, {reason}: {tally:?} of {:?}; expected: {loss:?}", all.seen);
    }
    ensure!(all.all_lost().packets >= least, "nothing was lost: the test did not provoke any loss");
    Ok(all)
}

/// The packets and bytes of a part of a report.
///
/// # Errors
///
/// The part has no packets and bytes.
pub fn tally(value: &Value) -> Result<Tally> {
    let [packets, bytes] = ["packets", "bytes"].map(|name| value[name].as_u64());
    let (Some(packets), Some(bytes)) = (packets, bytes) else {
        anyhow::bail!("there are no packets and bytes: {value}");
    };
    Ok(Tally::new(packets, bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A report of 10 packets of 100 bytes each.
    fn report(attributed: u64, arp: u64, lost: u64) -> Value {
        let tally = |packets: u64| json!({"packets": packets, "bytes": packets * 100});
        json!({"id": "1/2/3", "totals": tally(10), "interfaces": [{"name": "wan0", "feeds": "all", "repeated": tally(0), "ledger": {
            "seen": tally(10), "attributed": tally(attributed), "sampled_out": tally(0),
            "skipped": {"arp": tally(arp)}, "lost": {"ring_full": tally(lost), "socket_drop": tally(0)},
        }, "packet_sizes": [[64, 3], [127, 7]]}]})
    }

    fn said(outcome: Result<Ledger>) -> String {
        format!("{:#}", outcome.unwrap_err())
    }

    #[test]
    fn what_balances_adds_up() {
        let all = check(&[report(8, 2, 0), report(9, 1, 0)], Loss::None).unwrap();
        assert_eq!((all.seen, all.attributed), (Tally::new(20, 2_000), Tally::new(17, 1_700)));
        assert_eq!(all.skipped["arp"], Tally::new(3, 300));
        assert!(all.all_lost().is_zero());
    }

    #[test]
    fn an_imbalance_is_reported() {
        let message = said(add_up(&[report(8, 2, 0), report(8, 1, 0)]));
        assert!(message.starts_with("report \"1/2/3\", \"wan0\": seen Tally { packets: 10,"), "{message}");
        let mut other = report(8, 2, 0);
        other["totals"]["bytes"] = json!(999);
        assert!(said(add_up(&[other])).contains("the totals are"));
        let mut torn = report(8, 2, 0);
        torn["interfaces"][0]["ledger"]["lost"]["ring_full"] = json!(3);
        assert!(said(add_up(&[torn])).contains("lost.ring_full: there are no packets and bytes: 3"));
    }

    #[test]
    fn every_packet_has_a_size_unless_a_socket_dropped_it_or_a_cpu_is_late() {
        let sized = |first: u64| {
            let mut report = report(8, 2, 0);
            report["interfaces"][0]["packet_sizes"][0][1] = json!(first);
            report
        };
        for wrong in [sized(2), sized(4)] {
            assert!(said(add_up(&[wrong])).contains(" packets have no size"));
        }
        let (mut late, more) = (sized(2), sized(4));
        assert!(add_up(&[late.clone(), more.clone()]).is_err());
        late["self"] = json!({"late_cpus": [1]});
        assert!(add_up(&[late.clone(), more.clone()]).is_ok() && add_up(&[late, sized(3)]).is_err());
        let mut dropped = sized(2);
        dropped["interfaces"][0]["ledger"]["attributed"] = json!({"packets": 7, "bytes": 700});
        dropped["interfaces"][0]["ledger"]["lost"]["socket_drop"] = json!({"packets": 1, "bytes": 100});
        assert!(add_up(&[dropped.clone()]).is_ok());
        dropped["interfaces"][0]["packet_sizes"] = json!(null);
        assert!(said(add_up(&[dropped])).contains("packet_sizes are null"));
    }

    #[test]
    fn loss_is_an_error_unless_it_is_named() {
        let (whole, lossy) = ([report(8, 2, 0)], [report(8, 1, 1)]);
        assert!(said(check(&lossy, Loss::None)).contains("lost, ring_full"));
        assert!(said(check(&lossy, Loss::Possible(&["socket_drop"]))).contains("lost, ring_full"));
        assert!(said(check(&whole, Loss::Provoked(&["ring_full"]))).contains("nothing was lost"));
        for loss in [Loss::Provoked(&["ring_full"]), Loss::Possible(&["ring_full"])] {
            assert_eq!(check(&lossy, loss).unwrap().all_lost(), Tally::new(1, 100));
        }
        assert!(check(&whole, Loss::Possible(&["ring_full"])).is_ok());
    }
}
