//! The lists of the live screen: those of an answer, and tables of routers, of distinct counts and of defects.

use std::cmp::Reverse;

use weir_schema::{Estimate, Length, Tally};
use weir_top::{Amount, By, Entry, Key, List};

use crate::answer::{Bounded, Defect, DistinctAnswer, ListAnswer, RowAnswer, SpreadAnswer, SpreadRow, WindowAnswer};
use crate::group::called;

/// Lists that come first, in this order.
const FIRST: [&str; 5] = ["sources", "destinations", "pairs", "flows", "services"];
/// The lists of floods and scans: the name in reports, the name on the screen, and the unit that they count.
const SPREADS: [(&str, &str, &str); 3] = [
    ("sources_per_destination", "floods", "sources"),
    ("destinations_per_source", "scans", "destinations"),
    ("ports_per_source", "ports", "ports"),
];

/// The data for the lists.
pub struct Lists<'a> {
    /// The window with its merged numbers.
    pub answer: &'a WindowAnswer,
    /// The packets that each router saw in it, by the name of the router.
    pub routers: Vec<(String, Tally)>,
    /// The defects of all reports that were read.
    pub defects: &'a [Defect],
}

/// A number with its bounds.
pub const fn estimate(value: u64, lower: u64, upper: u64) -> Estimate {
    Estimate { value, lower, upper, sampled: None }
}

impl Lists<'_> {
    /// All lists by bytes, and all by packets.
    pub fn in_both_orders(&self) -> [Vec<List>; 2] {
        [By::Bytes, By::Packets].map(|by| self.all(by))
    }

    fn all(&self, by: By) -> Vec<List> {
        let WindowAnswer { distinct, lists, spread, .. } = self.answer;
        let place = |list: &ListAnswer| FIRST.iter().position(|name| *name == list.name);
        let mut first: Vec<&ListAnswer> = lists.iter().filter(|list| place(list).is_some()).collect();
        first.sort_by_key(|list| place(list));
        let mut all: Vec<List> = first.into_iter().map(|list| self.of_list(list, by)).collect();
        all.push(self.of_routers(by));
        all.extend(spread.iter().map(|spread| self.of_spread(spread)));
        all.extend(lists.iter().filter(|list| place(list).is_none()).map(|list| self.of_list(list, by)));
        all.extend((!distinct.is_empty()).then(|| self.of_distinct(distinct)));
        all.extend((!self.defects.is_empty()).then(|| self.of_defects()));
        all
    }

    fn list(&self, name: &str, entries: Vec<Entry>) -> List {
        let WindowAnswer { start, end, totals, .. } = self.answer;
        List {
            name: name.to_owned(),
            counted: None,
            confidence: 1.0,
            whole: [totals.packets, totals.bytes],
            is_of_view: false,
            seconds: Length::new(end.duration_since(*start).as_secs_f64()),
            is_open: false,
            is_floor: false,
            view: None,
            why_empty: None,
            entries,
        }
    }

    fn of_list(&self, list: &ListAnswer, by: By) -> List {
        let ListAnswer { name, question, is_usual, by: fields, confidence, by_bytes, by_packets, .. } = list;
        let rows = if by == By::Packets { by_packets } else { by_bytes };
        let entry = |(rank, row): (u32, &RowAnswer)| {
            let RowAnswer { key, packets, bytes, is_certain } = row;
            let bounds = |of: &Bounded| estimate(of.lower, of.lower, of.upper);
            let amount = Amount::Sums { packets: bounds(packets), bytes: bounds(bytes) };
            Entry { rank, key: key_of(fields, key), amount, is_certain: *is_certain, host: None }
        };
        let entries = (1..).zip(rows).map(entry).collect();
        List {
            confidence: *confidence,
            is_floor: true,
            ..self.list(&called(name, question.as_deref(), *is_usual), entries)
        }
    }

    fn of_spread(&self, spread: &SpreadAnswer) -> List {
        let SpreadAnswer { name, question, is_usual, by, confidence, routers: _, rows } = spread;
        let known = SPREADS.iter().find(|(of, ..)| of == name);
        let (name, counted) = known.map_or((&**name, "different values"), |(_, name, counted)| (*name, *counted));
        let entry = |(rank, row): (u32, &SpreadRow)| {
            let SpreadRow { key, value, lower, upper } = row;
            Entry::new(rank, key_of(by, key), Amount::Count(estimate(*value, *lower, *upper)))
        };
        let entries = (1..).zip(rows).map(entry).collect();
        List {
            confidence: *confidence,
            counted: Some(counted.to_owned()),
            ..self.list(&called(name, question.as_deref(), *is_usual), entries)
        }
    }

    fn of_routers(&self, by: By) -> List {
        let mut routers: Vec<&(String, Tally)> = self.routers.iter().collect();
        let order = |of: &Tally| if by == By::Packets { of.packets } else { of.bytes };
        routers.sort_by_key(|(name, sums)| (Reverse(order(sums)), name));
        let exact = |number| estimate(number, number, number);
        let entry = |(rank, (name, sums)): (u32, &(String, Tally))| {
            let amount = Amount::Sums { packets: exact(sums.packets), bytes: exact(sums.bytes) };
            Entry::new(rank, words([name]), amount)
        };
        self.list("routers", (1..).zip(routers).map(entry).collect())
    }

    fn of_distinct(&self, distinct: &[DistinctAnswer]) -> List {
        let entry = |(rank, count): (u32, &DistinctAnswer)| {
            let DistinctAnswer {
                name, question, is_usual, value, lower, upper, routers, is_fleet, key_id, lg_k, ..
            } = count;
            let name = &called(name, question.as_deref(), *is_usual);
            let key_id = key_id.as_deref().unwrap_or("of two days");
            let whose = if *is_fleet { String::new() } else { format!("apart: key {key_id}, lg_k {lg_k}") };
            let of = format!("{routers} router{}", if *routers == 1 { "" } else { "s" });
            let words = words([name, &of, &whose].into_iter().filter(|word| !word.is_empty()));
            Entry::new(rank, words, Amount::Count(estimate(*value, *lower, *upper)))
        };
        let confidence = distinct.iter().map(|count| count.confidence).fold(1.0, f64::min);
        let entries = (1..).zip(distinct).map(entry).collect();
        List { confidence, counted: Some("values".to_owned()), ..self.list("distinct", entries) }
    }

    fn of_defects(&self) -> List {
        let entry = |(rank, defect): (u32, &Defect)| {
            let Defect { what, observer: _, name, reports, detail } = defect;
            let words = [what.name(), name, detail].into_iter().filter(|word| !word.is_empty());
            Entry::new(rank, self::words(words), Amount::Count(estimate(*reports, *reports, *reports)))
        };
        let entries = (1..).zip(self.defects).map(entry).collect();
        List { counted: Some("reports".to_owned()), ..self.list("defects", entries) }
    }
}

/// The key with these fields, whose values are separated by spaces.
fn key_of(fields: &[String], key: &str) -> Key {
    match fields {
        [] => words([key]),
        fields => Key::of_fields(fields.iter().cloned().zip(key.split(' ').map(str::to_owned))),
    }
}

/// A key that is only words.
fn words<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Key {
    Key::of_fields(words.into_iter().map(|word| (String::new(), word.as_ref().to_owned())))
}
