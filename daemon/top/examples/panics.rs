//! A screen whose source panics on the first request that a key makes. A test runs it to see that `weir top` restores
//! the terminal even then.

use jiff::Timestamp;
use weir_top::{Request, Source, TopError, Update, run};

/// Has no updates, and panics on each request.
struct Panics;

impl Source for Panics {
    fn next(&mut self) -> Option<Update> {
        None
    }

    fn ask(&mut self, _: Request) {
        panic!("the source has failed");
    }

    fn knows_keys(&self) -> bool {
        true
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn kind(&self) -> String {
        "panics when a key steps back".to_owned()
    }
}

fn main() -> Result<(), TopError> {
    run(&mut Panics, &|| false)
}
