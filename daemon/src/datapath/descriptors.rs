//! File descriptors: how many the daemon needs, and whether it may have them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Programs, maps, links of interfaces, sinks, and what the daemon opens for a moment.
const BASE: u64 = 512;
/// As many as the kernel allows by itself (`fs.nr_open`): for any number of interfaces, where no hard limit is set.
const ANY_NUMBER: u64 = 1 << 20;

/// The limit of open files is too low, and may not be raised.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "weir needs {needed} file descriptors for {cpus} CPUs, but the limit is {hard}: raise it to {needed} (`ulimit -Hn`, \
     `LimitNOFILE=` in the unit)"
)]
pub struct TooFew {
    needed: u64,
    cpus: u64,
    hard: u64,
}

/// Raises the soft limit of open files to what a daemon needs that may have `cpus` rings and has `threads` threads that
/// wait for something; with `any_number` of interfaces to the hard limit, as each of them is one more.
///
/// # Errors
///
/// The hard limit is lower than what it needs in any case.
pub fn provide(cpus: u64, threads: u64, any_number: bool) -> Result<(), TooFew> {
    let needed = needed(cpus, threads);
    let limit = getrlimit(Resource::Nofile);
    let raised = raised((limit.current, limit.maximum), needed, any_number);
    if let Some(soft) = raised.map_err(|hard| TooFew { needed, cpus, hard })? {
        // A system call filter may forbid it, though the limit allows it; if a descriptor is missing, its opening says
        // so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit });
    }
    Ok(())
}

/// Each ring is one; each thread has a waker, an epoll instance, and a valve or a socket.
const fn needed(cpus: u64, threads: u64) -> u64 {
    BASE + cpus + 4 * threads
}

/// The soft limit to set, if it must be another one; `Err` with the hard limit if that is too low.
fn raised((soft, hard): (Option<u64>, Option<u64>), needed: u64, any_number: bool) -> Result<Option<u64>, u64> {
    let Some(soft) = soft else { return Ok(None) };
    let goal = if any_number { hard.unwrap_or(ANY_NUMBER).max(needed) } else { needed };
    match hard {
        _ if soft >= goal => Ok(None),
        Some(hard) if hard < needed => Err(hard),
        _ => Ok(Some(goal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_needed_and_possible() {
        assert_eq!(raised((Some(1_024), Some(524_288)), 2_000, false), Ok(Some(2_000)));
        assert_eq!(raised((Some(1_024), None), 2_000, false), Ok(Some(2_000)));
        assert_eq!(raised((Some(2_000), Some(2_000)), 2_000, false), Ok(None));
        assert_eq!(raised((None, None), 2_000, false), Ok(None));
        assert_eq!(raised((Some(1_024), Some(1_999)), 2_000, false), Err(1_999));
        // Thousands of interfaces may fit a pattern.
        assert_eq!(raised((Some(1_024), Some(524_288)), 600, true), Ok(Some(524_288)));
        assert_eq!(raised((Some(1_024), None), 600, true), Ok(Some(ANY_NUMBER)));
        assert_eq!(
            raised((Some(4_096), Some(4_096)), 600, true),
            Ok(None),
            "nothing to ask for, so nothing is refused"
        );
        assert_eq!(raised((Some(512), Some(599)), 600, true), Err(599));
    }

    #[test]
    fn a_thousand_cpus_need_more_than_the_usual_limit_and_two_do_not() {
        assert!(needed(1_024, 8) > 1_024);
        assert!(needed(2, 2) < 1_024);
        let error = TooFew { needed: 1_600, cpus: 1_024, hard: 1_024 };
        assert!(error.to_string().contains("needs 1600 file descriptors for 1024 CPUs, but the limit is 1024"));
    }
}
