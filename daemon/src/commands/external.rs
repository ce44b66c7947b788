//! Commands that are programs of their own, such as `weir merge`.

use std::ffi::{OsStr, OsString};

use weir::{
    cli::Cli,
    external::{self, ExternalError},
};
use weir_system::exit::Exit;

use super::failure::Failure;

/// Runs a separate program, and returns only if that fails.
pub(super) fn external(name: &OsStr, arguments: &[OsString]) -> Result<Exit, Failure> {
    let error = external::run(name, arguments);
    let exit = match &error {
        ExternalError::NotInstalled(_) => Exit::Usage,
        ExternalError::Refused { .. } => Exit::Impossible,
        ExternalError::Unknown(_) => {
            // clap prints the error, with similar commands, and ends the process.
            Cli::known_commands().get_matches();
            Exit::Usage
        }
    };
    Err(Failure { exit, error: error.into() })
}
