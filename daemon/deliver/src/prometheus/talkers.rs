//! The largest rows of some lists as series, if the configuration asks for that (`prometheus: {top: 5}`).
//!
//! Prometheus keeps a series for each key that was ever a row. So few rows are exported, and on one UTC day only a
//! limited number of keys. Beyond that, rows whose key was exported before on this day remain, and the others are
//! counted.

use std::hash::{BuildHasher, RandomState};

use weir_config::view::Standard;
use weir_schema::{Estimate, Report, lists::ListRow, series::Kind};

use super::text::{Page, written};

/// How many keys of a list are exported on a day, for each of its rows.
const KEYS_PER_ROW: usize = 100;
const DAY_SECONDS: i64 = 86_400;

/// The lists that have rows here.
const LISTS: [Standard; 3] = [Standard::Sources, Standard::Destinations, Standard::Services];

/// The memory for the keys of a day, if each list has this many rows.
pub(super) const fn memory_bytes(rows: usize) -> u64 {
    (LISTS.len() * KEYS_PER_ROW * rows * size_of::<u64>()) as u64
}

/// Chooses the rows of each window.
#[derive(Debug, Default)]
pub(super) struct Talkers {
    /// How many rows of each list.
    rows: usize,
    /// The UTC day of the last window, since 1970.
    day: i64,
    /// The hashes of the keys that were exported on this day, of each list, in order. They never grow beyond the size
    /// that they begin with.
    exported: [Vec<u64>; LISTS.len()],
    hashes: RandomState,
}

/// The rows of a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// The rows that are exported, each with its labels.
    chosen: Vec<(String, Estimate)>,
    /// How many are not exported, because there are too many keys.
    left_out: u64,
    is_wanted: bool,
}

impl Talkers {
    /// Exports this many rows of each list.
    pub(super) fn new(rows: usize) -> Self {
        let exported = LISTS.map(|_| Vec::with_capacity(KEYS_PER_ROW * rows));
        Self { rows, exported, ..Self::default() }
    }

    /// The rows of a window that has ended.
    pub(super) fn choose(&mut self, report: &Report) -> Rows {
        let day = report.window.end.as_second().div_euclid(DAY_SECONDS);
        if day != self.day {
            self.day = day;
            self.exported.iter_mut().for_each(Vec::clear);
        }
        let mut rows = Rows { is_wanted: self.rows > 0, ..Rows::default() };
        for (nth, list) in lists(report, self.rows).enumerate() {
            for row in list {
                if self.let_through(nth, &row.0) {
                    rows.chosen.push(row);
                } else {
                    rows.left_out += 1;
                }
            }
        }
        rows
    }

    /// Returns whether the series with these labels is exported. Notes it if it is new and there is room.
    fn let_through(&mut self, list: usize, labels: &str) -> bool {
        let hash = self.hashes.hash_one(labels);
        let exported = &mut self.exported[list];
        let Err(place) = exported.binary_search(&hash) else { return true };
        let has_room = exported.len() < KEYS_PER_ROW * self.rows;
        if has_room {
            exported.insert(place, hash);
        }
        has_room
    }
}

/// The first rows of the lists by bytes, each with its labels.
fn lists(report: &Report, rows: usize) -> impl Iterator<Item = Vec<(String, Estimate)>> {
    let labelled = |list: Standard, row: &ListRow<'_>| {
        let fields: Vec<_> = row.key.fields().collect();
        let labels: Vec<_> = [("list", list.name().into())]
            .into_iter()
            .chain(fields.iter().map(|(name, value)| (*name, value.as_str().into())))
            .collect();
        (written(&labels), row.sums.bytes)
    };
    let exported = report.top.lists().into_iter().filter(|list| LISTS.contains(&list.list));
    exported.map(move |list| list.rows.iter().take(rows).map(|row| labelled(list.list, row)).collect())
}

impl Rows {
    /// Writes the families of the rows.
    pub(super) fn write(&self, page: &mut Page) {
        type Part = fn(&Estimate) -> u64;
        let parts: [(&str, &str, Part); 3] = [
            ("weir_top_bytes", "", |of| of.value),
            ("weir_top_lower_bytes", " Lower bound.", |of| of.lower),
            ("weir_top_upper_bytes", " Upper bound.", |of| of.upper),
        ];
        for (name, more, part) in parts {
            let help = format!("The largest rows of the lists in the window.{more}");
            let numbers = self.chosen.iter().map(|(labels, bytes)| (labels.clone(), part(bytes)));
            page.family(name, Kind::Gauge, "bytes", &help, numbers);
        }
        if self.is_wanted {
            let help = "Rows without a series, because the lists had too many different keys on this day.";
            page.family("weir_top_left_out", Kind::Gauge, "", help, [(String::new(), self.left_out)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::{super::text::Format, *};

    fn golden() -> Report {
        serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap()
    }

    fn text(rows: &Rows) -> String {
        let mut page = Page::new(Format::Plain);
        rows.write(&mut page);
        page.finish()
    }

    #[test]
    fn rows_are_those_of_the_report_and_only_if_asked_for() {
        let report = golden();
        assert_eq!(text(&Talkers::new(0).choose(&report)), "");
        let text = text(&Talkers::new(1).choose(&report));
        let of = &report.top.sources[0];
        for (name, value) in [("", of.bytes.value), ("_lower", of.bytes.lower), ("_upper", of.bytes.upper)] {
            let line = format!("weir_top{name}_bytes{{list=\"sources\",src_ip=\"{}\"}} {value}\n", of.src_ip);
            assert!(text.contains(&line), "no {line}{text}");
        }
        let series = text.lines().filter(|line| line.starts_with("weir_top_bytes{")).count();
        assert_eq!(series, 3, "one of each list: {text}");
        assert!(text.contains("weir_top_left_out 0\n"), "{text}");
    }

    #[test]
    fn ever_new_keys_make_a_limited_number_of_series_a_day() {
        let mut report = golden();
        let mut talkers = Talkers::new(2);
        let first = report.top.sources[0];
        report.top.sources = vec![first, first];
        let mut windows = 0_u32;
        let mut next = |talkers: &mut Talkers, report: &mut Report| {
            windows += 1;
            report.top.sources[1].src_ip = IpAddr::V4(Ipv4Addr::from_bits(windows));
            talkers.choose(report)
        };
        let of_sources = |rows: &Rows| rows.chosen.iter().filter(|(labels, _)| labels.contains("\"sources\"")).count();
        for _ in 1..2 * KEYS_PER_ROW {
            assert_eq!(of_sources(&next(&mut talkers, &mut report)), 2);
        }
        let rows = next(&mut talkers, &mut report);
        assert_eq!((of_sources(&rows), rows.left_out), (1, 1), "the first one is known");
        let held: usize = talkers.exported.iter().map(|keys| keys.capacity() * size_of::<u64>()).sum();
        assert_eq!(held as u64, memory_bytes(2), "no more than is planned");
        report.window.end += jiff::SignedDuration::from_hours(24);
        assert_eq!(of_sources(&next(&mut talkers, &mut report)), 2, "another day");
    }
}
