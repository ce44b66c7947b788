//! `weir report`: the last window, or several windows together.

use std::{io::Write, path::Path, time::Duration};

use jiff::{SignedDuration, Timestamp};
use weir_config::TypedTime;
use weir_schema::{REPORTS_KEPT, Report, Union, write_overview, write_tables, write_union, write_union_overview};

use weir_system::screen::{self, Screen};

use super::{Form, ShowError, pager, style, understood};
use crate::{
    cli::ReportArgs,
    control::{client, protocol::Command},
};

/// How to see more than the first screen.
const MORE: &str = "all of it: weir report --full";
/// The hint below several windows together.
const MORE_TOGETHER: &str = "all of it: add --full";

/// Shows the last report of the weir with this control socket.
///
/// # Errors
///
/// There is none, or it cannot be shown.
pub fn last(socket: &Path, form: Form) -> Result<(), ShowError> {
    let answer = client::ask(socket, Command::Report { last: None })?;
    if form.json {
        return line(answer.get());
    }
    report(&understood(&answer)?, form, MORE)
}

/// Shows the last windows together, at most `last` of them.
///
/// # Errors
///
/// There is none, or they cannot be shown.
pub fn together(socket: &Path, last: u32, form: Form) -> Result<(), ShowError> {
    let answer = client::ask(socket, Command::Report { last: Some(last) })?;
    let reports: Vec<Report> = understood(&answer)?;
    Union::of(&reports).map_or(Ok(()), |together| union(&together, form))
}

/// The time this long ago; `None` if that is before all times.
fn before(now: Timestamp, ago: Duration) -> Option<Timestamp> {
    now.checked_sub(SignedDuration::try_from(ago).ok()?).ok()
}

/// The start and the end of a time as it was typed. Without a start, an end without a date is of today.
pub fn times(
    (since, from, to): (Option<Duration>, Option<Timestamp>, Option<TypedTime>),
    now: Timestamp,
) -> [Option<Timestamp>; 2] {
    let start = since.map_or(from, |ago| before(now, ago));
    [start, to.map(|to| start.map_or_else(|| to.today(now), |start| to.after(start)))]
}

/// The start and the end of the shortest time that only the windows touch that have this time.
pub fn around(at: Timestamp) -> [Option<Timestamp>; 2] {
    [Some(at), at.checked_add(SignedDuration::from_nanos(1)).ok()]
}

/// The request of `weir report`, if it is for more than the last report.
pub fn asked_for(args: &ReportArgs, now: Timestamp) -> Option<Command> {
    let ReportArgs { last, since, from, to, at, .. } = args;
    let text = |time: Timestamp| Some(time.to_string());
    let [start, to] = at.map_or_else(|| times((*since, *from, *to), now), around);
    match (last, start, to) {
        (Some(last), ..) if *last as usize <= REPORTS_KEPT => None,
        (None, None, None) => None,
        (last, start, to) => {
            Some(Command::Span { from: start.and_then(text), to: to.and_then(text), last: *last, first: None })
        }
    }
}

/// Shows the windows of the history that this command requests, together.
///
/// # Errors
///
/// There is none, or they cannot be shown.
pub fn past(socket: &Path, span: Command, form: Form) -> Result<(), ShowError> {
    let answer = client::ask(socket, span)?;
    if form.json {
        return line(answer.get());
    }
    union(&understood(&answer)?, form)
}

/// Shows a report.
///
/// # Errors
///
/// It cannot be shown.
pub fn report(report: &Report, form: Form, more: &str) -> Result<(), ShowError> {
    let mut text = Vec::new();
    match form.full {
        true => write_tables(report, style(), &mut text)?,
        false => write_overview(report, style(), more, &mut text)?,
    }
    Ok(pager::show(&text)?)
}

/// Shows several windows together.
///
/// # Errors
///
/// They cannot be shown.
pub fn union(union: &Union, form: Form) -> Result<(), ShowError> {
    if form.json {
        return line(&serde_json::to_string(union)?);
    }
    let mut text = Vec::new();
    match form.full {
        true => write_union(union, style(), &mut text)?,
        false => write_union_overview(union, style(), MORE_TOGETHER, &mut text)?,
    }
    Ok(pager::show(&text)?)
}

fn line(text: &str) -> Result<(), ShowError> {
    Ok(writeln!(Screen::stdout(screen::Form::Json), "{text}")?)
}
