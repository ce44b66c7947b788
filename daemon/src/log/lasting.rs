//! A failure that may last: it is logged when it begins, when it becomes another one, and when it is over. What is
//! tried each second would otherwise fill the log while, for example, no file can be opened.

use std::error::Error;

use tracing::{info, warn};

use crate::text::with_causes;

/// Something that is done again and again, and whether it works.
#[derive(Debug)]
pub struct Lasting {
    /// What is done, as it follows `cannot` or `can`.
    what: &'static str,
    /// The failure that was logged last; `None` while it works.
    said: Option<String>,
}

impl Lasting {
    /// Something that works so far.
    pub const fn new(what: &'static str) -> Self {
        Self { what, said: None }
    }

    /// Takes note of how it went this time. Logs what is new about it.
    pub fn note<T, E: Error>(&mut self, result: Result<T, E>) -> Option<T> {
        let what = self.what;
        match result {
            Ok(value) => {
                if self.said.take().is_some() {
                    info!("weir can {what} again");
                }
                Some(value)
            }
            Err(error) => {
                let why = with_causes(&error);
                if self.said.as_ref() != Some(&why) {
                    warn!("cannot {what}: {why}");
                    self.said = Some(why);
                }
                None
            }
        }
    }
}
