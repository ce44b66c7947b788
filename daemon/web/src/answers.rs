//! Questions that the board cannot answer. A separate thread asks them, one after the other, so that many browsers cost
//! weir no more than one.

use std::{fmt, io, thread};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use jiff::Timestamp;
use tokio::sync::oneshot;
use weir_system::{privileges, sandbox};

/// How many questions may wait.
const WAITING_MAX: usize = 8;

/// A browser's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A key in the last window, as `FIELD=VALUE,...`.
    Ask(String),
    /// The lists of the open window.
    Live,
    /// The traffic of each interface in equal steps.
    History {
        /// The start; if missing, as early as possible.
        from: Option<Timestamp>,
        /// The end; if missing, now.
        to: Option<Timestamp>,
        /// Maximum number of steps.
        points: u32,
    },
    /// The union of all windows that touch this time.
    Span {
        /// The start; if missing, as early as possible.
        from: Option<Timestamp>,
        /// The end; if missing, now.
        to: Option<Timestamp>,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The question is invalid.
    Refused(String),
    /// No answer is available now.
    Unavailable(String),
}

/// Answers a question with JSON.
pub type Answerer = Box<dyn Fn(Question) -> Result<Vec<u8>, Refusal> + Send>;

type Answer = Result<Vec<u8>, Refusal>;

/// The connection to the thread that asks. The thread ends with the last clone.
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
            Err(TrySendError::Full(_)) => {
                Err(Refusal::Unavailable("weir is busy with other questions: ask again".to_owned()))
            }
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Unavailable("weir is ending".to_owned())),
        }
    }
}

fn work(questions: &Receiver<(Question, oneshot::Sender<Answer>)>, answerer: &Answerer) {
    for (question, reply) in questions {
        // If the browser has disconnected, it needs no answer.
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
