//! Answers questions that the board cannot answer. A separate thread asks them, one after the other, so that many
//! browsers cost weir no more than one.

use std::{fmt, io, sync::Arc, thread};

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use weir_http::ClientSlot;

use crate::body::{Placed, json, refused, unavailable};

/// How many questions may wait.
const WAITING_MAX: usize = 8;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The question is invalid.
    Refused(String),
    /// There is nothing of that name.
    Unknown(String),
    /// No answer is available now.
    Unavailable(String),
}

/// Answers a question with JSON.
pub type Answerer<Q> = Box<dyn FnMut(Q) -> Answer + Send>;

type Answer = Result<Vec<u8>, Refusal>;

/// A question, and where its answer goes.
type Asked<Q> = (Q, oneshot::Sender<Answer>);

/// The answer to a question that came too late.
const ENDING: &str = "weir is ending";

/// The connection to the thread that asks. The thread ends with the last clone.
pub struct Answers<Q> {
    ask: Sender<Asked<Q>>,
    /// For answers in memory, while they are made or sent.
    places: Arc<Semaphore>,
}

impl<Q: Send + 'static> Answers<Q> {
    /// Starts the thread. It first does `confine`, which drops the rights that it does not need. So many answers may be
    /// in memory at the same time.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn start(confine: fn(), places: usize, answerer: Answerer<Q>) -> io::Result<Self> {
        let (ask, questions) = bounded(WAITING_MAX);
        thread::Builder::new().name("weir-answers".to_owned()).spawn(move || {
            confine();
            work(&questions, answerer);
        })?;
        Ok(Self { ask, places: Arc::new(Semaphore::new(places)) })
    }

    /// Asks, and sends the answer. Until it is sent, the answer takes one of a few places.
    pub async fn respond(&self, slot: &Arc<ClientSlot>, question: Q) -> Response {
        let answer = {
            // The connection waits for weir now, and not for this browser.
            let _busy = slot.busy();
            let Some(place) = self.place().await else { return unavailable(ENDING) };
            self.ask(question).await.map(|answer| (answer, place))
        };
        slot.goes_on();
        match answer {
            Ok((answer, place)) => json(Placed::body(answer.into(), place)),
            Err(Refusal::Refused(why)) => refused(&why),
            Err(Refusal::Unknown(why)) => (StatusCode::NOT_FOUND, format!("{why}\n")).into_response(),
            Err(Refusal::Unavailable(why)) => unavailable(&why),
        }
    }

    /// Waits for a place for an answer; `None` if weir is ending.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().acquire_owned().await.ok()
    }

    async fn ask(&self, question: Q) -> Answer {
        let (reply, answer) = oneshot::channel();
        match self.ask.try_send((question, reply)) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(Refusal::Unavailable(ENDING.to_owned()))),
            Err(TrySendError::Full(_)) => {
                Err(Refusal::Unavailable("weir is busy with other questions: ask again".to_owned()))
            }
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Unavailable(ENDING.to_owned())),
        }
    }
}

fn work<Q>(questions: &Receiver<Asked<Q>>, mut answerer: Answerer<Q>) {
    for (question, reply) in questions {
        // If the browser has disconnected, it needs no answer.
        if !reply.is_closed() {
            let _ = reply.send(answerer(question));
        }
    }
}

impl<Q> Clone for Answers<Q> {
    fn clone(&self) -> Self {
        Self { ask: self.ask.clone(), places: self.places.clone() }
    }
}

impl<Q> fmt::Debug for Answers<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}
