//! `weir-merge`: parses the command line, merges, and prints the answer.

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use weir_merge::{By, MergeError, Settings, What, cli::Cli, write_tables};
use weir_report::Style;
use weir_system::{exit::Exit, log::say};

fn main() -> ExitCode {
    ExitCode::from(run(&Cli::parse()) as u8)
}

fn run(cli: &Cli) -> Exit {
    let Cli { files, window, by, top, json, .. } = cli;
    let settings = Settings { window: *window, by: by.map_or(By::All, By::from), top: *top };
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
    let mut out = BufWriter::new(io::stdout().lock());
    let written = if *json {
        serde_json::to_writer(&mut out, &answer).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        write_tables(&answer, Style::of_terminal(io::stdout(), io::stdout().is_terminal()), &mut out)
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
