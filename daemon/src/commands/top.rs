//! `weir top`: the live screen, of a running weir, of captures, or of a fleet.

use std::{ffi::OsString, path::PathBuf};

use crossbeam::channel::TryRecvError;
use weir::{
    cli::TopArgs,
    control::{client, protocol},
    external::MERGE,
    replay::{Options, Windows},
    top::{Live, Replayed},
};
use weir_datapath::capture::input;
use weir_system::{
    exit::Exit,
    signals::{self, Signals},
};

use super::{
    external::external,
    failure::Failure,
    query::socket,
    replay::{check_captures, check_readable},
    settings::read_config,
};

/// Runs the program that merges reports, which shows them live.
fn top_of_fleet(files: Vec<PathBuf>, window: Option<Windows>) -> Result<Exit, Failure> {
    let mut arguments: Vec<OsString> = vec!["--live".into()];
    if let Some(window) = window {
        let length = match window {
            Windows::Every(length) if length.subsec_nanos() == 0 => format!("{}s", length.as_secs()),
            Windows::Every(_) | Windows::All => {
                let error = anyhow::anyhow!("--window: a window of a fleet has whole seconds, such as 10s or 1m");
                return Err(Failure::usage(error));
            }
        };
        arguments.extend(["--window".into(), length.into()]);
    }
    arguments.push("--".into());
    arguments.extend(files.into_iter().map(PathBuf::into_os_string));
    external(MERGE.as_ref(), &arguments)
}

pub(super) fn top(TopArgs { replay: files, merge, speed, window, socket: args }: TopArgs) -> Result<Exit, Failure> {
    if !merge.is_empty() {
        return top_of_fleet(merge, window);
    }
    if !weir_top::is_terminal() {
        return Err(Failure::usage(anyhow::anyhow!(
            "weir top draws on a terminal: for a pipe or a file there is `weir report --json`"
        )));
    }
    let mut source: Box<dyn weir_top::Source> = if files.is_empty() {
        let path = socket(&args)?;
        // If no weir answers, say why before the screen takes over the terminal.
        client::ask(&path, protocol::Command::Status)?;
        Box::new(Live::new(path).map_err(Failure::impossible)?)
    } else {
        if files.iter().any(|file| input::is_stdin(file)) {
            return Err(Failure::usage(anyhow::anyhow!("the keyboard is standard input: name a file to replay")));
        }
        check_readable(&files)?;
        check_captures(&files)?;
        let config = read_config(&args.config)?;
        let windows = window.unwrap_or(Windows::Every(config.report.interval));
        let options = Options { windows, files, kernel: false, asks: Vec::new(), seed: None, progress: false };
        Box::new(Replayed::new(config, options, speed).map_err(Failure::impossible)?)
    };
    let Signals { stop, hangups } = signals::listen(|| {}).map_err(Failure::impossible)?;
    let is_stopped = || stop.try_recv() != Err(TryRecvError::Empty) || hangups.try_recv().is_ok();
    weir_top::run(source.as_mut(), &is_stopped).map_err(Failure::impossible)?;
    Ok(Exit::Done)
}
