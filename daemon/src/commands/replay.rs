//! `weir replay`: measures captures.

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use weir::{
    cli::ReplayArgs,
    history,
    replay::{self, Listener, Options},
    show::{Form, replayed::Printed},
};
use weir_common::ledger::Tally;
use weir_config::{Addresses, Config, Location};
use weir_datapath::capture::{Capture, input};
use weir_history::History;
use weir_schema::{Remembered, Report};
use weir_system::{
    exit::Exit,
    log::{self, Format, say},
};

use super::{failure::Failure, settings::read_config};

pub(super) fn replay_captures(args: ReplayArgs) -> Result<Exit, Failure> {
    let ReplayArgs { files, config, json, full, window, views, asks, kernel, history, seed } = args;
    let mut config = read_config(&config)?;
    add_views(&mut config, &views)?;
    check_readable(&files)?;
    let options = Options { windows: window, files, kernel, asks, seed, progress: io::stderr().is_terminal() };
    let form = Form { json, full };
    let log_format = Format::chosen(None).map_err(|why| Failure::usage(anyhow::Error::msg(why)))?;
    // A history that cannot be written says so in the log.
    let _log = history.is_some().then(|| log::begin(log_format));
    let past = history.map(|folder| filled(&mut config, folder)).transpose()?;
    let mut printed = Listening { printed: Printed::new(form, window), past };
    let broken = replay::replay_to(&config, &options, &mut printed)?;
    let Listening { printed, past } = printed;
    drop(past);
    printed.finish()?;
    for broken in &broken {
        say(format_args!("weir: {broken}"));
    }
    Ok(if broken.is_empty() { Exit::Done } else { Exit::Broken })
}

/// Prints the reports of a replay, and adds them to a history.
struct Listening {
    printed: Printed,
    past: Option<History>,
}

impl Listener for Listening {
    fn second(&mut self, _: u64, _: Tally) -> io::Result<()> {
        Ok(())
    }

    fn remember(&mut self, report: &Report, longer: Option<Remembered>) -> io::Result<()> {
        if let Some(history) = &self.past {
            history.add_waiting(Box::new(Remembered::report(longer, report).masked(Addresses::Full)));
        }
        Ok(())
    }

    fn report(&mut self, report: &Report) -> io::Result<()> {
        self.printed.add(report)
    }
}

/// The history that a replay fills. It has no other observer than a replay.
fn filled(config: &mut Config, folder: PathBuf) -> Result<History, Failure> {
    /// The name of the observer in the files.
    const OBSERVER: &str = "replayed";
    let usage = |error: anyhow::Error| Failure { exit: Exit::Usage, error };
    if weir_history::observer_of(&folder).is_some_and(|observer| observer != OBSERVER) {
        return Err(usage(anyhow::anyhow!(
            "--history {}: this folder has the history of a weir that measured: name another one",
            folder.display()
        )));
    }
    let settings = config.history.get_or_insert_default();
    settings.path = Location::Folder(folder);
    history::start(config, None, OBSERVER)
        .map_err(|error| Failure { exit: Exit::Impossible, error: error.into() })?
        .ok_or_else(|| usage(anyhow::anyhow!("there is no history")))
}

/// Adds the views on the command line. A view without a name is named by its position.
fn add_views(config: &mut Config, views: &[String]) -> Result<(), Failure> {
    for (nth, text) in (1..).zip(views) {
        let view = config.parse_view(text, "--view", &format!("view{nth}")).map_err(Failure::usage)?;
        if config.views.iter().any(|known| known.name == view.name) {
            return Err(Failure::usage(anyhow::anyhow!(
                "--view {text}: there is a view {} already: give it another `name`",
                view.name
            )));
        }
        config.views.push(view);
    }
    Ok(())
}

/// Checks that these captures are there.
pub(super) fn check_readable(files: &[PathBuf]) -> Result<(), Failure> {
    for file in files.iter().filter(|file| !input::is_stdin(file)) {
        fs::metadata(file)
            .map_err(|error| Failure::usage(anyhow::anyhow!("cannot read {}: {error}", file.display())))?;
    }
    match files.iter().filter(|file| input::is_stdin(file)).count() {
        0 => {}
        1 if io::stdin().is_terminal() => {
            return Err(Failure::usage(anyhow::anyhow!("standard input is a terminal: pipe a capture into it")));
        }
        1 => {}
        _ => return Err(Failure::usage(anyhow::anyhow!("- is standard input, which can be read only once"))),
    }
    Ok(())
}

/// Checks that these files are captures, before a screen would hide the answer. What can be read only once, such as a
/// pipe, is not opened.
pub(super) fn check_captures(files: &[PathBuf]) -> Result<(), Failure> {
    let again = |file: &&PathBuf| fs::metadata(file).is_ok_and(|of| of.is_file() || of.is_dir());
    for file in files.iter().filter(again) {
        Capture::open(file).map_err(|broken| Failure { exit: Exit::Broken, error: broken.into() })?;
    }
    Ok(())
}
