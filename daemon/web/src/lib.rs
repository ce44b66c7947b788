//! The page of a running weir in a browser (`web: {listen: ADDRESS}`): its files, a message each second, and answers.
//!
//! ```text
//! coordinator: writes the board at each window's end, and each second while somebody looks
//! server:      a thread of its own; sends files, what is on the board, and each second as it comes
//! answers:     another thread, one question at a time: keys, the open window, what was before
//! ```
//!
//! It is read-only. Nothing waits for a browser: one that reads too slowly skips seconds.
//!
//! | path | answers |
//! |---|---|
//! | `/` and its files | the page |
//! | `/api/seconds` | a `weir.second/1` each second, as server-sent events |
//! | `/api/report` | the last report, or with `?last=5` the last few as a list |
//! | `/api/ask?key=` | what is known of a key in the last window |
//! | `/api/live` | the lists of the open window |
//! | `/api/history?from=&to=&points=` | each interface in equal steps |
//! | `/api/span?from=&to=` | several windows together |
//! | `/api/services` | names of ports |
//!
//! Each answer is that of the control socket to the same question.

#![forbid(unsafe_code)]

mod answers;
mod api;
mod assets;
mod guard;
mod query;
mod seconds;
mod token;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tracing::{info, warn};
use weir_config::Web as Settings;
use weir_deliver::board::Board;
use weir_http::{Limits, Server};
use weir_system::text::with_causes;

pub use self::answers::{Answerer, Question, Refusal};
use self::{answers::Answers, guard::Guard, token::Token};

/// Maximum number of connections. A browser has up to six.
const CONNECTIONS: usize = 48;
/// A message each second is progress, so this is about browsers that read nothing.
const LIMITS: Limits =
    Limits { connections: CONNECTIONS, request: Duration::from_secs(20), grace: Duration::from_millis(500) };
/// What the server keeps of a connection: a request's head, and what is not sent yet.
const CONNECTION_BYTES: u64 = 40 << 10;

/// What a history has of an interface and direction in a step: packets, bytes and lost packets, as text.
const STEP_BYTES: u64 = 32;

/// The most memory that the page takes in the daemon, if reports take this much, and so many interfaces and directions
/// are remembered.
pub fn memory_bytes(report_bytes: u64, tracks: u64) -> u64 {
    let history = tracks * u64::from(api::POINTS_MAX) * STEP_BYTES;
    let answer = history.max(api::REPORTS_MAX as u64 * report_bytes);
    CONNECTIONS as u64 * CONNECTION_BYTES + api::ANSWERS_MAX as u64 * answer
}

/// The page, until it is dropped.
#[derive(Debug)]
pub struct Web {
    _server: Server,
}

impl Web {
    /// Serves the page. If that is not possible, weir logs why and measures without it.
    pub fn open(settings: &Settings, board: Arc<Board>, answerer: Answerer) -> Option<Self> {
        let listen = settings.listen?;
        match start(listen, settings, board, answerer) {
            Ok(server) => {
                info!("the page is at http://{}/", server.address());
                Some(Self { _server: server })
            }
            Err(why) => {
                warn!("no page at {listen}: {why}");
                None
            }
        }
    }
}

fn start(listen: SocketAddr, settings: &Settings, board: Arc<Board>, answerer: Answerer) -> Result<Server, String> {
    let token = settings.token_file.as_deref().map(Token::read).transpose().map_err(|error| with_causes(&error))?;
    let answers = Answers::start(answerer).map_err(|error| with_causes(&error))?;
    let guard = Guard::new(token, settings.hosts.clone());
    let server = Server::start("weir-web", listen, router(board, answers, guard), LIMITS);
    server.map_err(|error| format!("cannot listen: {}", with_causes(&error)))
}

fn router(board: Arc<Board>, answers: Answers, guard: Guard) -> Router {
    guard.watch(assets::router().merge(api::router(board, answers)))
}

#[cfg(test)]
mod tests;
