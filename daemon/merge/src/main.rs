//! `weir-merge`: parses the command line, merges, and prints the answer or shows it live.

use std::{
    fmt::Display,
    io::{self, BufWriter, IsTerminal, Write},
    process::ExitCode,
};

use weir_history::{Several, Time};
use weir_merge::{
    By, Live, MergeError, SampleError, Settings, What,
    cli::{Cli, HistoryArgs},
    write_history, write_tables,
};
use weir_schema::{
    Style,
    listing::{ListForm, summable_list},
};
use weir_system::{
    clock,
    exit::Exit,
    log::{self, Format, say},
    screen::{self, Screen, command_line},
    signals::{self, Signals},
};

/// Rows of each list.
const TOP: usize = 20;
/// The number of rows on the live screen, which scrolls, and of lists out of histories, as `weir history top` prints.
const TOP_LIVE: usize = 100;

fn main() -> ExitCode {
    ExitCode::from(run(&command_line()) as u8)
}

/// Shows the newest window on the terminal.
fn show(Cli { files, window, top, .. }: &Cli) -> Exit {
    let failed = |why: &dyn Display, exit| {
        say(format_args!("weir-merge: {why}"));
        exit
    };
    if !weir_top::is_terminal() {
        let why = "the live screen draws on a terminal: for a pipe or a file there is `weir merge --json`";
        return failed(&why, Exit::Usage);
    }
    let window = match weir_merge::window(files, *window) {
        Ok(window) => window,
        Err(error @ SampleError::Input(_)) => return failed(&error, Exit::Broken),
        Err(error) => return failed(&error, Exit::Usage),
    };
    let shown = || -> anyhow::Result<()> {
        let Signals { stop, hangups } = signals::listen(|| {})?;
        let is_stopped = || !stop.try_recv().is_err_and(|why| why.is_empty()) || hangups.try_recv().is_ok();
        let mut live = Live::new(files, window, top.unwrap_or(TOP_LIVE))?;
        Ok(weir_top::run(&mut live, &is_stopped)?)
    };
    shown().map_or_else(|error| failed(&error, Exit::Impossible), |()| Exit::Done)
}

/// Prints a list of a time out of histories.
fn print_history(Cli { history, of_history, top, json, .. }: &Cli) -> Exit {
    let failed = |why: &dyn Display, exit| {
        say(format_args!("weir-merge: {why}"));
        exit
    };
    // The log names damaged blocks.
    let _log = match Format::chosen(None) {
        Ok(format) => log::begin(format),
        Err(why) => return failed(&why, Exit::Usage),
    };
    let HistoryArgs { list, packets, csv, .. } = of_history;
    let list = match summable_list(list.as_deref().unwrap_or("sources")) {
        Ok(list) => list,
        Err(why) => return failed(&why, Exit::Usage),
    };
    let [from, to] = of_history.times(clock::now().wall);
    let several = match Several::read(history, &Time { from, to }) {
        Ok(several) => several,
        Err(why) => return failed(&why, Exit::Usage),
    };
    let form = match (json, csv) {
        (true, _) => ListForm::Json,
        (_, true) => ListForm::Csv,
        _ => ListForm::Text,
    };
    let screen_form = if *json { screen::Form::Json } else { screen::Form::Text };
    let mut out = BufWriter::new(Screen::stdout(screen_form));
    let asked = (list, *packets, top.unwrap_or(TOP_LIVE));
    match write_history(&several, asked, form, &mut out).and_then(|()| out.flush()) {
        Ok(()) => Exit::Done,
        // The reader of the output, such as `head`, wants no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => failed(&format_args!("cannot write the answer: {error}"), Exit::Broken),
    }
}

fn run(cli: &Cli) -> Exit {
    let Cli { files, window, by, top, json, live, history, of_history: _ } = cli;
    if *live {
        return show(cli);
    }
    if !history.is_empty() {
        return print_history(cli);
    }
    let settings = Settings { window: *window, by: by.map_or(By::All, By::from), top: top.unwrap_or(TOP) };
    let answer = match weir_merge::merge(files, settings, io::stderr().is_terminal()) {
        Ok(answer) => answer,
        Err(error) => {
            say(format_args!("weir-merge: {error:#}"));
            return match error {
                MergeError::Input(_) => Exit::Broken,
                MergeError::TooMany(_) => Exit::Usage,
            };
        }
    };
    let style = Style::of_terminal(io::stdout(), io::stdout().is_terminal());
    let form = match (json, style.color) {
        (true, _) => screen::Form::Json,
        (false, true) => screen::Form::Colored,
        (false, false) => screen::Form::Text,
    };
    let mut out = BufWriter::new(Screen::stdout(form));
    let written = if *json {
        serde_json::to_writer(&mut out, &answer).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        write_tables(&answer, style, &mut out)
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) if answer.reports == 0 => {
            say(format_args!("weir-merge: there is no report in {}", cli.inputs()));
            Exit::Broken
        }
        Ok(()) if answer.defects.iter().any(|defect| defect.what == What::Unreadable) => Exit::Broken,
        Ok(()) => Exit::Done,
        // The reader of the output, such as `head`, wants no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            say(format_args!("weir-merge: cannot write the answer: {error}"));
            Exit::Broken
        }
    }
}
