//! Looks up keys in the last window: parses them, and asks the coordinator.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::to_raw_value;
use weir_deliver::board::{Askable, Board};
use weir_measure::question::{KeyQuery, Views};
use weir_schema::NO_WINDOW;

use super::protocol::{KeyAnswers, Response};

/// Maximum number of keys in a request.
const KEYS_MAX: usize = 64;

/// Asks the coordinator, with the views that the keys were parsed with.
pub type Coordinator = Box<dyn Fn(Arc<Views>, Vec<KeyQuery>) -> Result<KeyAnswers, String> + Send>;

/// Looks up these keys in all views.
pub fn look_up(board: &Board, coordinator: &Coordinator, keys: &[String]) -> Response {
    if !is_number_allowed(keys) {
        return wrong_number(keys);
    }
    let Some(Askable { views, interfaces, addresses }) = board.askable() else {
        return Response::Unavailable(NO_WINDOW.to_owned());
    };
    let interfaces: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    match KeyQuery::parse_all(keys, &views, &interfaces, addresses) {
        Ok(asks) => match coordinator(views.clone(), asks) {
            Ok(asked) => answered(&asked),
            Err(why) => Response::Unavailable(why),
        },
        Err(why) => Response::Refused(why),
    }
}

/// Returns true if one request may have this many keys.
pub(super) const fn is_number_allowed(keys: &[String]) -> bool {
    !keys.is_empty() && keys.len() <= KEYS_MAX
}

/// The refusal of a wrong number of keys.
pub(super) fn wrong_number(keys: &[String]) -> Response {
    Response::Refused(format!("{} keys: ask for 1 to {KEYS_MAX} at a time", keys.len()))
}

/// An answer as JSON.
pub(super) fn answered(answer: &impl Serialize) -> Response {
    match to_raw_value(answer) {
        Ok(answer) => Response::Answer(answer),
        Err(error) => Response::Unavailable(format!("weir cannot encode its answer: {error}")),
    }
}
