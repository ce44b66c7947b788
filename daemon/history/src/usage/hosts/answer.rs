//! Answers queries about hosts and networks from the days in the files and the open one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use weir_config::{Addresses, names::Prefix};
use weir_schema::{HostPeriod, HostUsage, HostUsageRow, USAGE_SCHEMA};

use super::{DAY_SECONDS, Day, HOSTS_MAX, MEMBER_BYTES, Member, Sums};
use crate::{
    query::Answer,
    usage::{
        answer::{ROWS_MAX, by_months},
        calendar::{By, Period},
        files::Files,
        hour::TOLERANCE_MS,
    },
};

/// So many periods are read at a time, and only their rows are kept.
const TOGETHER: usize = 8;
/// The memory of these periods, in bytes.
pub const ANSWER_BYTES: usize = TOGETHER * HOSTS_MAX * MEMBER_BYTES;
/// How many rows a period has unless it is asked for another number.
const ROWS: u32 = 10;

/// Whose usage is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The largest hosts.
    Hosts,
    /// This host.
    Host(IpAddr),
    /// The own networks of the configuration.
    Networks,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostQuery {
    /// Whose usage.
    pub whose: Whose,
    /// The length of a period.
    pub by: By,
    /// How many periods; if missing, as many as are usual.
    pub last: Option<u32>,
    /// How many rows a period has at most.
    pub top: Option<u32>,
    /// The end of the last period, or a time in it; if missing, that of the last window.
    pub to: Option<Timestamp>,
}

/// What is known besides the files.
#[derive(Debug)]
pub struct Known {
    /// Days that are not in the files.
    pub unwritten: Vec<Day>,
    /// The end of the last window.
    pub until: Timestamp,
    /// The day on which a month begins.
    pub first_day: u8,
    /// How much of addresses may be shown.
    pub addresses: Addresses,
    /// Where hosts are.
    pub own: Vec<Prefix>,
}

impl HostQuery {
    /// The answer.
    pub fn answer(&self, files: &Files, known: &Known) -> Answer {
        let Known { unwritten, until, first_day, addresses, own } = known;
        if self.whose != Whose::Networks && *addresses != Addresses::Full {
            return Err(format!(
                "the configuration has `addresses: {}`, so weir keeps no usage of hosts, and shows none: `weir usage \
                 networks` has that of the own networks",
                addresses.name()
            ));
        }
        if self.by == By::Hour {
            return Err("hosts and networks have their usage by day and month. The history has hours: `weir history \
                        top hosts --from 14:00 --to 15:00`"
                .to_owned());
        }
        let periods = Period::asked(self.last, self.to.unwrap_or(*until), self.by, *first_day)?;
        let some = by_months(&periods).flat_map(|of_months| of_months.chunks(TOGETHER));
        let all = some.flat_map(|some| self.days(some, files, unwritten));
        let mut is_known = false;
        let periods: Vec<_> = all
            .map(|(period, of)| {
                is_known |= !of.members.is_empty();
                self.period(period, of, *until)
            })
            .collect();
        if let Whose::Host(host) = self.whose
            && !is_known
            && !own.iter().any(|prefix| prefix.contains(host))
        {
            return Err(format!("{host} is in no own network, so it has no usage: `weir check` says which are own"));
        }
        let answered = HostUsage {
            schema: USAGE_SCHEMA.to_owned(),
            by: self.by.name().to_owned(),
            day: *first_day,
            until: *until,
            periods,
        };
        let rows: usize = answered.periods.iter().map(|period| period.rows.len()).sum();
        if rows > ROWS_MAX {
            return Err(format!("{rows} rows, and an answer has at most {ROWS_MAX}: ask for fewer periods, or rows"));
        }
        serde_json::to_string(&answered).map_err(|error| format!("weir cannot encode its answer: {error}"))
    }

    /// The sums of these periods, as far as the answer needs them.
    fn days(&self, periods: &[Period], files: &Files, unwritten: &[Day]) -> BTreeMap<Period, Day> {
        let mut all = BTreeMap::new();
        let mut add = |mut day: Day| {
            let second = day.day.saturating_mul(DAY_SECONDS);
            let nth = periods.partition_point(|period| period.end <= second);
            if let Some(period) = periods.get(nth).filter(|period| period.start <= second) {
                day.members.retain(|member, _| self.is_about(member));
                let sum = all.entry(*period).or_insert_with(|| Day::new(0, 0));
                sum.add_day(&day);
                sum.shorten(HOSTS_MAX);
            }
        };
        let months: BTreeSet<_> = periods.iter().flat_map(Period::months).collect();
        for month in &months {
            files.visit(month, &mut add);
        }
        unwritten.iter().cloned().for_each(add);
        all
    }

    fn is_about(&self, member: &Member) -> bool {
        match self.whose {
            Whose::Hosts => matches!(member, Member::Host(_)),
            Whose::Host(host) => *member == Member::Host(host),
            Whose::Networks => matches!(member, Member::Network(_)),
        }
    }

    fn period(&self, Period { start, end }: Period, mut of: Day, until: Timestamp) -> HostPeriod {
        // A single host has a row in any case, so nothing has to be said of others.
        let is_single = matches!(self.whose, Whose::Host(_));
        if let Whose::Host(host) = self.whose {
            of.members.entry(Member::Host(host)).or_insert(Sums::at_most(of.unlisted));
        }
        let time = |second| Timestamp::from_second(second).unwrap_or_default();
        let row = |member: &Member, Sums { down, up, bytes }: &Sums| {
            let (host, network) = match member {
                Member::Host(address) => (Some(*address), None),
                Member::Network(name) => (None, Some(name.clone())),
            };
            HostUsageRow { host, network, down: *down, up: *up, bytes: *bytes }
        };
        let mut members: Vec<_> = of.members.iter().collect();
        members.sort_by(|(one, a), (other, b)| b.bytes.value.cmp(&a.bytes.value).then_with(|| one.cmp(other)));
        let shown = self.top.unwrap_or(ROWS) as usize;
        // The most that any other has.
        let left_out = members.iter().skip(shown).map(|(_, sums)| sums.bytes.upper);
        let of_others = left_out.fold(of.unlisted, |most, upper| Some(most?.max(upper?)));
        let so_far = until.as_millisecond().clamp(start * 1000, end * 1000) - start * 1000;
        HostPeriod {
            start: time(start),
            end: time(end),
            seen_seconds: of.seen_ms as f64 / 1e3,
            unseen_seconds: unseen(so_far.unsigned_abs(), of.seen_ms),
            confidence: (1.0 - of.doubt).max(0.0),
            unlisted: of_others.filter(|_| !is_single && self.whose != Whose::Networks),
            rows: members.into_iter().take(shown).map(|(member, sums)| row(member, sums)).collect(),
        }
    }
}

/// How much of the elapsed time weir did not see, in seconds.
fn unseen(so_far_ms: u64, seen_ms: u64) -> f64 {
    let missing = so_far_ms.saturating_sub(seen_ms);
    if missing < TOLERANCE_MS { 0.0 } else { missing as f64 / 1e3 }
}
