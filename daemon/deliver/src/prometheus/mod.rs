//! Serves numbers to Prometheus: the numbers of the last report, and sums over all windows (`prometheus: {listen:
//! ADDRESS}`).
//!
//! ```text
//! coordinator: at each window's end adds the report to the sums, and puts both here
//! server:      a thread of its own; a scrape takes what is here and writes it as text
//! ```
//!
//! Nothing waits: the coordinator swaps a pointer. The cost of a scrape is bounded by the size of a report.
//!
//! | path | tells |
//! |---|---|
//! | `/` | these paths |
//! | `/metrics` | all numbers, as `OpenMetrics` or in the older text format |
//! | `/report` | the last report as JSON |
//! | `/healthz` | whether windows end |
//! | `/readyz` | whether weir measures and sees all packets, and the first window has ended |

mod families;
mod sums;
mod talkers;
mod text;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, VARY},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tracing::{info, warn};
use weir_config::Prometheus as Settings;
use weir_http::{Limits, Server, host};
use weir_schema::{NO_WINDOW, Report};
use weir_system::{clock, memory::Part, text::with_causes};

use self::{
    sums::Sums,
    talkers::{Rows, Talkers},
    text::Format,
};
use crate::{board::Board, gzip::gzip};

const LIMITS: Limits = Limits { connections: 16, request: Duration::from_secs(10), grace: Duration::from_millis(500) };
/// How much later than the interval a window may end, because it waits for late CPUs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory for the keys that `top` exports on a day.
pub fn memory(settings: &Settings) -> Part {
    let bytes = settings.listen.map_or(0, |_| talkers::memory_bytes(settings.top));
    Part::new("keys of `prometheus.top`", bytes, "of a day, in three lists").if_any()
}

/// The coordinator's side of the exporter.
#[derive(Debug)]
pub struct Exporter {
    shared: Arc<Shared>,
    sums: Sums,
    talkers: Talkers,
    _server: Server,
}

#[derive(Debug)]
struct Shared {
    board: Arc<Board>,
    /// True if only clients on this machine can connect.
    is_local: bool,
    state: Mutex<LastWindow>,
}

/// The state after the last window.
#[derive(Clone, Debug)]
struct LastWindow {
    /// When the last window ended, or weir started, on the monotonic clock.
    at: Duration,
    interval: Duration,
    latest: Option<Arc<Latest>>,
}

/// The last report, and the sums over all reports.
#[derive(Debug)]
struct Latest {
    report: Report,
    sums: Sums,
    talkers: Rows,
}

impl Exporter {
    /// Serves until it is dropped. If the address cannot be used, weir logs it and measures without it.
    pub fn open(settings: &Settings, board: Arc<Board>, interval: Duration) -> Option<Self> {
        let listen = settings.listen?;
        let known = LastWindow { at: clock::now().monotonic, interval, latest: None };
        let shared = Arc::new(Shared { board, is_local: listen.ip().is_loopback(), state: Mutex::new(known) });
        match Server::start("weir-metrics", listen, router(shared.clone()), LIMITS) {
            Ok(server) => {
                info!("metrics at http://{}/metrics", server.address());
                let talkers = Talkers::new(settings.top);
                Some(Self { shared, sums: Sums::default(), talkers, _server: server })
            }
            Err(error) => {
                warn!("no metrics: cannot listen at {listen}: {}", with_causes(&error));
                None
            }
        }
    }

    /// Publishes the report of a window that has ended.
    pub fn publish(&mut self, report: &Report) {
        self.sums.add(report);
        let talkers = self.talkers.choose(report);
        let latest = Arc::new(Latest { report: report.clone(), sums: self.sums.clone(), talkers });
        let mut known = self.shared.lock();
        known.at = clock::now().monotonic;
        let before = known.latest.replace(latest);
        drop(known);
        // Freed after the lock is released.
        drop(before);
    }

    /// Notes that another interval has taken effect.
    pub fn change(&self, interval: Duration) {
        self.shared.lock().interval = interval;
    }
}

impl Shared {
    /// The content is consistent at any time, so a thread that panicked with the lock held does no harm.
    fn lock(&self) -> MutexGuard<'_, LastWindow> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current state. The lock is held only while a pointer is copied.
    fn known(&self) -> LastWindow {
        self.lock().clone()
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(|| async { "weir: /metrics is for Prometheus; also /report /healthz /readyz\n" }))
        .route("/metrics", get(metrics))
        .route("/report", get(report))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(|| async { (StatusCode::NOT_FOUND, "have: /metrics /report /healthz /readyz\n") })
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// A local server accepts only addresses and localhost as its name.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default());
    if shared.is_local && host.is_some_and(|host| !host::is_own(host::name(host))) {
        let why = "this address is for this machine alone: ask for it as localhost, or by its address\n";
        return (StatusCode::MISDIRECTED_REQUEST, why).into_response();
    }
    next.run(request).await
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accepted);
    let text = families::write(shared.known().latest.as_deref(), format);
    packed(&headers, format.content_type(), text.into_bytes())
}

/// A response as it is, or compressed with gzip if the client asks for that. Numbers and names shrink to a tenth.
fn packed(asked: &HeaderMap, content_type: &'static str, body: Vec<u8>) -> Response {
    let names = [(CONTENT_TYPE, content_type), (VARY, "accept-encoding")];
    if takes_gzip(asked) {
        (names, [(CONTENT_ENCODING, "gzip")], gzip(&[&body])).into_response()
    } else {
        (names, body).into_response()
    }
}

/// Returns true if a client accepts gzip (RFC 9110 section 12.5.3). An entry for gzip itself overrides `*`.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let mut any = false;
    for value in asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
        for coding in value.split(',') {
            let mut parts = coding.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let is_taken = weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0));
            match name.as_str() {
                "gzip" | "x-gzip" => return is_taken,
                "*" => any = is_taken,
                _ => {}
            }
        }
    }
    any
}

async fn report(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    match shared.board.report() {
        Some(report) => packed(&headers, "application/json", report.line.to_vec()),
        None => (StatusCode::SERVICE_UNAVAILABLE, format!("{NO_WINDOW}\n")).into_response(),
    }
}

async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    let known = shared.known();
    match overdue(&known, clock::now().monotonic) {
        None => "windows end\n".into_response(),
        Some(since) => {
            let why = format!("no window has ended for {} s\n", since.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

/// How long ago the last window ended, if that is too long.
fn overdue(known: &LastWindow, now: Duration) -> Option<Duration> {
    let since = now.saturating_sub(known.at);
    (since > 2 * known.interval + PATIENCE).then_some(since)
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let troubles = shared.board.troubles();
    if !troubles.is_empty() {
        let why = format!("weir does not see all packets, or has not in the last window:\n{}\n", troubles.join("\n"));
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    if shared.known().latest.is_some() {
        "measuring, and the first window has ended\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "measuring, and the first window has not ended yet\n").into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_what_a_client_asks_for() {
        let takes = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT_ENCODING, value.parse().unwrap());
            }
            takes_gzip(&headers)
        };
        for values in [&["gzip"][..], &["deflate, gzip;q=0.5"], &["br", "GZIP"], &["*"], &["*;q=0, gzip; q=0.001"]] {
            assert!(takes(values), "{values:?}");
        }
        for values in [&[][..], &["identity"], &["gzip;q=0"], &["*, gzip; q=0.000"], &["gzip;q=much"], &["*;q=0"]] {
            assert!(!takes(values), "{values:?}");
        }
    }

    #[test]
    fn windows_that_do_not_end_are_overdue_after_two_intervals() {
        let seconds = Duration::from_secs;
        let known = LastWindow { at: seconds(100), interval: seconds(60), latest: None };
        assert_eq!(overdue(&known, seconds(230)), None);
        assert_eq!(overdue(&known, seconds(231)), Some(seconds(131)));
    }
}
