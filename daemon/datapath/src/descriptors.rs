//! File descriptors: how many the daemon needs, and whether the limit allows as many.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// File descriptors for programs, maps, interface links, sinks and short-lived files.
const BASE: u64 = 512;
/// The kernel's own maximum (`fs.nr_open`). It is enough for any number of interfaces if there is no hard limit.
const ANY_NUMBER: u64 = 1 << 20;

/// The limit of open files is too low and cannot be raised.
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

/// Raises the soft limit of open files to the number that a daemon needs with up to `cpus` rings and `threads` waiting
/// threads. If `any_number` of interfaces may appear, raises it to the hard limit, because each interface needs one
/// more.
///
/// # Errors
///
/// The hard limit is below the minimum.
pub fn provide(cpus: u64, threads: u64, any_number: bool) -> Result<(), TooFew> {
    let needed = needed(cpus, threads);
    let limit = getrlimit(Resource::Nofile);
    let raised = raised((limit.current, limit.maximum), needed, any_number);
    if let Some(soft) = raised.map_err(|hard| TooFew { needed, cpus, hard })? {
        // A system call filter may forbid this even if the limit allows it. If descriptors run out later, opening one
        // reports that.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit });
    }
    Ok(())
}

/// One descriptor per ring; per thread a waker, an epoll instance, and either a valve or a socket.
const fn needed(cpus: u64, threads: u64) -> u64 {
    BASE + cpus + 4 * threads
}

/// The soft limit to set, or `None` if it need not change. `Err` has the hard limit if that is too low.
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
        // A pattern may match thousands of interfaces.
        assert_eq!(raised((Some(1_024), Some(524_288)), 600, true), Ok(Some(524_288)));
        assert_eq!(raised((Some(1_024), None), 600, true), Ok(Some(ANY_NUMBER)));
        assert_eq!(
            raised((Some(4_096), Some(4_096)), 600, true),
            Ok(None),
            "the limit need not change, so it cannot be refused"
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
