//! A failure that may last. It is logged when it begins, when it changes, and when it is over. If it were logged each
//! time, an operation that is tried every second would fill the log, for example while no file can be opened.

use std::error::Error;

use tracing::{info, warn};

use crate::text::with_causes;

/// A repeated operation, and its last result.
#[derive(Debug)]
pub struct Lasting {
    /// The operation, as a phrase that follows `cannot` or `can`.
    what: &'static str,
    /// The last failure that was logged; `None` while the operation works.
    said: Option<String>,
}

impl Lasting {
    /// Creates an operation that has worked so far.
    pub const fn new(what: &'static str) -> Self {
        Self { what, said: None }
    }

    /// Notes the latest result, and logs it if it has changed.
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
