//! Tests with requirements that may be missing. Then they count as ignored, with a reason, and never as passed. If
//! nothing may be missing, as in CI, they fail.

use std::{env, process::ExitCode};

use anyhow::Result;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::process::geteuid;

/// How many tests run in parallel by default. Tests often wait: for the kernel to load and free programs, for packets,
/// or for the end of a window.
pub const SIDE_BY_SIDE: usize = 6;

/// The variable that makes a missing requirement a failure, if it is `1`.
pub const REQUIRE_ALL: &str = "WEIR_REQUIRE_ALL";

/// A requirement of a test that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A permission, a package or an interface that every machine can have, and CI must have.
    Needed(String),
    /// Something that is not part of the project and is never required.
    Optional(String),
}

/// Tells if a requirement of a test is present.
pub type Need = Result<(), Lack>;

/// A requirement that must be present, or the reason why it is not.
///
/// # Errors
///
/// That reason.
pub fn needed<T>(found: Result<T, String>) -> Need {
    found.map(drop).map_err(Lack::Needed)
}

/// A requirement that may be missing, or the reason why it is.
///
/// # Errors
///
/// That reason.
pub fn optional<T>(found: Result<T, String>) -> Need {
    found.map(drop).map_err(Lack::Optional)
}

/// A test that does not run if one of `needs` is missing: it is ignored or fails, and names what is missing.
pub fn trial(name: impl Into<String>, test: fn() -> Result<()>, needs: &[&Need]) -> Trial {
    let verdict = verdict(needs, env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1"));
    Trial::ignorable_test(name, move || match verdict {
        Verdict::Run => {
            test().map_err(|error| Failed::from(format!("{error:#}")))?;
            Ok(Completion::Completed)
        }
        Verdict::Ignore(lack) => Ok(Completion::ignored_with(lack)),
        Verdict::Fail(lack) => Err(Failed::from(format!("{REQUIRE_ALL}=1, and {lack}"))),
    })
}

/// Runs tests as the command line says.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(SIDE_BY_SIDE);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The decision about a test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Run,
    Ignore(String),
    Fail(String),
}

/// A test that lacks something optional is ignored, whatever else it lacks.
fn verdict(needs: &[&Need], all_required: bool) -> Verdict {
    let lacks = || needs.iter().filter_map(|need| need.as_ref().err());
    let optional = lacks().find_map(|lack| match lack {
        Lack::Optional(reason) => Some(reason.clone()),
        Lack::Needed(_) => None,
    });
    let needed: Vec<_> = lacks()
        .filter_map(|lack| match lack {
            Lack::Needed(reason) => Some(reason.as_str()),
            Lack::Optional(_) => None,
        })
        .collect();
    match (optional, needed.is_empty()) {
        (Some(reason), _) => Verdict::Ignore(reason),
        (None, true) => Verdict::Run,
        (None, false) if all_required => Verdict::Fail(needed.join("; ")),
        (None, false) => Verdict::Ignore(needed.join("; ")),
    }
}

/// The requirement to be root, for tests that load eBPF programs.
///
/// # Errors
///
/// This process does not run as root.
pub fn root() -> Need {
    if geteuid().is_root() { Ok(()) } else { Err(Lack::Needed("loading eBPF programs needs root".to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_lacks_something_never_passes() {
        let [root, package] = ["not root", "no package"].map(|reason| Err(Lack::Needed(reason.to_owned())));
        let captures = Err(Lack::Optional("no captures".to_owned()));
        let there = Ok(());
        for all_required in [false, true] {
            assert_eq!(verdict(&[], all_required), Verdict::Run);
            assert_eq!(verdict(&[&there, &there], all_required), Verdict::Run);
            assert_eq!(verdict(&[&captures, &root], all_required), Verdict::Ignore("no captures".to_owned()));
        }
        let both = "not root; no package".to_owned();
        assert_eq!(verdict(&[&root, &there, &package], false), Verdict::Ignore(both.clone()));
        assert_eq!(verdict(&[&root, &there, &package], true), Verdict::Fail(both));
    }
}
