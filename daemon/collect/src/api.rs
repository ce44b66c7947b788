//! The HTTP side. All paths have the same function, so a sender may use any of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};
use weir_http::ClientSlot;
use weir_page::{Lock, Token};
use weir_system::privileges;

use super::{
    body::{BODY_BYTES_MAX, BodyError, Packing},
    keeper::{Checked, Mistake, Refused, RefusedLines, StoreHandle, StoreResult},
};

/// Maximum size in bytes of all bodies in memory together.
const BODIES_BYTES_MAX: usize = 128 << 20;
/// How many bodies are unpacked and parsed at the same time. The others wait in order of arrival.
const READERS: usize = 2;
/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// How much of a refused body is read and discarded. A client that is cut off while it sends sees a broken connection
/// instead of the answer.
const FORGOTTEN_BYTES_MAX: usize = 256 << 20;
/// How many seconds a sender should wait before it tries again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("2");
/// A foreign web page cannot make a browser send these types without a preflight request, which is refused.
const CONTENT_TYPES: [&str; 2] = ["application/x-ndjson", "application/ndjson"];

/// State for answering requests.
#[derive(Debug)]
pub struct Api {
    lock: Option<Lock>,
    keeper: StoreHandle,
    /// Bytes of bodies that are in memory.
    held: Arc<AtomicUsize>,
    readers: Arc<Semaphore>,
}

/// An error answer: its status and its message.
#[derive(Debug)]
struct ErrorAnswer(StatusCode, String);

#[derive(Serialize)]
struct HttpAnswer {
    stored: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mistakes: Vec<Mistake>,
}

impl Api {
    /// Serves clients that know the token, if there is one.
    pub fn new(token: Option<Token>, keeper: StoreHandle) -> Self {
        Self { lock: token.map(Lock::new), keeper, held: Arc::default(), readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// Returns the HTTP routes.
    pub fn router(self) -> Router {
        Router::new().fallback(take).with_state(Arc::new(self))
    }

    /// Decides from its header if a request is read at all.
    async fn admit(&self, client: &ClientSlot, method: &Method, headers: &HeaderMap) -> Result<Packing, ErrorAnswer> {
        if let Some(lock) = &self.lock
            && !lock.opens(headers.get(AUTHORIZATION), client).await
        {
            let why = "send the token of this collector: `Authorization: Bearer TOKEN`";
            return Err(ErrorAnswer(StatusCode::UNAUTHORIZED, why.to_owned()));
        }
        if method != Method::POST {
            return Err(ErrorAnswer(
                StatusCode::METHOD_NOT_ALLOWED,
                "this is weir's collector: POST reports here".to_owned(),
            ));
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !CONTENT_TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known)) {
            let why = format!("Content-Type {kind:?}: send reports as {}, one per line", CONTENT_TYPES[0]);
            return Err(ErrorAnswer(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let packing = Packing::of(headers).ok_or_else(|| {
            let why = "this Content-Encoding is not understood (have: gzip, zstd, identity)";
            ErrorAnswer(StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned())
        })?;
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > BODY_BYTES_MAX as u64) { Err(too_large()) } else { Ok(packing) }
    }

    /// Reads a body within the limits of memory.
    async fn read(&self, body: &mut Body) -> Result<(Bytes, MemoryShare), ErrorAnswer> {
        let mut held = MemoryShare { all: self.held.clone(), mine: 0 };
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|error| ErrorAnswer(StatusCode::BAD_REQUEST, format!("the body ended early: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
            if !held.add(data.len()) {
                return Err(ErrorAnswer(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many requests at a time: try again".to_owned(),
                ));
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.into(), held))
    }

    /// Stores the content of a body. While it is unpacked and read, other requests are served.
    async fn keep(&self, body: Bytes, packing: Packing) -> Result<StoreResult, Refused> {
        let turn = self.readers.clone().acquire_owned().await.map_err(|_| Refused::Ending)?;
        // The permit is held until the work is done, even if the client hangs up.
        let read = move || {
            privileges::give_up_all();
            (Checked::read(&body, packing), turn)
        };
        let (checked, turn) = spawn_blocking(read).await.map_err(|_| Refused::Ending)?;
        let kept = self.keeper.keep(checked?).await;
        drop(turn);
        kept
    }
}

fn too_large() -> ErrorAnswer {
    let why = format!("the body has more than {BODY_BYTES_MAX} bytes: send fewer reports at a time");
    ErrorAnswer(StatusCode::PAYLOAD_TOO_LARGE, why)
}

/// A share of the memory for bodies, released on drop.
struct MemoryShare {
    all: Arc<AtomicUsize>,
    mine: usize,
}

impl MemoryShare {
    /// Reserves this many more bytes; false if that exceeds the limit.
    fn add(&mut self, bytes: usize) -> bool {
        let before = self.all.fetch_add(bytes, Ordering::Relaxed);
        self.mine += bytes;
        before + bytes <= BODIES_BYTES_MAX
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.all.fetch_sub(self.mine, Ordering::Relaxed);
    }
}

async fn take(State(api): State<Arc<Api>>, Extension(slot): Extension<Arc<ClientSlot>>, request: Request) -> Response {
    let (head, mut body) = request.into_parts();
    // A client with this header waits for `100 Continue` before it sends the body. It gets the error instead.
    let is_waiting = head.headers.contains_key(EXPECT);
    let packing = match api.admit(&slot, &head.method, &head.headers).await {
        Ok(packing) => packing,
        Err(no) => {
            if !is_waiting {
                forget(&mut body).await;
            }
            return no.into_response();
        }
    };
    let read = match timeout(BODY_TIME_MAX, api.read(&mut body)).await {
        Ok(read) => read,
        Err(_) => Err(ErrorAnswer(StatusCode::REQUEST_TIMEOUT, "the body took too long".to_owned())),
    };
    match read {
        Ok((bytes, _held)) => {
            let _busy = slot.busy();
            answer(api.keep(bytes, packing).await)
        }
        Err(no) => {
            forget(&mut body).await;
            no.into_response()
        }
    }
}

/// Reads and discards the rest of a body.
async fn forget(body: &mut Body) {
    let rest = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > FORGOTTEN_BYTES_MAX {
                return;
            }
        }
    };
    let _ = timeout(BODY_TIME_MAX, rest).await;
}

fn answer(kept: Result<StoreResult, Refused>) -> Response {
    match kept {
        Ok(StoreResult { stored, refused: RefusedLines { mistakes, count: 0 } }) => {
            say(StatusCode::OK, &HttpAnswer { stored, error: None, mistakes })
        }
        Ok(StoreResult { stored, refused: RefusedLines { mistakes, count } }) => {
            let first =
                mistakes.first().map_or_else(String::new, |first| format!("line {}: {}", first.line, first.error));
            let error = if count == 1 { first } else { format!("{first} (and {} more lines)", count - 1) };
            say(StatusCode::BAD_REQUEST, &HttpAnswer { stored, error: Some(error), mistakes })
        }
        Err(refused) => {
            let status = match &refused {
                Refused::Body(BodyError::TooLarge | BodyError::TooManyLines) => StatusCode::PAYLOAD_TOO_LARGE,
                Refused::Body(BodyError::Damaged(_)) => StatusCode::BAD_REQUEST,
                Refused::Store(_) | Refused::Ending => StatusCode::SERVICE_UNAVAILABLE,
            };
            ErrorAnswer(status, refused.to_string()).into_response()
        }
    }
}

fn say(status: StatusCode, said: &HttpAnswer) -> Response {
    let body = serde_json::to_vec(said).expect("it has text keys and is written into memory");
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        let header: Option<(HeaderName, HeaderValue)> = match status {
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, HeaderValue::from_static("POST"))),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, RETRY_SECONDS)),
            _ => None,
        };
        let said = HttpAnswer { stored: Vec::new(), error: Some(error), mistakes: Vec::new() };
        let mut response = say(status, &said);
        response.headers_mut().extend(header);
        response
    }
}
