//! Sums over all windows since the start. Only these may be counters: the numbers of single windows go up and down.

use std::collections::BTreeMap;

use weir_schema::{
    Report,
    series::{
        Kind, Series, Target,
        point::{Point, Scalar},
    },
};

use super::text::written;

/// How many interfaces are remembered. Beyond this, those that have been absent from reports longest are forgotten.
const REMEMBERED_MAX: usize = 512;

/// Sums over all windows since weir started.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Windows that have ended.
    pub(super) windows: u64,
    /// The names of series, each with the labels that follow those of the owner. There are some hundred.
    parts: Vec<(&'static str, String)>,
    /// The sums of all traffic, which has no labels, and of each interface and direction, by their labels.
    owners: BTreeMap<String, OfOwner>,
}

#[derive(Clone, Debug, Default)]
struct OfOwner {
    /// The sums, by the index of their part.
    numbers: Vec<Option<u64>>,
    /// The last window in which the owner appeared.
    last: u64,
}

impl Sums {
    /// Adds the numbers of a window.
    pub(super) fn add(&mut self, report: &Report) {
        self.windows += 1;
        for series in Series::all(Target::Prometheus).filter(|series| series.kind == Kind::Sum) {
            for Point { labels, owner, reading, .. } in series.points(report) {
                let Scalar::Whole(number) = reading.value else { continue };
                let (own, rest) = labels.split_at(owner.labels().len());
                let part = self.part(series.name, written(rest));
                let OfOwner { numbers, last } = self.owners.entry(written(own)).or_default();
                *last = self.windows;
                numbers.resize(numbers.len().max(part + 1), None);
                let sum = numbers[part].get_or_insert_default();
                *sum = sum.saturating_add(number);
            }
        }
        self.forget();
    }

    fn part(&mut self, series: &'static str, labels: String) -> usize {
        let known = self.parts.iter().position(|(name, known)| *name == series && *known == labels);
        known.unwrap_or_else(|| {
            self.parts.push((series, labels));
            self.parts.len() - 1
        })
    }

    /// The sums of a series with their labels.
    pub(super) fn of(&self, series: &str) -> impl Iterator<Item = (String, u64)> {
        self.owners.iter().flat_map(move |(owner, OfOwner { numbers, .. })| {
            let own = self.parts.iter().zip(numbers).filter(move |((name, _), _)| *name == series);
            own.filter_map(move |((_, rest), number)| {
                let both = [owner.as_str(), rest];
                let labels: Vec<_> = both.into_iter().filter(|labels| !labels.is_empty()).collect();
                Some((labels.join(","), (*number)?))
            })
        })
    }

    /// Forgets the interfaces that have been absent longest, if there are too many. The sums of all traffic stay,
    /// because they are in every window.
    fn forget(&mut self) {
        while self.owners.len() > REMEMBERED_MAX + 1 {
            let oldest = self.owners.iter().min_by_key(|(_, sums)| sums.last);
            match oldest.map(|(owner, sums)| (owner.clone(), sums.last)) {
                Some((owner, last)) if last < self.windows => self.owners.remove(&owner),
                _ => return,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Report {
        serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap()
    }

    /// The sum of a series whose labels begin with `labels`.
    fn sum_of(sums: &Sums, series: &str, labels: &str) -> u64 {
        sums.of(series).filter(|(known, _)| known.starts_with(labels)).map(|(_, number)| number).sum()
    }

    #[test]
    fn sums_only_grow_and_balance() {
        let report = golden();
        let mut sums = Sums::default();
        for windows in 1..=3 {
            sums.add(&report);
            assert_eq!((sums.windows, sum_of(&sums, "packets", "")), (windows, windows * report.totals.packets));
            let eth0 = "interface=\"eth0\",direction=\"ingress\"";
            assert_eq!(sum_of(&sums, "interface.seen.packets", eth0), windows * 1_100_345);
            let arp = format!("{eth0},kind=\"skipped\",reason=\"arp\"");
            assert_eq!(sum_of(&sums, "interface.accounted.bytes", &arp), windows * 345_678);
            let tcp: Vec<_> = sums.of("interface.tcp.packets").take(4).map(|(_, number)| number).collect();
            assert_eq!(tcp, [12_004, 11_800, 320, 22_610].map(|number| windows * number));
            for amount in ["packets", "bytes"] {
                for (owner, seen) in sums.of(&format!("interface.seen.{amount}")) {
                    assert_eq!(sum_of(&sums, &format!("interface.accounted.{amount}"), &owner), seen, "{owner}");
                }
            }
        }
        // An interface that no longer appears in reports keeps its sums.
        let mut without = report.clone();
        without.interfaces.clear();
        let interfaces = sums.of("interface.seen.packets").count();
        sums.add(&without);
        assert_eq!(sums.of("interface.seen.packets").count(), interfaces);
    }

    #[test]
    fn interfaces_under_ever_new_names_take_no_more_memory() {
        let mut report = golden();
        report.interfaces.truncate(1);
        let mut sums = Sums::default();
        for nth in 0..2 * REMEMBERED_MAX {
            report.interfaces[0].name = format!("ppp{nth}");
            sums.add(&report);
        }
        assert_eq!(sums.of("interface.seen.packets").count(), REMEMBERED_MAX);
        let newest = format!("interface=\"ppp{}\",direction=\"ingress\"", 2 * REMEMBERED_MAX - 1);
        assert!(sums.owners.contains_key(&newest));
    }
}
