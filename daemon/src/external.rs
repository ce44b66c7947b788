//! Commands that are separate programs: `weir NAME` runs `weir-NAME`, as git does.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::PathBuf,
    process::Command,
};

/// The command of the reference collector, which has its own package.
pub const COLLECT: &str = "collect";
/// The command that merges the reports of a fleet, in the same package.
pub const MERGE: &str = "merge";

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// The program of a known command is not installed.
    #[error(
        "`weir {0}` runs a separate program, weir-{0}, which is neither beside weir nor in PATH: install the package \
         weir-collect, or build it with `cargo build --release -p weir-{0}`"
    )]
    NotInstalled(&'static str),
    /// There is no program for this command.
    #[error("there is no command {0:?}")]
    Unknown(OsString),
    /// The system refuses to run it.
    #[error("cannot run {}: {cause}", program.display())]
    Refused {
        /// The path of the program.
        program: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
}

/// Replaces weir by the program `weir-NAME`, which is beside weir or in `PATH`. It gets these arguments and is called
/// `weir NAME`. Returns only if that fails.
pub fn run(name: &OsStr, arguments: &[OsString]) -> ExternalError {
    for program in candidates(name) {
        let called = [OsStr::new("weir "), name].into_iter().collect::<OsString>();
        let cause = Command::new(&program).arg0(called).args(arguments).exec();
        if cause.kind() != io::ErrorKind::NotFound {
            return ExternalError::Refused { program, cause };
        }
    }
    let known = [COLLECT, MERGE].into_iter().find(|known| name == *known);
    known.map_or_else(|| ExternalError::Unknown(name.to_owned()), ExternalError::NotInstalled)
}

/// Where the program may be. Empty if the name is a path or an option.
fn candidates(name: &OsStr) -> Vec<PathBuf> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || !name.as_bytes().iter().all(is_name) {
        return Vec::new();
    }
    let program = [OsStr::new("weir-"), name].into_iter().collect::<OsString>();
    let beside = env::current_exe().ok().map(|weir| weir.with_file_name(&program));
    beside.into_iter().chain([program.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_name_is_searched_for() {
        let programs = |name: &str| candidates(OsStr::new(name));
        assert_eq!(programs("collect").last(), Some(&PathBuf::from("weir-collect")));
        assert!(programs("collect")[0].is_absolute());
        for wrong in ["", "../collect", "/bin/true", "a b", "a\0b", "\u{e9}"] {
            assert!(programs(wrong).is_empty(), "{wrong:?}");
        }
    }
}
