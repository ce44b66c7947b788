//! Questions that something else than the board answers. A thread of its own asks, one question after the other, so
//! that many browsers cost weir no more than one.

use std::{fmt, io, thread};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use jiff::Timestamp;
use tokio::sync::oneshot;
use weir_system::{privileges, sandbox};

/// How many questions wait.
const WAITING_MAX: usize = 8;

/// What a browser asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What is known of a key in the last window, as `FIELD=VALUE,...`.
    Ask(String),
    /// The lists of the open window.
    Live,
    /// Each interface in equal steps.
    History {
        /// Its start; all that there is, if absent.
        from: Option<Timestamp>,
        /// Its end; now, if absent.
        to: Option<Timestamp>,
        /// Maximum number of steps.
        points: u32,
    },
    /// All windows that touch this time together.
    Span {
        /// Its start; all that there is, if absent.
        from: Option<Timestamp>,
        /// Its end; now, if absent.
        to: Option<Timestamp>,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The question is wrong.
    Refused(String),
    /// It cannot be answered now.
    Unavailable(String),
}

/// Answers a question with JSON.
pub type Answerer = Box<dyn Fn(Question) -> Result<Vec<u8>, Refusal> + Send>;

type Answer = Result<Vec<u8>, Refusal>;

/// The way to the thread that asks; it ends with the last clone.
#[derive(Clone)]
pub(crate) struct Answers(Sender<(Question, oneshot::Sender<Answer>)>);

impl Answers {
    pub(crate) fn start(answerer: Answerer) -> io::Result<Self> {
        let (ask, questions) = bounded(WAITING_MAX);
        thread::Builder::new().name("weir-answers".to_owned()).spawn(move || {
            privileges::give_up_all();
            sandbox::pass();
            work(&questions, &answerer);
        })?;
        Ok(Self(ask))
    }

    pub(crate) async fn ask(&self, question: Question) -> Answer {
        let (reply, answer) = oneshot::channel();
        match self.0.try_send((question, reply)) {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(Refusal::Unavailable("weir is ending".to_owned()))),
            Err(TrySendError::Full(_)) => Err(Refusal::Unavailable("weir answers others: ask again".to_owned())),
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Unavailable("weir is ending".to_owned())),
        }
    }
}

fn work(questions: &Receiver<(Question, oneshot::Sender<Answer>)>, answerer: &Answerer) {
    for (question, reply) in questions {
        // A browser that has gone does not want to know any more.
        if !reply.is_closed() {
            let _ = reply.send(answerer(question));
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}
