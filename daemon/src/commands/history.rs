//! `weir history`: the past of a running weir, or of a folder.

use std::path::Path;

use anyhow::anyhow;
use weir::{
    cli::{HistoryCommand, HistoryFindArgs, HistoryPlaceArgs, HistoryTopArgs, SpanArgs},
    control::{client, past, protocol::Command},
    show::{self, past::ListForm},
};
use weir_history::Stored;
use weir_schema::{Found, FromJson, Union};
use weir_system::{clock, exit::Exit};

use super::{failure::Failure, output::print_json, query::socket};

pub(super) fn history(command: &HistoryCommand) -> Result<Exit, Failure> {
    match command {
        HistoryCommand::Top(args) => top(args),
        HistoryCommand::Find(args) => find(args),
    }
}

fn top(HistoryTopArgs { list, by, time, place, json, csv }: &HistoryTopArgs) -> Result<Exit, Failure> {
    let (from, to) = span(time);
    let union: Union = read(&ask(place, Command::Span { from, to, last: None, first: None })?)?;
    let form = match (json, csv) {
        (true, _) => ListForm::Json,
        (_, true) => ListForm::Csv,
        _ => ListForm::Text,
    };
    let standard = show::past::lists().find(|(name, _)| name == list).map(|(_, standard)| standard);
    let standard = standard.ok_or_else(|| usage(format!("there is no list {list}")))?;
    show::past::list(&union, standard, by == "packets", form)?;
    Ok(Exit::Done)
}

fn find(HistoryFindArgs { keys, time, place, json }: &HistoryFindArgs) -> Result<Exit, Failure> {
    let (from, to) = span(time);
    let answer = ask(place, Command::Find { keys: keys.clone(), from, to })?;
    if *json {
        return print_json(answer);
    }
    show::past::found(&read::<Found>(&answer)?)?;
    Ok(Exit::Done)
}

/// The time of a command as text.
pub(super) fn span(SpanArgs { since, from, to }: &SpanArgs) -> (Option<String>, Option<String>) {
    let start = since.map_or(*from, |ago| show::report::before(clock::now().wall, ago));
    (start.map(|time| time.to_string()), to.map(|time| time.to_string()))
}

/// Asks a folder, or the running weir.
fn ask(HistoryPlaceArgs { path, socket: whom }: &HistoryPlaceArgs, command: Command) -> Result<String, Failure> {
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

fn usage(why: String) -> Failure {
    Failure { exit: Exit::Usage, error: anyhow::Error::msg(why) }
}

fn read<T: FromJson>(answer: &str) -> Result<T, Failure> {
    T::from_json(answer.as_bytes()).map_err(|error| show::ShowError::Foreign(error).into())
}
