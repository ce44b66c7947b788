//! The only module that reads a clock. Everywhere else time is an argument.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Moment {
    /// The wall clock, which reports use and which may be adjusted.
    pub wall: Timestamp,
    /// The monotonic clock, on which windows are measured.
    pub monotonic: Duration,
}

/// Reads both clocks.
pub fn now() -> Moment {
    Moment {
        #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
        wall: Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH),
        monotonic: read(ClockId::Monotonic),
    }
}

/// The time since the machine booted, including sleep.
pub fn since_boot() -> Duration {
    read(ClockId::Boottime)
}

/// The user and system time that this process has used so far.
pub fn cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// The user and system time that this thread has used so far.
pub fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    // Both clocks count up from zero, so the conversion cannot fail.
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
