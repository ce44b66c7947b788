//! The page of a running weir in a browser (`web: {listen: ADDRESS}`): a message each second, and answers. The files
//! and the guard of requests are those of [`weir_page`].
//!
//! ```text
//! coordinator: writes the board at each window's end, and each second while a browser shows the page
//! server:      a separate thread; sends files, the contents of the board, and each second
//! answers:     another thread, one question at a time: keys, the open window, the history
//! ```
//!
//! It is read-only. weir never waits for a browser: a browser that reads too slowly skips seconds.
//!
//! | path | answers |
//! |---|---|
//! | `/` and its files | the page |
//! | `/api/seconds` | a `weir.second/1` each second, as server-sent events |
//! | `/api/report` | the last report, or with `?last=5` the last few as a list |
//! | `/api/ask?key=` | a key in the last window |
//! | `/api/live` | the lists of the open window |
//! | `/api/history?from=&to=&points=` | the traffic of each interface in equal steps |
//! | `/api/history?key=&view=&from=&to=&points=` | a key of a list over time |
//! | `/api/span?from=&to=` | several windows together |
//! | `/api/changes?list=&by=&from=&to=&against=` | what has changed in a list since an earlier time |
//! | `/api/services` | names of ports |
//!
//! The control socket gives the same answers to the same questions.

#![forbid(unsafe_code)]

mod api;
mod seconds;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tracing::{info, warn};
use weir_config::{Web as Settings, is_credential_of_service};
use weir_deliver::board::Board;
use weir_http::{Limits, Server};
use weir_system::{memory::Part, privileges, sandbox, text::with_causes};

pub use self::api::Question;
pub use weir_page::Refusal;
use weir_page::{Advice, Answers, Guard, Token, assets};

/// Answers a question with JSON.
pub type Answerer = weir_page::Answerer<Question>;

const ADVICE: Advice =
    Advice { host: "add the name to `web: {hosts: [...]}` in weir.yaml", token: "`web: {token_file: ...}`" };

/// Maximum number of connections. A browser has up to six.
const CONNECTIONS: usize = 48;
/// Limits for browsers that read nothing. Reading a message each second counts as progress.
const LIMITS: Limits =
    Limits { connections: CONNECTIONS, request: Duration::from_secs(20), grace: Duration::from_millis(500) };
/// The memory of a connection, in bytes: a request's head, and data that is not sent yet.
const CONNECTION_BYTES: u64 = 40 << 10;

/// The bytes of one interface and direction in one step of a history: packets, bytes and lost packets, as text.
const STEP_BYTES: u64 = 32;

/// The memory of the page in the daemon, if reports take this much, and the history has this many interfaces and
/// directions.
pub fn memory(settings: &Settings, report_bytes: u64, tracks: u64) -> Part {
    let history = tracks * u64::from(api::POINTS_MAX) * STEP_BYTES;
    let answer = history.max(api::REPORTS_MAX as u64 * report_bytes);
    let bytes = CONNECTIONS as u64 * CONNECTION_BYTES + api::ANSWERS_MAX as u64 * answer;
    let bytes = settings.listen.map_or(0, |_| bytes);
    Part::new("the page", bytes, "connections of browsers, and answers in progress").if_any()
}

/// Serves the page until it is dropped.
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

/// Checks what [`Web::open`] will read. A service that does not run may get the file only when it starts.
///
/// # Errors
///
/// Why there will be no page.
pub fn check(settings: &Settings) -> Result<(), String> {
    let of_service = settings.token_file.as_deref().is_some_and(is_credential_of_service);
    if settings.listen.is_none() || of_service {
        return Ok(());
    }
    read_token(settings).map(drop)
}

fn read_token(settings: &Settings) -> Result<Option<Token>, String> {
    settings.token_file.as_deref().map(Token::read).transpose().map_err(|error| with_causes(&error))
}

fn start(listen: SocketAddr, settings: &Settings, board: Arc<Board>, answerer: Answerer) -> Result<Server, String> {
    let token = read_token(settings)?;
    let answers = Answers::start(confine, api::ANSWERS_MAX, answerer).map_err(|error| with_causes(&error))?;
    let guard = Guard::new(token, settings.hosts.clone(), ADVICE);
    let server = Server::start("weir-web", listen, router(board, answers, guard), LIMITS);
    server.map_err(|error| format!("cannot listen: {}", with_causes(&error)))
}

/// Drops all capabilities of the query thread. The threads that answer keep theirs.
fn confine() {
    privileges::give_up_all();
    sandbox::pass();
}

fn router(board: Arc<Board>, answers: Answers<Question>, guard: Guard) -> Router {
    guard.watch(assets::router().merge(api::router(board, answers)))
}

#[cfg(test)]
mod tests;
