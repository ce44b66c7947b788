//! Why a command failed, and the exit code that says so to scripts.

use std::io;

use weir::{
    control::client::AskError, coordinator::MeasureError, key::KeyCommandError, pipeline::RunError,
    replay::ReplayError, show::ShowError, workers::WorkersError,
};
use weir_attach::AttachError;
use weir_config::names::GeoError;
use weir_datapath::KernelError;
use weir_system::exit::Exit;

use super::output::OutputError;

/// An error with its exit code.
pub(super) struct Failure {
    pub(super) exit: Exit,
    pub(super) error: anyhow::Error,
}

impl Failure {
    /// The command line or a file that it names is wrong.
    pub(super) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }

    /// This machine or this user does not permit it, or no weir runs here.
    pub(super) fn impossible(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Impossible, error: error.into() }
    }
}

impl From<KeyCommandError> for Failure {
    fn from(error: KeyCommandError) -> Self {
        Self::usage(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let exit = match &error {
            RunError::Attach(AttachError::NotFound { .. })
            | RunError::Key(_)
            | RunError::Geo(_)
            | RunError::Budget(_) => Exit::Usage,
            RunError::Sink(error) if error.is_mistake() => Exit::Usage,
            RunError::Kernel(_)
            | RunError::Taken(_)
            | RunError::Attach(_)
            | RunError::Taps(_)
            | RunError::Thread(_)
            | RunError::Measure(MeasureError::Workers(WorkersError::Worker(_))) => Exit::Impossible,
            RunError::Sink(_) | RunError::Measure(_) => Exit::Broken,
        };
        Self { exit, error: error.into() }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        let exit = match &error {
            ReplayError::Kernel(_) | ReplayError::Pin(_) => Exit::Impossible,
            ReplayError::Key(_) | ReplayError::Ask { .. } | ReplayError::Geo(_) => Exit::Usage,
            ReplayError::Write(error) => exit_of_output(error),
            ReplayError::Merge(_) => Exit::Broken,
        };
        Self { exit, error: error.into() }
    }
}

impl From<ShowError> for Failure {
    fn from(error: ShowError) -> Self {
        match error {
            ShowError::Ask(error) => error.into(),
            ShowError::Foreign(_) => Self::impossible(error),
            ShowError::Write(error) => OutputError(error).into(),
        }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let exit = if matches!(error, AskError::Refused(_)) { Exit::Usage } else { Exit::Impossible };
        Self { exit, error: error.into() }
    }
}

impl From<GeoError> for Failure {
    fn from(error: GeoError) -> Self {
        Self::usage(error)
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        Self::impossible(error)
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Self {
        Self { exit: exit_of_output(&error.0), error: error.into() }
    }
}

/// A closed pipe is no failure: the reader of the output, such as `head`, has ended.
fn exit_of_output(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe { Exit::Done } else { Exit::Broken }
}
