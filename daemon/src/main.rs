//! `weir`: reads the command line and runs the command.

mod commands;

use std::process::ExitCode;

use weir::cli::Cli;
use weir_system::screen::command_line;

fn main() -> ExitCode {
    let Cli { command, version, verbose } = command_line();
    let exit = match command {
        Some(command) => commands::run(command),
        None => commands::version(version, verbose),
    };
    ExitCode::from(exit as u8)
}
