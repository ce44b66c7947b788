//! Asks a running weir.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::value::RawValue;
use thiserror::Error;

use super::protocol::{Command, Request, Response};

/// How long weir may take: it may be closing a window.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// There is no socket.
    #[error(
        "no weir answers at {0}: there is no such socket. Is weir running? `--socket PATH` names the socket of its \
         `control:` section"
    )]
    NotThere(PathBuf),
    /// A socket without a weir.
    #[error("no weir answers at {0}: the one that made this socket has ended")]
    Gone(PathBuf),
    /// Owner and group only.
    #[error("not permitted to open {0}: become root, or a member of the group that it belongs to")]
    NotPermitted(PathBuf),
    /// Anything else of the system.
    #[error("cannot talk to the weir at {0}: {1}")]
    Broken(PathBuf, #[source] io::Error),
    /// Not this protocol.
    #[error("what answers at {0} is no weir of this version")]
    Foreign(PathBuf),
    /// The request is wrong.
    #[error("{0}")]
    Refused(String),
    /// There is no answer now.
    #[error("{0}")]
    Unavailable(String),
}

/// Asks the weir whose control socket is `path`, and waits for its answer.
///
/// # Errors
///
/// Why there is none.
pub fn ask(path: &Path, command: Command) -> Result<Box<RawValue>, AskError> {
    let broken = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => AskError::NotThere(path.to_owned()),
        ErrorKind::ConnectionRefused => AskError::Gone(path.to_owned()),
        ErrorKind::PermissionDenied => AskError::NotPermitted(path.to_owned()),
        _ => AskError::Broken(path.to_owned(), error),
    };
    let mut stream = UnixStream::connect(path).map_err(broken)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    let foreign = || AskError::Foreign(path.to_owned());
    let mut request = serde_json::to_vec(&Request::new(command)).map_err(|_| foreign())?;
    request.push(b'\n');
    stream.write_all(&request).map_err(broken)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(broken)?;
    match serde_json::from_slice(&answer).map_err(|_| foreign())? {
        Response::Answer(answer) => Ok(answer),
        Response::Refused(why) => Err(AskError::Refused(why)),
        Response::Unavailable(why) => Err(AskError::Unavailable(why)),
    }
}
