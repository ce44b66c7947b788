//! Answers queries from the files and the open hour: one interface and direction after the other, and a month at a
//! time, so that memory does not depend on how much there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use jiff::Timestamp;
use serde::Serialize;
use weir_schema::{USAGE_SCHEMA, Usage};

use super::{
    calendar::{By, Period, month_of_hour},
    files::Files,
    hour::{Block, Name},
    rows::Hours,
};
use crate::query::Answer;

/// The most rows of an answer.
pub const ROWS_MAX: usize = 900;
/// The most interfaces and directions of an answer.
const NAMES_MAX: usize = 256;

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Only this interface; `None` for all.
    pub interface: Option<String>,
    /// The length of a period.
    pub by: By,
    /// How many periods; if missing, as many as are usual.
    pub last: Option<u32>,
    /// The end of the last one, or a time in it; if missing, that of the last window.
    pub to: Option<Timestamp>,
}

/// What is known besides the files.
#[derive(Debug)]
pub struct Known {
    /// Hours that are not in the files.
    pub unwritten: Vec<Block>,
    /// The end of the last window.
    pub until: Timestamp,
    /// The day on which a month begins.
    pub first_day: u8,
}

impl Query {
    /// The answer.
    pub fn answer(&self, files: &Files, known: &Known) -> Answer {
        let Known { unwritten, until, first_day } = known;
        let (until, first_day) = (*until, *first_day);
        let periods = Period::asked(self.last, self.to.unwrap_or(until), self.by, first_day)?;
        let source = Source { files, unwritten };
        let names = source.names(&periods, self.interface.as_deref());
        if names.len() > NAMES_MAX {
            return Err(format!("{} interfaces and directions: ask for one interface", names.len()));
        }
        if let Some(interface) = self.interface.as_ref().filter(|_| names.is_empty()) {
            let known: BTreeSet<_> = source.names(&periods, None).into_iter().map(|name| name.interface).collect();
            let known = Vec::from_iter(known).join(", ");
            let known = if known.is_empty() { "nothing is known yet".to_owned() } else { format!("there are {known}") };
            return Err(format!("nothing is known of {interface} in this time: {known}"));
        }
        let head = Usage {
            schema: USAGE_SCHEMA.to_owned(),
            by: self.by.name().to_owned(),
            day: first_day,
            until,
            rows: Vec::new(),
        };
        // Rows are written one by one, because all of them take several times as much memory as their JSON.
        let mut text = json(&head)?;
        text.truncate(text.len() - "]}".len());
        let mut rows = 0;
        for name in &names {
            for some in by_months(&periods) {
                for row in source.hours(name, some).into_iter().filter_map(|(period, of)| of.row(name, period, until)) {
                    rows += 1;
                    if rows > ROWS_MAX {
                        return Err(format!("more than {ROWS_MAX} rows: ask for one interface, or for fewer periods"));
                    }
                    let comma = if rows > 1 { "," } else { "" };
                    let _ = write!(text, "{comma}{}", json(&row)?);
                }
            }
        }
        text.push_str("]}");
        Ok(text)
    }
}

/// Where hours are.
struct Source<'a> {
    files: &'a Files,
    unwritten: &'a [Block],
}

impl Source<'_> {
    /// Calls `each` with every hour of these months.
    fn visit(&self, months: &BTreeSet<String>, mut each: impl FnMut(&Block)) {
        for month in months {
            self.files.visit(month, |block: Block| each(&block));
        }
        self.unwritten.iter().filter(|block| months.contains(&month_of_hour(block.hour))).for_each(each);
    }

    /// The interfaces and directions of these periods.
    fn names(&self, periods: &[Period], only: Option<&str>) -> BTreeSet<Name> {
        let mut names = BTreeSet::new();
        self.visit(&months(periods), |block| {
            let known = block.tracks.iter().map(|(name, _)| name);
            let wanted = known.filter(|name| only.is_none_or(|only| only == name.interface));
            // One more than an answer may have, to tell that there are too many.
            wanted.for_each(|name| {
                if names.len() <= NAMES_MAX {
                    names.insert(name.clone());
                }
            });
        });
        names
    }

    /// The hours of an interface and direction by these periods.
    fn hours(&self, name: &Name, periods: &[Period]) -> BTreeMap<Period, Hours> {
        let mut all = BTreeMap::<_, Hours>::new();
        self.visit(&months(periods), |block| {
            let second = block.hour.saturating_mul(3600);
            let nth = periods.partition_point(|period| period.end <= second);
            if let Some(period) = periods.get(nth).filter(|period| period.start <= second) {
                all.entry(*period).or_default().add(block, name);
            }
        });
        all
    }
}

/// The calendar months of these periods.
fn months(periods: &[Period]) -> BTreeSet<String> {
    periods.iter().flat_map(Period::months).collect()
}

/// The periods in groups, each of which is in the same calendar months.
pub fn by_months(periods: &[Period]) -> impl Iterator<Item = &[Period]> {
    periods.chunk_by(|one, next| one.months().eq(next.months()))
}

fn json(of: &impl Serialize) -> Answer {
    serde_json::to_string(of).map_err(|error| format!("weir cannot encode its answer: {error}"))
}
