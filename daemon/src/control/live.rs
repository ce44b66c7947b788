//! Questions about the open window, from the server to the coordinator.

use std::sync::Arc;

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use weir_datapath::interface::MeasuredInterface;
use weir_measure::question::{Ask, Views};
use weir_system::waker::Waker;

/// What a client wants to know of the open window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveQuery {
    /// All lists, or the one with this name.
    Lists {
        /// Its name.
        only: Option<String>,
    },
    /// What is known of these keys, each as `FIELD=VALUE,...`.
    Keys(Vec<String>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The question is wrong: why.
    Refused(String),
    /// A worker did not answer in time, or too many wait.
    Busy,
}

impl Unanswered {
    /// In words.
    pub fn text(self) -> String {
        match self {
            Self::Refused(why) => why,
            Self::Busy => "weir is busy, or has just begun a window: ask again".to_owned(),
        }
    }
}

/// The answer: a [`Live`](weir_report::Live) or [`LiveAnswers`](weir_report::LiveAnswers) as JSON. All who ask within a
/// second share its memory.
pub type LiveAnswer = Result<Arc<[u8]>, Unanswered>;

/// A question to the coordinator.
#[derive(Debug)]
pub struct LiveRequest {
    /// What the client wants to know.
    pub query: LiveQuery,
    reply: Sender<LiveAnswer>,
    /// Woken when the answer is there.
    waker: Option<Waker>,
}

impl LiveRequest {
    /// Answers. The client may have gone meanwhile.
    pub fn answer(self, answer: LiveAnswer) {
        let _ = self.reply.try_send(answer);
        if let Some(waker) = self.waker {
            waker.wake();
        }
    }

    /// The keys that it asks for, as text.
    pub fn keys(&self) -> &[String] {
        if let LiveQuery::Keys(keys) = &self.query { keys } else { &[] }
    }

    /// The keys that it asks for, by view.
    ///
    /// # Errors
    ///
    /// A key is wrong.
    pub fn asks(&self, views: &Views, interfaces: &[MeasuredInterface]) -> Result<Vec<Ask>, String> {
        let names: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let asks = self.keys().iter().map(|key| Ask::parse(key, views, &names).map_err(|why| format!("{key}: {why}")));
        Ok(asks.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

/// Asks the coordinator; anybody may have one.
#[derive(Clone, Debug)]
pub struct LiveAsker(Sender<LiveRequest>);

impl LiveAsker {
    /// An asker, and the coordinator's side. So many questions wait until the coordinator has time.
    pub fn new(waiting: usize) -> (Self, Receiver<LiveRequest>) {
        let (send, requests) = bounded(waiting);
        (Self(send), requests)
    }

    /// Asks; does not wait. When the answer is in the returned channel, `waker` is woken, if there is one. The answer
    /// comes within some seconds, unless weir stops.
    ///
    /// # Errors
    ///
    /// Too many questions wait.
    pub fn ask(&self, query: LiveQuery, waker: Option<Waker>) -> Result<Receiver<LiveAnswer>, Unanswered> {
        let (reply, answer) = bounded(1);
        match self.0.try_send(LiveRequest { query, reply, waker }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Unanswered::Busy),
        }
    }
}
