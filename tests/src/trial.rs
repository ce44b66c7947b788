//! Tests that may lack something: they are ignored and say why, never passed.

use anyhow::Result;
use libtest_mimic::{Failed, Trial};
use rustix::process::geteuid;

/// A test that is ignored if it lacks something of `needs`, and says what.
#[expect(clippy::print_stderr, reason = "why tests are ignored is for whoever runs them")]
pub fn trial(name: impl Into<String>, test: fn() -> Result<()>, needs: &[&Result<(), String>]) -> Trial {
    let name = name.into();
    let lacks: Vec<_> = needs.iter().filter_map(|need| need.as_ref().err()).collect();
    for lack in &lacks {
        eprintln!("{name} is ignored: {lack}");
    }
    let ignored = !lacks.is_empty();
    Trial::test(name, move || test().map_err(|error| Failed::from(format!("{error:#}")))).with_ignored_flag(ignored)
}

/// What needs eBPF programs loaded needs root.
///
/// # Errors
///
/// This process is not root's.
pub fn root() -> Result<(), String> {
    if geteuid().is_root() { Ok(()) } else { Err("loading eBPF programs needs root".to_owned()) }
}
