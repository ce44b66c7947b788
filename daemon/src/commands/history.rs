//! `weir history`: the past of a running weir, or of a folder.

use std::path::Path;

use anyhow::anyhow;
use jiff::Timestamp;
use weir::{
    cli::{Earlier, HistoryChangesArgs, HistoryCommand, HistoryFindArgs, HistoryPlaceArgs, HistoryTopArgs, SpanArgs},
    control::{client, past, protocol::Command},
    show,
};
use weir_history::Stored;
use weir_schema::{
    Changes, Found, FromJson, Union,
    listing::{ListForm, summable_list},
};
use weir_system::{
    clock,
    exit::Exit,
    log::{self, Format},
};

use super::{failure::Failure, output::print_json, query::socket};

pub(super) fn history(command: &HistoryCommand) -> Result<Exit, Failure> {
    let _log = log_of_damage()?;
    match command {
        HistoryCommand::Top(args) => top(args),
        HistoryCommand::Find(args) => find(args),
        HistoryCommand::Changes(args) => changes(args),
    }
}

/// Begins the log, which names the damaged blocks of a folder.
pub(super) fn log_of_damage() -> Result<log::Ended, Failure> {
    Ok(log::begin(Format::chosen(None).map_err(usage)?))
}

fn top(HistoryTopArgs { list, by, time, place, json, csv }: &HistoryTopArgs) -> Result<Exit, Failure> {
    let (from, to) = span(time);
    let union: Union = read(&ask(place, Command::Span { from, to, last: None, first: None })?)?;
    show::past::list(&union, summable_list(list).map_err(usage)?, by == "packets", form(*json, *csv))?;
    Ok(Exit::Done)
}

fn changes(args: &HistoryChangesArgs) -> Result<Exit, Failure> {
    let HistoryChangesArgs { list, by, time, against, place, json, csv } = args;
    let now = clock::now().wall;
    let [Some(from), to] = times(time, now) else {
        return Err(usage("name a time: --since 1h, --from and --to, or --at".to_owned()));
    };
    let mut asked = (from, to.unwrap_or(now));
    if time.at.is_some() {
        let (from, to) = (Some(asked.0.to_string()), Some(asked.1.to_string()));
        let union: Union = read(&ask(place, Command::Span { from, to, last: None, first: None })?)?;
        asked = (union.window.start, union.window.end);
    }
    let (from, to) = asked;
    if to <= from {
        return Err(usage(format!("this time ends ({to}) before it begins ({from})")));
    }
    let start = Earlier::start(*against, from, to);
    let start = start.ok_or_else(|| usage("--against is before all times".to_owned()))?;
    let (from, to, against) = (from.to_string(), to.to_string(), Some(start.to_string()));
    let command = Command::Changes { list: list.clone(), by: Some(by.clone()), from, to, against };
    show::past::changes(&read::<Changes>(&ask(place, command)?)?, form(*json, *csv))?;
    Ok(Exit::Done)
}

pub(super) const fn form(json: bool, csv: bool) -> ListForm {
    match (json, csv) {
        (true, _) => ListForm::Json,
        (_, true) => ListForm::Csv,
        _ => ListForm::Text,
    }
}

fn find(HistoryFindArgs { keys, time, place, json }: &HistoryFindArgs) -> Result<Exit, Failure> {
    find_keys(keys.clone(), span(time), place, *json)
}

/// Prints what the lists of a time had of keys.
pub(super) fn find_keys(
    keys: Vec<String>,
    (from, to): (Option<String>, Option<String>),
    place: &HistoryPlaceArgs,
    json: bool,
) -> Result<Exit, Failure> {
    let answer = ask(place, Command::Find { keys, from, to })?;
    if json {
        return print_json(answer);
    }
    show::past::found(&read::<Found>(&answer)?)?;
    Ok(Exit::Done)
}

/// The time of a command as text.
pub(super) fn span(time: &SpanArgs) -> (Option<String>, Option<String>) {
    let [from, to] = times(time, clock::now().wall).map(|time| time.map(|time| time.to_string()));
    (from, to)
}

fn times(SpanArgs { since, from, to, at }: &SpanArgs, now: Timestamp) -> [Option<Timestamp>; 2] {
    at.map_or_else(|| show::report::times((*since, *from, *to), now), show::report::around)
}

/// Asks a folder, or the running weir.
pub(super) fn ask(
    HistoryPlaceArgs { path, socket: whom }: &HistoryPlaceArgs,
    command: Command,
) -> Result<String, Failure> {
    let Some(folder) = path else {
        return Ok(client::ask(&socket(whom)?, command)?.get().to_owned());
    };
    let stored = Stored::open(folder).ok_or_else(|| nothing(folder))?;
    let query = past::query(command).map_err(usage)?;
    stored.answer(&query).map_err(usage)
}

fn nothing(folder: &Path) -> Failure {
    let why = anyhow!("{} has no history: name a folder with files such as windows-000000000000", folder.display());
    Failure { exit: Exit::Usage, error: why }
}

pub(super) fn usage(why: String) -> Failure {
    Failure { exit: Exit::Usage, error: anyhow::Error::msg(why) }
}

pub(super) fn read<T: FromJson>(answer: &str) -> Result<T, Failure> {
    T::from_json(answer.as_bytes()).map_err(|error| show::ShowError::Foreign(error).into())
}
