//! Queries about the open window, from the server to the coordinator.

use std::sync::Arc;

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use weir_config::Addresses;
use weir_datapath::interface::MeasuredInterface;
use weir_measure::question::{KeyQuery, Views};
use weir_system::waker::Waker;

/// A query about the open window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveQuery {
    /// All lists, or the one with this name.
    Lists {
        /// The name of the list or view.
        only: Option<String>,
    },
    /// These keys, each as `FIELD=VALUE,...`.
    Keys(Vec<String>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The query is invalid, for this reason.
    Refused(String),
    /// A worker did not answer in time, or too many queries wait.
    Busy,
}

impl Unanswered {
    /// The reason in words.
    pub fn text(self) -> String {
        match self {
            Self::Refused(why) => why,
            Self::Busy => "weir is busy, or has just begun a window: ask again".to_owned(),
        }
    }
}

/// The answer: a [`Live`](weir_schema::Live) or [`LiveAnswers`](weir_schema::LiveAnswers) as JSON. All clients that ask
/// within a second share its memory.
pub type LiveAnswer = Result<Arc<[u8]>, Unanswered>;

/// A query to the coordinator.
#[derive(Debug)]
pub struct LiveRequest {
    /// The query of the client.
    pub query: LiveQuery,
    reply: Sender<LiveAnswer>,
    /// Woken when the answer has arrived.
    waker: Option<Waker>,
}

impl LiveRequest {
    /// Sends the answer. The client may have disconnected meanwhile.
    pub fn answer(self, answer: LiveAnswer) {
        let _ = self.reply.try_send(answer);
        if let Some(waker) = self.waker {
            waker.wake();
        }
    }

    /// The requested keys, as text.
    pub fn keys(&self) -> &[String] {
        if let LiveQuery::Keys(keys) = &self.query { keys } else { &[] }
    }

    /// The requested keys, by view.
    ///
    /// # Errors
    ///
    /// A key is invalid, or has more of an address than clients may see.
    pub fn asks(
        &self,
        views: &Views,
        interfaces: &[MeasuredInterface],
        addresses: Addresses,
    ) -> Result<Vec<KeyQuery>, String> {
        let names: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        KeyQuery::parse_all(self.keys(), views, &names, addresses)
    }
}

/// Sends queries to the coordinator. It can be cloned.
#[derive(Clone, Debug)]
pub struct LiveAsker(Sender<LiveRequest>);

impl LiveAsker {
    /// An asker, and the coordinator's side. Up to `waiting` queries wait until the coordinator has time.
    pub fn new(waiting: usize) -> (Self, Receiver<LiveRequest>) {
        let (send, requests) = bounded(waiting);
        (Self(send), requests)
    }

    /// Sends a query without waiting for its answer. When the answer is in the returned channel, `waker` is woken, if
    /// there is one. The answer comes within some seconds, unless weir stops.
    ///
    /// # Errors
    ///
    /// Too many queries wait.
    pub fn ask(&self, query: LiveQuery, waker: Option<Waker>) -> Result<Receiver<LiveAnswer>, Unanswered> {
        let (reply, answer) = bounded(1);
        match self.0.try_send(LiveRequest { query, reply, waker }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Unanswered::Busy),
        }
    }
}
