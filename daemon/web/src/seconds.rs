//! A message each second, as server-sent events (HTML, section 9.2).
//!
//! Nothing is queued for a browser. When it can take more, it gets the last second, and the number of seconds that it
//! missed.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use weir_deliver::board::{Board, LastSecond, Watching};
use weir_http::ClientSlot;

/// The body of an endless answer.
pub(crate) struct Seconds(NextMessage);

/// Waits for the next message. Also returns the stream for the messages after it.
type NextMessage = Pin<Box<dyn Future<Output = Option<(Bytes, Stream)>> + Send>>;

/// The state of a stream.
struct Stream {
    watching: Watching,
    slot: Arc<ClientSlot>,
    /// The number of the last second that it got.
    last: u64,
}

impl Seconds {
    /// A stream for a browser; `None` if there are too many already.
    pub(crate) fn of(board: &Arc<Board>, slot: Arc<ClientSlot>) -> Option<Self> {
        let watching = board.watch()?;
        let last = board.second().map_or(0, |second| second.number);
        Some(Self(Box::pin(Stream { watching, slot, last }.next())))
    }
}

impl Stream {
    /// The next message; `None` if weir ends.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        // The server asks for a message when there is room for it, so the browser has read earlier messages.
        self.slot.goes_on();
        loop {
            let second = self.watching.next().await?;
            if second.number > self.last {
                let message = message(&second, second.number - self.last - 1);
                self.last = second.number;
                return Some((message, self));
            }
        }
    }
}

/// The message of a second, for a browser that missed the `skipped` messages before it.
fn message(second: &LastSecond, skipped: u64) -> Bytes {
    let skipped = if skipped > 0 { format!("\"skipped\":{skipped},") } else { String::new() };
    [b"data: {", skipped.as_bytes(), &second.fields, b"\n\n"].concat().into()
}

impl Body for Seconds {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((message, stream)) = ready!(self.0.as_mut().poll(context)) else { return Poll::Ready(None) };
        self.0 = Box::pin(stream.next());
        Poll::Ready(Some(Ok(Frame::data(message))))
    }
}
