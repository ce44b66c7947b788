//! Queries a running weir.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::geteuid;
use serde_json::value::RawValue;
use thiserror::Error;
use weir_schema::{FromJson, Second};

use super::protocol::{Command, Request, Response};

/// How long to wait for an answer: weir may be closing a window.
const PATIENCE: Duration = Duration::from_secs(15);

/// The largest answer that is read, in bytes: five of the largest reports. Anything longer is not an answer of weir.
const ANSWER_BYTES_MAX: u64 = 5 * (64 << 20);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// The socket does not exist.
    #[error(
        "no weir answers at {0}: there is no such socket. Is weir running? `--socket PATH` names the socket of its \
         `control:` section"
    )]
    NotThere(PathBuf),
    /// No weir listens on the socket.
    #[error("weir is not running: the process that made the socket {0} has ended")]
    Gone(PathBuf),
    /// Only owner and group may connect.
    #[error("not permitted to open {0}: {way}", way = way_in(geteuid().is_root()))]
    NotPermitted(PathBuf),
    /// Any other error of the system.
    #[error("cannot talk to the weir at {0}: {1}")]
    Broken(PathBuf, #[source] io::Error),
    /// weir did not answer in time.
    #[error(
        "the weir at {path} has not answered within {seconds} s: it is very busy, or was stopped. Ask again; its log \
         says what it does (`journalctl -u weir`)"
    )]
    Busy {
        /// The path of the socket.
        path: PathBuf,
        /// How long the client has waited.
        seconds: u64,
    },
    /// The connection ended without an answer.
    #[error(
        "the weir at {0} has ended the connection without an answer: it is stopping, or too many clients are \
         connected. Ask again; its log says what it does (`journalctl -u weir`)"
    )]
    Silent(PathBuf),
    /// The answer is not in this protocol.
    #[error("the program that answers at {0} is not weir of this version")]
    Foreign(PathBuf),
    /// The answer is too long.
    #[error(
        "the program that answers at {path} sends more than {} MiB: it is not weir, or not of this version",
        .bytes >> 20
    )]
    Endless {
        /// The path of the socket.
        path: PathBuf,
        /// How many bytes were read.
        bytes: u64,
    },
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
    /// No answer is available now.
    #[error("{0}")]
    Unavailable(String),
}

/// How this user gets access to the socket.
const fn way_in(is_root: bool) -> &'static str {
    if is_root {
        "root needs the capability CAP_DAC_OVERRIDE, or the rights of the user that weir runs as"
    } else {
        "become root, or a member of the group that owns the socket"
    }
}

/// Sends a command to the weir with this control socket, and waits for its answer.
///
/// # Errors
///
/// Why there is no answer.
pub fn ask(path: &Path, command: Command) -> Result<Box<RawValue>, AskError> {
    ask_within(PATIENCE, ANSWER_BYTES_MAX, path, command)
}

/// Passes each second's message to `take`, until `take` returns false.
///
/// # Errors
///
/// Why there are no more messages.
pub fn subscribe(path: &Path, take: &mut dyn FnMut(Second) -> bool) -> Result<(), AskError> {
    let mut lines = BufReader::new(request(PATIENCE, path, Command::Subscribe)?);
    let mut line = String::new();
    loop {
        line.clear();
        let read = (&mut lines).take(ANSWER_BYTES_MAX).read_line(&mut line);
        if read.map_err(|error| broken(PATIENCE, path, error))? == 0 {
            return Err(AskError::Silent(path.to_owned()));
        }
        if line.len() as u64 == ANSWER_BYTES_MAX {
            return Err(AskError::Endless { path: path.to_owned(), bytes: ANSWER_BYTES_MAX });
        }
        let answer = understood(path, line.as_bytes())?;
        let second = Second::from_json(answer.get().as_bytes()).map_err(|_| AskError::Foreign(path.to_owned()))?;
        if !take(second) {
            return Ok(());
        }
    }
}

fn ask_within(patience: Duration, bytes_max: u64, path: &Path, command: Command) -> Result<Box<RawValue>, AskError> {
    let stream = request(patience, path, command)?;
    let mut answer = Vec::new();
    stream.take(bytes_max + 1).read_to_end(&mut answer).map_err(|error| broken(patience, path, error))?;
    if answer.len() as u64 > bytes_max {
        return Err(AskError::Endless { path: path.to_owned(), bytes: bytes_max });
    }
    if answer.is_empty() {
        return Err(AskError::Silent(path.to_owned()));
    }
    understood(path, &answer)
}

fn broken(patience: Duration, path: &Path, error: io::Error) -> AskError {
    match error.kind() {
        ErrorKind::NotFound => AskError::NotThere(path.to_owned()),
        ErrorKind::ConnectionRefused => AskError::Gone(path.to_owned()),
        ErrorKind::PermissionDenied => AskError::NotPermitted(path.to_owned()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            AskError::Busy { path: path.to_owned(), seconds: patience.as_secs() }
        }
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => AskError::Silent(path.to_owned()),
        _ => AskError::Broken(path.to_owned(), error),
    }
}

/// Connects, and sends a command.
fn request(patience: Duration, path: &Path, command: Command) -> Result<UnixStream, AskError> {
    let connect = || {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut request = serde_json::to_vec(&Request::new(command))?;
        request.push(b'\n');
        stream.write_all(&request)?;
        Ok(stream)
    };
    connect().map_err(|error| broken(patience, path, error))
}

/// Parses the answer of a running weir.
fn understood(path: &Path, line: &[u8]) -> Result<Box<RawValue>, AskError> {
    match serde_json::from_slice(line).map_err(|_| AskError::Foreign(path.to_owned()))? {
        Response::Answer(answer) => Ok(answer),
        Response::Refused(why) => Err(AskError::Refused(why)),
        Response::Unavailable(why) => Err(AskError::Unavailable(why)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener, thread};

    use super::*;

    /// The error message for a server that treats its client like this.
    fn said(name: &str, serve: impl FnOnce(UnixStream) + Send + 'static) -> String {
        let path = std::env::temp_dir().join(format!("weir-client-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let error = ask_within(Duration::from_millis(100), 1 << 20, &path, Command::Reload).unwrap_err();
        fs::remove_file(&path).unwrap();
        server.join().unwrap();
        error.to_string()
    }

    fn hear(stream: &mut UnixStream) {
        let mut request = [0; 64];
        assert!(stream.read(&mut request).unwrap() > 0);
    }

    #[test]
    fn a_missing_answer_and_a_wrong_one_have_different_errors() {
        let silent = said("silent", |mut stream| hear(&mut stream));
        assert!(silent.contains("ended the connection without an answer"), "{silent}");
        let busy = said("busy", |mut stream| {
            hear(&mut stream);
            // Until the client has disconnected.
            let _ = stream.read(&mut [0]);
        });
        assert!(busy.contains("has not answered within 0 s"), "{busy}");
        let foreign = said("foreign", |mut stream| {
            hear(&mut stream);
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        assert!(foreign.contains("not weir of this version"), "{foreign}");
    }

    #[test]
    fn an_answer_without_an_end_is_not_read_to_its_end() {
        let endless = said("endless", |mut stream| {
            hear(&mut stream);
            // Until the client has had enough.
            while stream.write_all(&[b' '; 4096]).is_ok() {}
        });
        assert!(endless.contains("sends more than 1 MiB"), "{endless}");
    }
}
