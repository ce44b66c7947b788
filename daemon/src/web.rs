//! Answers the page's queries in the same way as those of clients of the control socket.

use std::{sync::Arc, time::Duration};

use crossbeam::channel::Receiver;
use weir_deliver::board::Board;
use weir_history::{Answer, Asker, OfKey, Query, Time, usage};
use weir_names::Names;
use weir_schema::ListKey;
use weir_web::{Answerer, Question, Refusal};

use crate::{
    control::{
        keys::{Coordinator, look_up},
        live::{LiveAsker, LiveQuery, Unanswered},
        past,
        protocol::Response,
    },
    history,
};

/// How long an answer may take, such as the union of a day's windows.
const PATIENCE: Duration = Duration::from_secs(15);

/// The sources of answers.
pub struct Answers {
    /// The last reports and the views.
    pub board: Arc<Board>,
    /// Looks up keys in the last window.
    pub coordinator: Coordinator,
    /// Requests readings of the open window.
    pub live: LiveAsker,
    /// The history, if it is enabled.
    pub history: Option<Asker>,
    /// The usage, if it is counted.
    pub usage: Option<usage::Asker>,
    /// The names of hosts.
    pub names: Names,
}

impl Answers {
    /// Answers the page's queries, and waits for their sources.
    pub fn answerer(self) -> Answerer {
        Box::new(move |question| self.answer(question))
    }

    fn answer(&self, question: Question) -> Result<Vec<u8>, Refusal> {
        match question {
            Question::Ask(key) => json(look_up(&self.board, &self.coordinator, &[key])),
            Question::Live => self.read(),
            Question::History { from, to, points } => {
                self.remember(Query::History(Time { from, to }, Some(points as usize)))
            }
            Question::OfKey { key, view, from, to, points } => {
                let points = points.map(|points| points as usize);
                ListKey::parse(&key, view.as_deref()).map_err(Refusal::Refused)?;
                self.remember(Query::OfKey(OfKey { key, view }, Time { from, to }, points))
            }
            Question::Usage { of, interface, by, last, top, to } => {
                let question = past::UsageQuestion { of, interface, by, last, top };
                self.sum_up(past::usage(question, to).map_err(Refusal::Refused)?)
            }
            Question::Changes { list, by, now, against } => {
                let compared = past::compared(list, by, now, against).map_err(Refusal::Refused)?;
                self.remember(Query::Changes(compared))
            }
            Question::Names => {
                let names = self.names.answer().map_err(Refusal::Refused)?;
                serde_json::to_vec(&names).map_err(|error| Refusal::Unavailable(error.to_string()))
            }
            Question::Span { from, to } => self.remember(Query::Span(Time { from, to })),
        }
    }

    /// Reads the open window.
    fn read(&self) -> Result<Vec<u8>, Refusal> {
        let told = |why: Unanswered| match why {
            Unanswered::Refused(why) => Refusal::Refused(why),
            why @ Unanswered::Busy => Refusal::Unavailable(why.text()),
        };
        let answer = self.live.ask(LiveQuery::Lists { only: None }, None).map_err(told)?;
        let answer = answer.recv_timeout(PATIENCE).unwrap_or(Err(Unanswered::Busy));
        answer.map(|json| json.to_vec()).map_err(told)
    }

    fn remember(&self, query: Query) -> Result<Vec<u8>, Refusal> {
        let Some(history) = &self.history else { return Err(Refusal::Unavailable(history::OFF.to_owned())) };
        waited(&history.ask(query, || ()).map_err(Refusal::Unavailable)?)
    }

    fn sum_up(&self, query: usage::Asked) -> Result<Vec<u8>, Refusal> {
        let Some(usage) = &self.usage else { return Err(Refusal::Unavailable(history::NO_USAGE.to_owned())) };
        waited(&usage.ask(query, || ()).map_err(Refusal::Unavailable)?)
    }
}

/// Waits for an answer from the disk or from many windows.
fn waited(answer: &Receiver<Answer>) -> Result<Vec<u8>, Refusal> {
    let slow = |_| Refusal::Unavailable("weir did not find an answer in time: ask for a shorter span".to_owned());
    answer.recv_timeout(PATIENCE).map_err(slow)?.map(String::into_bytes).map_err(Refusal::Unavailable)
}

fn json(response: Response) -> Result<Vec<u8>, Refusal> {
    match response {
        Response::Answer(answer) => Ok(answer.get().as_bytes().to_vec()),
        Response::Refused(why) => Err(Refusal::Refused(why)),
        Response::Unavailable(why) => Err(Refusal::Unavailable(why)),
    }
}
