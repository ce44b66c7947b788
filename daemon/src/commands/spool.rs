//! `weir spool`: what waits on disk.

use std::{io::Write as _, path::PathBuf};

use weir::cli::{SpoolArgs, SpoolCommand, SpoolListArgs, SpoolPlaceArgs, SpoolRemoveArgs};
use weir_deliver::spool::command::{self, SpoolError, Spools};
use weir_system::{
    exit::Exit,
    log::say,
    screen::{Form, Screen},
    text::escaped,
};

use super::{
    failure::Failure,
    output::OutputError,
    settings::{STATE_DIRECTORY_DEFAULT, read_config, state_directory},
};

pub(super) fn spool(command: &SpoolCommand) -> Result<Exit, Failure> {
    let (SpoolCommand::Ls(SpoolListArgs { what: SpoolArgs { names, place }, .. })
    | SpoolCommand::Cat(SpoolArgs { names, place })
    | SpoolCommand::Retry(SpoolArgs { names, place })
    | SpoolCommand::Rm(SpoolRemoveArgs { names, place })) = command;
    let spools = Spools::new(spool_folder(place)?);
    let items = spools.list(names).map_err(|error| match error {
        SpoolError::NotThere { .. } => Failure::usage(error),
        _ => Failure::impossible(error),
    })?;
    let is_json = matches!(command, SpoolCommand::Ls(SpoolListArgs { json: true, .. }) | SpoolCommand::Cat(_));
    let mut out = Screen::stdout(if is_json { Form::Json } else { Form::Text });
    let mut exit = Exit::Done;
    match command {
        SpoolCommand::Ls(SpoolListArgs { json, .. }) => {
            let write = if *json { command::write_json } else { command::write_list };
            write(&items, &mut out).map_err(OutputError::from)?;
        }
        SpoolCommand::Cat(_) => {
            for item in &items {
                match item.line() {
                    Ok(line) => out.write_all(&line).map_err(OutputError::from)?,
                    Err(error) => {
                        say(format_args!("weir: {error}"));
                        exit = Exit::Broken;
                    }
                }
            }
        }
        SpoolCommand::Retry(_) => {
            let mut wanted = 0;
            for item in &items {
                if spools.retry(item).map_err(Failure::impossible)? {
                    wanted += 1;
                    writeln!(out, "{}: will send {} again with its next report", escaped(&item.sink), item.id)
                        .map_err(OutputError::from)?;
                }
            }
            if wanted == 0 {
                writeln!(out, "no report is refused").map_err(OutputError::from)?;
            }
        }
        SpoolCommand::Rm(_) => {
            for item in &items {
                spools.remove(item).map_err(Failure::impossible)?;
                writeln!(out, "{}: removed {}", escaped(&item.sink), item.id).map_err(OutputError::from)?;
            }
        }
    }
    Ok(exit)
}

/// The spool folder: from the command line, or as in the service.
fn spool_folder(SpoolPlaceArgs { path, config }: &SpoolPlaceArgs) -> Result<PathBuf, Failure> {
    if let Some(path) = path {
        return Ok(path.clone());
    }
    let state_directory = state_directory().unwrap_or_else(|| PathBuf::from(STATE_DIRECTORY_DEFAULT));
    read_config(config)?.spool.folder(Some(&state_directory)).ok_or_else(|| Failure {
        exit: Exit::Usage,
        error: anyhow::anyhow!("the configuration says `spool: {{path: none}}`: nothing waits on disk"),
    })
}
