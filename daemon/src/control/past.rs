//! Questions to the history and about the usage, as commands.

use std::net::IpAddr;

use jiff::Timestamp;
use weir_history::{
    Compared, OfKey, Query, Time,
    usage::{self, Asked, By, HostQuery, Whose},
};

use super::protocol::Command;
use crate::history::time;

/// The query of this command.
///
/// # Errors
///
/// What is wrong with it, for the author of the client.
pub fn query(command: Command) -> Result<Query, String> {
    match command {
        Command::History { from, to, points, key, view } => {
            let (time, points) = (time(from.as_deref(), to.as_deref())?, points.map(|points| points as usize));
            Ok(match key {
                Some(key) => Query::OfKey(OfKey { key, view }, time, points),
                None => Query::History(time, points),
            })
        }
        Command::Find { keys, from, to } => Ok(Query::Find(keys, time(from.as_deref(), to.as_deref())?)),
        Command::Changes { list, by, from, to, against } => {
            let (now, before) = (time(Some(&from), Some(&to))?, time(against.as_deref(), None)?.from);
            let Time { from: Some(from), to: Some(to) } = now else { return Err("from, to: give both".to_owned()) };
            compared(list, by, (from, to), before).map(Query::Changes)
        }
        Command::Flows { question, by, from, to } => {
            Ok(Query::Flows(question, by, time(from.as_deref(), to.as_deref())?))
        }
        Command::Span { from, to, last, first } => span(time(from.as_deref(), to.as_deref())?, last, first),
        _ => Err("this is not a question to the history".to_owned()),
    }
}

/// A list of a time and of an earlier one, which begins at `before`, or is the time just before.
///
/// # Errors
///
/// The earlier time is before all times.
pub fn compared(
    list: String,
    by: Option<String>,
    (from, to): (Timestamp, Timestamp),
    before: Option<Timestamp>,
) -> Result<Compared, String> {
    let just_before = || from.checked_sub(to.duration_since(from)).map_err(|error| error.to_string());
    let before = before.map_or_else(just_before, Ok)?;
    Ok(Compared { list, by: by.unwrap_or_else(|| "bytes".to_owned()), now: (from, to), before })
}

/// What is asked about the usage, as programs write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageQuestion {
    /// `hosts`, `networks` or an own address; if missing, interfaces.
    pub of: Option<String>,
    /// Only this interface.
    pub interface: Option<String>,
    /// `hour`, `day` or `month`.
    pub by: Option<String>,
    /// How many periods.
    pub last: Option<u32>,
    /// How many hosts or networks in each period.
    pub top: Option<u32>,
}

/// A query about the usage, of so many periods until this time.
///
/// # Errors
///
/// What is wrong with it, for the author of the client.
pub fn usage(question: UsageQuestion, to: Option<Timestamp>) -> Result<Asked, String> {
    let UsageQuestion { of, interface, by, last, top } = question;
    let by = by.map_or(Ok(By::Month), |by| by.parse()).map_err(|why| format!("by: {why}"))?;
    let whose = match of.as_deref() {
        None if top.is_some() => return Err("top: interfaces have all their rows".to_owned()),
        None => return Ok(Asked::Interfaces(usage::Query { interface, by, last, to })),
        Some(_) if interface.is_some() => return Err("of, interface: give only one of them".to_owned()),
        Some("hosts") => Whose::Hosts,
        Some("networks") => Whose::Networks,
        Some(address) => Whose::Host(
            address
                .parse::<IpAddr>()
                .map(|address| address.to_canonical())
                .map_err(|_| format!("of: {address:?} is neither hosts, networks nor an IP address"))?,
        ),
    };
    Ok(Asked::Hosts(HostQuery { whose, by, last, top, to }))
}

/// The union of this time, or of the last windows until its end, or of the first ones since its start.
fn span(time: Time, last: Option<u32>, first: Option<u32>) -> Result<Query, String> {
    match (last, first, time) {
        (None, None, time) => Ok(Query::Span(time)),
        (Some(windows), None, Time { from: None, to }) => Ok(Query::Last(windows, to)),
        (None, Some(windows), Time { from, to: None }) => Ok(Query::First(windows, from)),
        (Some(_), None, _) => Err("last: there is also a start: give only one of them".to_owned()),
        (None, Some(_), _) => Err("first: there is also an end: give only one of them".to_owned()),
        (Some(_), Some(_), _) => Err("last, first: give only one of them".to_owned()),
    }
}
