//! The handlers of `/api/...`.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::Timestamp;
use weir_deliver::board::Board;
use weir_http::ClientSlot;
use weir_page::{
    Answers,
    body::{Placed, json, refused, unavailable},
    query::{self, times},
};
use weir_schema::NO_WINDOW;
use weir_system::text::short;

use crate::seconds::Seconds;

/// How many answers may be in memory at the same time, while they are made or sent.
pub(crate) const ANSWERS_MAX: usize = 4;
/// The number of steps of a history: the default, and the maximum.
const POINTS: u32 = 600;
pub(crate) const POINTS_MAX: u32 = 720;
/// The most reports in an answer.
pub(crate) const REPORTS_MAX: usize = 5;

/// A browser's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A key in the last window, as `FIELD=VALUE,...`.
    Ask(String),
    /// The lists of the open window.
    Live,
    /// The traffic of each interface in equal steps.
    History {
        /// The start; if missing, as early as possible.
        from: Option<Timestamp>,
        /// The end; if missing, now.
        to: Option<Timestamp>,
        /// Maximum number of steps.
        points: u32,
    },
    /// A key of a list over time.
    OfKey {
        /// The key, as `FIELD=VALUE,...`.
        key: String,
        /// The view that has the list; if missing, a standard list.
        view: Option<String>,
        /// The start; if missing, as early as possible.
        from: Option<Timestamp>,
        /// The end; if missing, now.
        to: Option<Timestamp>,
        /// About how many steps; if missing, as many as on the control socket.
        points: Option<u32>,
    },
    /// What each interface, host or network has carried by hour, day or month.
    Usage {
        /// `hosts`, `networks` or an own address; if missing, interfaces.
        of: Option<String>,
        /// Only this interface; if missing, all.
        interface: Option<String>,
        /// `hour`, `day` or `month`; if missing, `month`.
        by: Option<String>,
        /// How many periods; if missing, as many as on the control socket.
        last: Option<u32>,
        /// How many hosts or networks in each period; if missing, as many as on the control socket.
        top: Option<u32>,
        /// The end of the last one; if missing, now.
        to: Option<Timestamp>,
    },
    /// The names of hosts.
    Names,
    /// What has changed in a list since an earlier time of the same length.
    Changes {
        /// The name of the list.
        list: String,
        /// `bytes` or `packets`; if missing, bytes.
        by: Option<String>,
        /// The start and the end of the later time.
        now: (Timestamp, Timestamp),
        /// The start of the earlier time; if missing, the time just before.
        against: Option<Timestamp>,
    },
    /// The union of all windows that touch this time.
    Span {
        /// The start; if missing, as early as possible.
        from: Option<Timestamp>,
        /// The end; if missing, now.
        to: Option<Timestamp>,
    },
}

#[derive(Clone)]
struct Shared {
    board: Arc<Board>,
    answers: Answers<Question>,
}

pub(crate) fn router(board: Arc<Board>, answers: Answers<Question>) -> Router {
    let shared = Shared { board, answers };
    Router::new()
        .route("/api/seconds", get(seconds))
        .route("/api/report", get(report))
        .route("/api/ask", get(ask))
        .route("/api/live", get(live))
        .route("/api/history", get(history))
        .route("/api/span", get(span))
        .route("/api/changes", get(changes))
        .route("/api/usage", get(usage))
        .route("/api/names", get(names))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here: the page is at /\n") })
        .with_state(shared)
}

async fn seconds(State(shared): State<Shared>, Extension(slot): Extension<Arc<ClientSlot>>) -> Response {
    // A proxy would wait until its buffer is full, which takes many seconds. nginx and others do not if they are told
    // so.
    let no_buffer = HeaderName::from_static("x-accel-buffering");
    let names = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store"), (no_buffer, "no")];
    match Seconds::of(&shared.board, slot) {
        Some(seconds) => (names, Body::new(seconds)).into_response(),
        None => unavailable("too many browsers show this page already: close one of them"),
    }
}

async fn report(State(shared): State<Shared>, request: Request) -> Response {
    let last = match query::read(request.uri().query(), ["last"]) {
        Ok([last]) => last,
        Err(why) => return refused(&why),
    };
    let Some(last) = last else {
        // All browsers share its memory.
        return match shared.board.report() {
            Some(report) => json(Bytes::from_owner(report.line)),
            None => unavailable(NO_WINDOW),
        };
    };
    let Some(count) = last.parse().ok().filter(|count| (1..=REPORTS_MAX).contains(count)) else {
        return refused(&format!("last={}: ask for 1 to {REPORTS_MAX} reports", short(&last)));
    };
    let Some(place) = shared.answers.place().await else { return unavailable("weir is ending") };
    let reports = shared.board.last(count);
    if reports.is_empty() {
        return unavailable(NO_WINDOW);
    }
    let mut list = vec![b'['];
    for report in reports {
        if list.len() > 1 {
            list.push(b',');
        }
        list.extend_from_slice(&report.line);
    }
    list.push(b']');
    json(Placed::body(list.into(), place))
}

async fn ask(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    match query::read(request.uri().query(), ["key"]) {
        Ok([Some(key)]) => shared.answers.respond(&slot, Question::Ask(key)).await,
        Ok([None]) => refused("which key? Ask for one: /api/ask?key=src_ip=192.0.2.7"),
        Err(why) => refused(&why),
    }
}

async fn live(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    match query::read(request.uri().query(), []) {
        Ok([]) => shared.answers.respond(&slot, Question::Live).await,
        Err(why) => refused(&why),
    }
}

async fn names(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    match query::read(request.uri().query(), []) {
        Ok([]) => shared.answers.respond(&slot, Question::Names).await,
        Err(why) => refused(&why),
    }
}

async fn history(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    let names = ["from", "to", "points", "key", "view"];
    let asked = query::read(request.uri().query(), names).and_then(|[from, to, points, key, view]| {
        let (from, to) = times(from, to)?;
        let points = match points.as_deref().map(str::parse) {
            None => None,
            Some(Ok(points @ 1..=POINTS_MAX)) => Some(points),
            Some(_) => return Err(format!("points: a number from 1 to {POINTS_MAX}")),
        };
        match (key, view) {
            (Some(key), view) => Ok(Question::OfKey { key, view, from, to, points }),
            (None, None) => Ok(Question::History { from, to, points: points.unwrap_or(POINTS) }),
            (None, Some(_)) => Err("view: which key of it? Ask for one with key=FIELD=VALUE".to_owned()),
        }
    });
    match asked {
        Ok(question) => shared.answers.respond(&slot, question).await,
        Err(why) => refused(&why),
    }
}

async fn span(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    let asked = query::read(request.uri().query(), ["from", "to"]).and_then(|[from, to]| times(from, to));
    match asked {
        Ok((from, to)) => shared.answers.respond(&slot, Question::Span { from, to }).await,
        Err(why) => refused(&why),
    }
}

async fn changes(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    let names = ["list", "by", "from", "to", "against"];
    let asked = query::read(request.uri().query(), names).and_then(|[list, by, from, to, against]| {
        let (Some(list), (Some(from), Some(to))) = (list, times(from, to)?) else {
            return Err("which list, of which time? Ask for /api/changes?list=sources&from=TIME&to=TIME".to_owned());
        };
        Ok(Question::Changes { list, by, now: (from, to), against: times(against, None)?.0 })
    });
    match asked {
        Ok(question) => shared.answers.respond(&slot, question).await,
        Err(why) => refused(&why),
    }
}

async fn usage(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    let names = ["of", "interface", "by", "last", "top", "to"];
    let asked = query::read(request.uri().query(), names).and_then(|[of, interface, by, last, top, to]| {
        let number = |name: &str, text: Option<String>| {
            let read = |text: String| text.parse().map_err(|_| format!("{name}={}: how many?", short(&text)));
            text.map(read).transpose()
        };
        let (last, top) = (number("last", last)?, number("top", top)?);
        Ok(Question::Usage { of, interface, by, last, top, to: times(None, to)?.1 })
    });
    match asked {
        Ok(question) => shared.answers.respond(&slot, question).await,
        Err(why) => refused(&why),
    }
}
