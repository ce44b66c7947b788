//! The page of the fleet that reports to this collector (`--page ADDRESS`), and the page of each router from its
//! reports.
//!
//! ```text
//! server:   a separate thread without capabilities; sends files and answers
//! answers:  another thread, one question at a time, with a connection to the database that only reads
//! ```
//!
//! It is read-only, and senders do not wait for it: the database is read beside the thread that writes.
//!
//! | path | answers |
//! |---|---|
//! | `/` | the fleet |
//! | `/api/fleet` | its numbers |
//! | `/observers/ID/api/observer` | whether it is late, and its last report in short |
//! | `/observers/ID/` | the page of a router, with the files of that of a running weir |
//! | `/observers/ID/api/...` | what that page asks, from the reports of the router |

mod answer;
mod fleet;
mod past;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::{self, Request, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use weir_http::{ClientSlot, Limits, Server};
use weir_page::{
    Advice, Answers, Guard, Token, TokenError,
    assets::{self, Asset},
    body::refused,
    query,
};
use weir_system::privileges;

use self::answer::{Asked, Question, Reader};
use super::counters::Counters;

/// A browser has up to six connections.
const LIMITS: Limits = Limits { connections: 48, request: Duration::from_secs(20), grace: Duration::from_millis(500) };
/// How many answers may be in memory at the same time, including those that are not sent yet.
const ANSWERS_MAX: usize = 4;
/// How many steps a history has by default, and at most.
const POINTS: usize = 600;
const POINTS_MAX: usize = 720;
/// How many reports are asked for at most.
const REPORTS_MAX: usize = 5;

const ADVICE: Advice = Advice { host: "add the name with --page-host NAME", token: "--page-token-file" };

/// The page of the fleet. It uses files of the page of a router, too.
const FLEET: [Asset; 2] = [
    Asset { path: "/", content: include_bytes!("../../assets/fleet.html") },
    Asset { path: "/fleet.js", content: include_bytes!("../../assets/fleet.js") },
];

/// Tells the page of a router that its numbers come from reports.
static INDEX: LazyLock<String> = LazyLock::new(|| {
    let index = String::from_utf8_lossy(assets::INDEX.content);
    index.replacen("<html lang=\"en\">", "<html lang=\"en\" data-from=\"reports\">", 1)
});

/// The settings of the collector's page: its address, and who may see it.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The file with the token that browsers must present.
    pub token_file: Option<&'a Path>,
    /// Names of this machine.
    pub hosts: &'a [String],
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Other machines could read all reports without a token.
    #[error(
        "{0} can be reached from other machines, and everybody there could read all reports: give a token by \
         --page-token-file FILE, or have the page at 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address cannot be used, or the system refuses a thread.
    #[error("no page at {address}: {cause}")]
    Start {
        /// The address in the options.
        address: SocketAddr,
        /// The cause.
        cause: std::io::Error,
    },
}

/// Serves the page until it is dropped.
///
/// # Errors
///
/// Why that is not possible.
pub(crate) fn open(settings: Settings<'_>, database: PathBuf, counters: Arc<Counters>) -> Result<Server, PageError> {
    let Settings { listen, token_file, hosts } = settings;
    if token_file.is_none() && !listen.ip().is_loopback() {
        return Err(PageError::Open(listen));
    }
    let token = token_file.map(Token::read).transpose()?;
    let failed = |cause| PageError::Start { address: listen, cause };
    let mut reader = Reader::new(database, counters);
    let answerer = Box::new(move |asked| reader.answer(asked));
    let answers = Answers::start(privileges::give_up_all_but_files, ANSWERS_MAX, answerer).map_err(failed)?;
    let guard = Guard::new(token, hosts.to_vec(), ADVICE);
    Server::start("weir-page", listen, guard.watch(router(answers)), LIMITS).map_err(failed)
}

fn router(answers: Answers<Asked>) -> Router {
    let mut router = Router::<Answers<Asked>>::new();
    for asset in FLEET.into_iter().chain(assets::files()) {
        router = router.route(asset.path, asset.route());
    }
    for asset in assets::files().chain([assets::INDEX.with(INDEX.as_bytes())]) {
        router = router.route(&format!("/observers/{{id}}{}", asset.path), asset.route());
    }
    let no_slash = |extract::Path(id): extract::Path<String>| async move { Redirect::permanent(&beside(&id)) };
    router
        .route("/observers/{id}", get(no_slash))
        .route("/observers/{id}/api/services", assets::names_of_ports())
        .route("/api/fleet", get(fleet))
        .route("/observers/{id}/api/{of}", get(of_observer))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here: the page is at /\n") })
        .with_state(answers)
}

/// The page of an observer, from the path without its slash. The id is sent as the browser wrote it.
fn beside(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let encode = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    format!("/observers/{}/", id.bytes().map(encode).collect::<String>())
}

async fn fleet(State(answers): State<Answers<Asked>>, slot: Extension<Arc<ClientSlot>>) -> Response {
    answers.respond(&slot, Asked { observer: None, question: Question::Now }).await
}

async fn of_observer(
    State(answers): State<Answers<Asked>>,
    extract::Path((id, of)): extract::Path<(String, String)>,
    slot: Extension<Arc<ClientSlot>>,
    request: Request,
) -> Response {
    match question(&of, request.uri().query()) {
        Ok(Some(question)) => answers.respond(&slot, Asked { observer: Some(id), question }).await,
        Ok(None) => (StatusCode::NOT_FOUND, "there is no such answer\n").into_response(),
        Err(why) => refused(&why),
    }
}

/// Reads the question from a path; `None` if there is nothing at that path.
fn question(of: &str, query: Option<&str>) -> Result<Option<Question>, String> {
    let whole = |text: Option<String>, default, max| match text.as_deref().map(str::parse) {
        None => Ok(default),
        Some(Ok(number)) if (1..=max).contains(&number) => Ok(number),
        Some(_) => Err(format!("a number from 1 to {max}")),
    };
    Ok(Some(match of {
        "observer" => query::read(query, []).map(|[]| Question::Now)?,
        "report" => match query::read(query, ["last"])? {
            [None] => Question::Report,
            [last] => Question::Reports(whole(last, 1, REPORTS_MAX).map_err(|why| format!("last: {why}"))?),
        },
        "history" => {
            let [from, to, points, key, view] = query::read(query, ["from", "to", "points", "key", "view"])?;
            let points = whole(points, POINTS, POINTS_MAX).map_err(|why| format!("points: {why}"))?;
            let times = query::times(from, to)?;
            match key {
                Some(key) => Question::OfKey { key, view, times, points },
                None if view.is_some() => return Err("view: which key of it?".to_owned()),
                None => Question::History(times, points),
            }
        }
        "span" => {
            let [from, to] = query::read(query, ["from", "to"])?;
            Question::Span(query::times(from, to)?)
        }
        "ask" | "live" | "seconds" => {
            return Err(
                "only the router itself knows more than its reports: ask there with `weir ask`, or look at its \
                        own page"
                    .to_owned(),
            );
        }
        _ => return Ok(None),
    }))
}
