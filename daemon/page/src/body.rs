//! Sends answers so that only a few are in memory at the same time.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// An answer that takes a place until it is sent, or until the browser has disconnected.
#[derive(Debug)]
pub struct Placed {
    content: Option<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl Placed {
    /// The body with this content.
    pub fn body(content: Bytes, place: OwnedSemaphorePermit) -> Body {
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

/// An answer that no browser keeps.
pub fn json(body: impl Into<Body>) -> Response {
    let names = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (names, body.into()).into_response()
}

/// The question is wrong.
pub fn refused(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

/// There is no answer now.
pub fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
