//! Questions that the board cannot answer. A separate thread asks them, one after the other, so that many browsers cost
//! weir no more than one.

use std::{fmt, io, thread};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use tokio::sync::oneshot;

/// How many questions may wait.
const WAITING_MAX: usize = 8;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The question is invalid.
    Refused(String),
    /// No answer is available now.
    Unavailable(String),
}

/// Answers a question with JSON.
pub type Answerer<Q> = Box<dyn FnMut(Q) -> Answer + Send>;

type Answer = Result<Vec<u8>, Refusal>;

/// A question, and where its answer goes.
type Asked<Q> = (Q, oneshot::Sender<Answer>);

/// The connection to the thread that asks. The thread ends with the last clone.
pub struct Answers<Q>(Sender<Asked<Q>>);

impl<Q: Send + 'static> Answers<Q> {
    /// Starts the thread. It first does `confine`, which drops the rights that it does not need.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn start(confine: fn(), answerer: Answerer<Q>) -> io::Result<Self> {
        let (ask, questions) = bounded(WAITING_MAX);
        thread::Builder::new().name("weir-answers".to_owned()).spawn(move || {
            confine();
            work(&questions, answerer);
        })?;
        Ok(Self(ask))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// There is none.
    pub async fn ask(&self, question: Q) -> Answer {
        let (reply, answer) = oneshot::channel();
        match self.0.try_send((question, reply)) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(Refusal::Unavailable("weir is ending".to_owned()))),
            Err(TrySendError::Full(_)) => {
                Err(Refusal::Unavailable("weir is busy with other questions: ask again".to_owned()))
            }
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Unavailable("weir is ending".to_owned())),
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
        Self(self.0.clone())
    }
}

impl<Q> fmt::Debug for Answers<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}
