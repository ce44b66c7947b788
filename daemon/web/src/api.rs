//! The handlers of `/api/...`.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::body::{Frame, SizeHint};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_deliver::board::Board;
use weir_http::ClientSlot;
use weir_system::text::short;

use crate::{
    answers::{Answers, Question, Refusal},
    query,
    seconds::Seconds,
};

/// How many answers may be in memory at the same time, while they are made or sent.
pub(crate) const ANSWERS_MAX: usize = 4;
/// The number of steps of a history: the default, and the maximum.
const POINTS: u32 = 600;
pub(crate) const POINTS_MAX: u32 = 720;
/// The most reports in an answer.
pub(crate) const REPORTS_MAX: usize = 5;
/// The answer before the first report.
const NO_WINDOW: &str = "no window has ended since weir was started: the first report comes when one has";

#[derive(Clone)]
struct Shared {
    board: Arc<Board>,
    answers: Answers,
    places: Arc<Semaphore>,
}

pub(crate) fn router(board: Arc<Board>, answers: Answers) -> Router {
    let shared = Shared { board, answers, places: Arc::new(Semaphore::new(ANSWERS_MAX)) };
    Router::new()
        .route("/api/seconds", get(seconds))
        .route("/api/report", get(report))
        .route("/api/ask", get(ask))
        .route("/api/live", get(live))
        .route("/api/history", get(history))
        .route("/api/span", get(span))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is nothing here: the page is at /\n") })
        .with_state(shared)
}

async fn seconds(State(shared): State<Shared>, Extension(slot): Extension<Arc<ClientSlot>>) -> Response {
    let names = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
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
    let Ok(place) = shared.places.clone().acquire_owned().await else { return unavailable("weir is ending") };
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
        Ok([Some(key)]) => shared.answer(slot, Question::Ask(key)).await,
        Ok([None]) => refused("which key? Ask for one: /api/ask?key=src_ip=192.0.2.7"),
        Err(why) => refused(&why),
    }
}

async fn live(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    match query::read(request.uri().query(), []) {
        Ok([]) => shared.answer(slot, Question::Live).await,
        Err(why) => refused(&why),
    }
}

async fn history(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    let asked = query::read(request.uri().query(), ["from", "to", "points"]).and_then(|[from, to, points]| {
        let (from, to) = times(from, to)?;
        let points = match points.as_deref().map(str::parse) {
            None => POINTS,
            Some(Ok(points @ 1..=POINTS_MAX)) => points,
            Some(_) => return Err(format!("points: a number from 1 to {POINTS_MAX}")),
        };
        Ok(Question::History { from, to, points })
    });
    match asked {
        Ok(question) => shared.answer(slot, question).await,
        Err(why) => refused(&why),
    }
}

async fn span(State(shared): State<Shared>, slot: Extension<Arc<ClientSlot>>, request: Request) -> Response {
    let asked = query::read(request.uri().query(), ["from", "to"]).and_then(|[from, to]| times(from, to));
    match asked {
        Ok((from, to)) => shared.answer(slot, Question::Span { from, to }).await,
        Err(why) => refused(&why),
    }
}

/// Parses the start and end of a time.
fn times(from: Option<String>, to: Option<String>) -> Result<(Option<Timestamp>, Option<Timestamp>), String> {
    let time = |text: Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let wrong = |_| format!("{:?} is no time in UTC, such as 2026-11-20T08:00:00Z", short(&text));
        text.parse().map(Some).map_err(wrong)
    };
    match (time(from)?, time(to)?) {
        (Some(from), Some(to)) if from >= to => Err(format!("the time from {from} to {to} ends before it begins")),
        times => Ok(times),
    }
}

impl Shared {
    /// Asks, and sends the answer. Until it is sent, the answer takes one of a few places.
    async fn answer(&self, Extension(slot): Extension<Arc<ClientSlot>>, question: Question) -> Response {
        let answer = {
            // The connection waits for weir now, and not for this browser.
            let _busy = slot.busy();
            let Ok(place) = self.places.clone().acquire_owned().await else { return unavailable("weir is ending") };
            self.answers.ask(question).await.map(|answer| (answer, place))
        };
        slot.goes_on();
        match answer {
            Ok((answer, place)) => json(Placed::body(answer.into(), place)),
            Err(Refusal::Refused(why)) => refused(&why),
            Err(Refusal::Unavailable(why)) => unavailable(&why),
        }
    }
}

/// An answer that takes a place until it is sent, or until the browser has disconnected.
struct Placed {
    content: Option<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl Placed {
    fn body(content: Bytes, place: OwnedSemaphorePermit) -> Body {
        Body::new(Self { content: Some(content), _place: place })
    }
}

/// How much of an answer is handed to the connection at a time.
const PART_BYTES: usize = 16 << 10;

impl hyper::body::Body for Placed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(mut content) = self.content.take().filter(|content| !content.is_empty()) else {
            return Poll::Ready(None);
        };
        // The place is released with the last part, so that must not be the whole answer.
        let part = content.split_to(content.len().min(PART_BYTES));
        self.content = Some(content);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.content.as_ref().map_or(0, |content| content.len() as u64))
    }
}

fn json(body: impl Into<Body>) -> Response {
    let names = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (names, body.into()).into_response()
}

fn refused(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
