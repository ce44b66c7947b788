//! `weir run`: measures until it is told to stop.

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use weir::{
    cli::{ConfigArgs, RunArgs},
    control::Directory,
    memory::{allocator, program_file},
    pipeline::{self, Start},
    reload::{Read, aside},
};
use weir_deliver::spool::root::SpoolRoot;
use weir_system::{
    exit::Exit,
    log::{self, Format},
    sandbox::{self, Origin},
    signals,
};

use super::{
    failure::Failure,
    settings::{CONFIG, named, read_to_run, state_directory},
};

pub(super) fn run(
    RunArgs { config: config_args, interfaces, strict, json, log_format }: RunArgs,
) -> Result<Exit, Failure> {
    let _log = log::begin(chosen(log_format)?);
    allocator::give_back_what_is_freed();
    let named = if interfaces.is_empty() { None } else { Some(named(interfaces)?) };
    let read = move |config_args: &ConfigArgs| {
        let (mut config, source) = read_to_run(config_args, state_directory().as_deref())?;
        config.interfaces = named.clone().unwrap_or(config.interfaces);
        Ok::<_, Failure>(Read { config, source })
    };
    let path = config_args.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG));
    let Read { config, .. } = read(&config_args)?;
    if config.interfaces.is_empty() {
        return Err(Failure {
            exit: Exit::Usage,
            error: anyhow::anyhow!(
                "no interface to measure: name one (`weir run --interface eth0`), or list some under `interfaces:` in \
                 {} (`ip -br link` shows what there is)",
                path.display()
            ),
        });
    }
    let state_directory = state_directory();
    let socket_directory = Directory::provide(config.control.socket.as_deref());
    let wanted = config.wanted(state_directory.as_deref());
    for folder in wanted.files.spool.iter() {
        SpoolRoot::provide(folder);
    }
    for folder in wanted.files.history.iter() {
        weir_history::provide(folder);
    }
    program_file::resident_bytes();
    let places = sandbox::close(
        &wanted,
        Origin { config: &path, state_directory: state_directory.as_deref(), made: socket_directory.made() },
    );
    let signals = signals::listen(|| std::process::exit(Exit::Interrupted as i32))
        .map_err(|error| Failure { exit: Exit::Impossible, error: error.into() })?;
    let reread = || {
        let (path, config_args, read) = (path.clone(), config_args.clone(), read.clone());
        aside(move || {
            // If this were a pipe, the reloader would wait for a writer.
            if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(format!("{}: cannot read the configuration: it is not a regular file", path.display()));
            }
            read(&config_args).map_err(|failure| format!("{:#}", failure.error))
        })
    };
    let has_tables = io::stdout().is_terminal() && !json;
    let start = Start { directory: state_directory.as_deref(), strict, has_tables, reread: &reread, places };
    pipeline::run(&config, start, signals)?;
    Ok(Exit::Done)
}

/// The format of the log: from the command line, otherwise from the variable.
fn chosen(format: Option<Format>) -> Result<Format, Failure> {
    Format::chosen(format).map_err(|why| Failure { exit: Exit::Usage, error: anyhow::Error::msg(why) })
}
