//! The lists of a report, all in one format.

use serde_json::Value;
use weir_config::view::Standard;
use weir_schema::{
    Estimate, HostNumbers, Length, Live, Report, Row, Sums, Top, Union, View, ViewTable,
    lists::{FIELDS, LISTS, ListName, ListRow, name_of},
};

use crate::key::Key;

/// The order of the lists that count packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Bytes.
    #[default]
    Bytes,
    /// Packets.
    Packets,
}

/// A row of a list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// The key of the row.
    pub key: Key,
    /// The measured numbers of the key.
    pub amount: Amount,
    /// True if it certainly is one of the largest keys.
    pub is_certain: bool,
    /// More numbers, if it is a host.
    pub host: Option<HostNumbers>,
}

/// The measured numbers of a row.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// The key has packets and bytes.
    Sums {
        /// Packets.
        packets: Estimate,
        /// Bytes on the wire.
        bytes: Estimate,
    },
    /// A number of different values, flows or new flows.
    Count(Estimate),
}

/// A list that the user can select.
#[derive(Clone, Debug)]
pub struct List {
    /// The name, the same in every report.
    pub name: String,
    /// The unit of the rows, if they do not count packets and bytes.
    pub counted: Option<String>,
    /// The probability that the bounds of all rows hold, 0 to 1.
    pub confidence: f64,
    /// Packets and bytes of which each row is a part.
    pub whole: [u64; 2],
    /// True if the total is that of a view's match, and not of all packets.
    pub is_of_view: bool,
    /// The length of its window so far.
    pub seconds: Length,
    /// True if the window is still open.
    pub is_open: bool,
    /// True if the numbers are lower bounds instead of estimates.
    pub is_floor: bool,
    /// The view that it shows, if the history has it under this name.
    pub view: Option<String>,
    /// Why it has no rows, if that is not because there was nothing.
    pub why_empty: Option<&'static str>,
    /// The rows, the largest first.
    pub entries: Vec<Entry>,
}

impl Amount {
    /// The number that orders the list.
    pub const fn of(self, by: By) -> Estimate {
        match (self, by) {
            (Self::Sums { bytes, .. }, By::Bytes) => bytes,
            (Self::Sums { packets, .. }, By::Packets) => packets,
            (Self::Count(count), _) => count,
        }
    }
}

impl List {
    /// Returns a caveat about the numbers, if a reader needs one.
    pub fn note(&self) -> Option<&'static str> {
        LISTS.iter().find(|of| of.name == self.name)?.note
    }
}

/// The facts that all lists of a window share.
#[derive(Clone, Copy)]
struct OfWindow {
    totals: [u64; 2],
    seconds: Length,
    is_open: bool,
}

/// All lists of a report: first those with a number key, then the views.
pub fn lists(report: &Report, by: By) -> Vec<List> {
    let top = if by == By::Packets { &report.top_by_packets } else { &report.top };
    let totals = [report.totals.packets, report.totals.bytes];
    let window = OfWindow { totals, seconds: report.window.seconds, is_open: false };
    let spread = |(list, rows): (Standard, &[Row])| {
        let ListName { name, counted, .. } = name_of(list);
        List {
            name: name.to_owned(),
            counted: counted.map(str::to_owned),
            confidence: report.spread.confidence,
            whole: totals,
            is_of_view: false,
            seconds: window.seconds,
            is_open: false,
            is_floor: false,
            view: None,
            why_empty: None,
            entries: rows.iter().filter_map(|row| Entry::of_row(row, Amount::Count(row.distinct?))).collect(),
        }
    };
    let mut all = of_top(top, window);
    all.extend(report.spread.lists().map(spread));
    all.extend(report.views.iter().flat_map(|view| of_view(view, window)));
    all
}

/// Returns true if the history has no sums of this list, because its numbers are of single windows.
fn is_of_single_windows(list: &&ListName) -> bool {
    FIELDS.iter().all(|(summed, _)| *summed != list.list)
}

/// Why the history does not have them.
const WHY_NOT_SUMMED: &str = "not kept in the history: only of the last window (End, then w)";

/// Why a view is not there.
const WHY_CHANGED: &str = "its question changed within this time: look at the time before or after";

/// All lists of several windows together, in the places that those of a report have.
pub fn of_union(union: &Union, by: By) -> Vec<List> {
    let top = if by == By::Packets { &union.top_by_packets } else { &union.top };
    let totals = [union.totals.packets, union.totals.bytes];
    let window = OfWindow { totals, seconds: union.window.seconds, is_open: false };
    let mut all = of_top(top, window);
    let not_summed = || LISTS.iter().filter(is_of_single_windows);
    all.retain(|list| not_summed().all(|of| of.name != list.name));
    let nothing = |name: &str, why| List {
        name: name.to_owned(),
        counted: None,
        confidence: 1.0,
        whole: totals,
        is_of_view: false,
        seconds: window.seconds,
        is_open: false,
        is_floor: false,
        view: None,
        why_empty: Some(why),
        entries: Vec::new(),
    };
    all.extend(not_summed().map(|of| nothing(of.name, WHY_NOT_SUMMED)));
    all.extend(union.views.iter().flat_map(|view| of_view(view, window)));
    // The history names prefixes as reports do.
    let views = union.left_out.iter().filter(|name| !name.ends_with("_prefixes"));
    all.extend(views.map(|name| {
        let why = if union.changed.contains(name) { WHY_CHANGED } else { WHY_NOT_SUMMED };
        nothing(name, why)
    }));
    all
}

/// Replaces the lists of the last window by those of the open one. Lists that the open window does not have yet stay.
pub fn with_open(mut all: Vec<List>, live: &Live, by: By) -> Vec<List> {
    let top = if by == By::Packets { &live.top_by_packets } else { &live.top };
    let totals = [live.totals.packets, live.totals.bytes];
    let window = OfWindow { totals, seconds: Length::new(live.window.seconds), is_open: true };
    let of_addresses = of_top(top, window).into_iter().filter(|list| all.is_empty() || !list.name.ends_with(" nets"));
    let open = of_addresses.chain(live.views.iter().flat_map(|view| of_view(view, window))).collect::<Vec<_>>();
    for list in open {
        match all.iter_mut().find(|other| other.name == list.name) {
            Some(place) => *place = list,
            None => all.push(list),
        }
    }
    all
}

fn of_top(top: &Top, OfWindow { totals, seconds, is_open }: OfWindow) -> Vec<List> {
    let list = |name: &str, entries| List {
        name: name.to_owned(),
        counted: None,
        confidence: top.confidence,
        whole: totals,
        is_of_view: false,
        seconds,
        is_open,
        is_floor: false,
        view: None,
        why_empty: None,
        entries,
    };
    let lists = top.lists();
    let named = |name: &ListName| {
        let found = lists.iter().find(|of| of.list == name.list)?;
        Some(list(name.name, found.rows.iter().map(Entry::of_list).collect()))
    };
    LISTS.iter().filter_map(named).collect()
}

fn of_view(view: &View, OfWindow { totals, seconds, is_open }: OfWindow) -> Vec<List> {
    let parts = view.parts().filter(|(table, total, rows)| table.is_some() || total.is_some() || !rows.is_empty());
    let list = |(table, total, rows): (Option<&ViewTable>, Option<&Sums>, &[Row])| {
        let place = table.map(|of| format!(" {} {}", of.interface, of.direction.as_deref().unwrap_or_default()));
        List {
            name: format!("{}{}", view.name, place.unwrap_or_default()).trim_end().to_owned(),
            counted: counted(&view.measure),
            confidence: view.confidence,
            whole: total.map_or(totals, |total| [total.packets.value, total.bytes.value]),
            is_of_view: total.is_some(),
            seconds,
            is_open,
            is_floor: false,
            view: table.is_none().then(|| view.name.clone()),
            why_empty: None,
            entries: rows.iter().filter_map(|row| Entry::of_row(row, amount(row)?)).collect(),
        }
    };
    parts.map(list).collect()
}

/// The unit of a view in words; `None` for packets and bytes.
fn counted(measure: &Value) -> Option<String> {
    match measure.as_str() {
        Some("bytes" | "packets" | "hosts") => None,
        Some(measure) => Some(measure.replace('_', " ")),
        None => {
            let fields = measure.get("distinct").and_then(Value::as_array).into_iter().flatten();
            let fields: Vec<_> = fields.filter_map(Value::as_str).collect();
            Some(format!("different {}", fields.join(", ")))
        }
    }
}

/// The numbers of a view's row.
pub fn amount(row: &Row) -> Option<Amount> {
    match (row.packets, row.bytes) {
        (Some(packets), Some(bytes)) => Some(Amount::Sums { packets, bytes }),
        _ => row.flows.or(row.new_flows).or(row.distinct).map(Amount::Count),
    }
}

/// How far the true number may be from the estimate: `exact`, `+` and `-` in one direction, `±` in both. If it may be
/// more than twice the estimate, `≤` and the upper bound.
pub fn away(estimate: &Estimate, text: impl Fn(u64) -> String) -> String {
    let Estimate { value, lower, upper, sampled: _ } = *estimate;
    match (value.saturating_sub(lower), upper.saturating_sub(value)) {
        (0, 0) => "exact".to_owned(),
        (0, up) => format!("+{}", text(up)),
        (down, 0) => format!("-{}", text(down)),
        (_, up) if up > value => format!("≤{}", text(upper)),
        (down, up) => format!("±{}", text(down.max(up))),
    }
}

impl Entry {
    /// A row that certainly has this rank.
    pub const fn new(rank: u32, key: Key, amount: Amount) -> Self {
        Self { rank, key, amount, is_certain: true, host: None }
    }

    /// A network is ordered by its traffic without its listed addresses.
    fn of_list(row: &ListRow<'_>) -> Self {
        let ListRow { rank, key, sums, beyond, host } = row;
        let Sums { packets, bytes } = beyond.unwrap_or(*sums);
        let key = Key::of_fields(key.fields().map(|(name, value)| (name.to_owned(), value)));
        Self { host: *host, ..Self::new(*rank, key, Amount::Sums { packets, bytes }) }
    }

    fn of_row(row: &Row, amount: Amount) -> Option<Self> {
        Some(Self { host: row.host(), ..Self::new(row.rank?, Key::of_row(&row.key), amount) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_two_signs_only_in_two_directions() {
        for (value, lower, upper, text) in [
            (5, 5, 5, "exact"),
            (5, 5, 9, "+4"),
            (5, 2, 5, "-3"),
            (5, 4, 8, "±3"),
            (5, 4, 10, "±5"),
            (5, 4, 11, "≤11"),
            (0, 0, 7, "+7"),
        ] {
            let estimate = Estimate { value, lower, upper, sampled: None };
            assert_eq!(away(&estimate, |number| number.to_string()), text);
        }
    }

    #[test]
    fn every_list_of_the_report_is_shown_with_its_rows_in_order() {
        let report: Report = serde_json::from_str(include_str!("../../schema/tests/golden/report.json")).unwrap();
        let all = lists(&report, By::Bytes);
        let names: Vec<_> = all.iter().map(|list| (list.name.as_str(), list.entries.len())).collect();
        assert_eq!(
            names[..10],
            [
                ("hosts", 2),
                ("sources", 2),
                ("destinations", 1),
                ("pairs", 2),
                ("flows", 4),
                ("services", 3),
                ("source nets", 2),
                ("destination nets", 1),
                ("floods", 1),
                ("scans", 2)
            ]
        );
        assert!(names.contains(&("web_by_server", 1)) && names.contains(&("dscp eth0 ingress", 2)), "{names:?}");
        let scanners = all.iter().find(|list| list.name == "scanners").unwrap();
        assert_eq!(scanners.counted.as_deref(), Some("different dst_ip, dst_port"));
        for list in &all {
            assert!(list.entries.is_sorted_by_key(|entry| entry.rank), "{}", list.name);
        }
        assert_eq!(all[1].entries[0].amount.of(By::Bytes), report.top.sources[0].bytes);
        assert_eq!(all[0].entries[0].host, Some(report.top.hosts[0].numbers));
        let by_packets = lists(&report, By::Packets);
        assert_eq!(by_packets[4].entries.len(), report.top_by_packets.flows.len());
    }
}
