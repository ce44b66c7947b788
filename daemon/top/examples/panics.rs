//! A screen whose source panics when a key asks it, for the test that the terminal is given back then, too.

use jiff::Timestamp;
use weir_top::{Request, Source, TopError, Update, run};

/// Says nothing, and panics when it is asked.
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
