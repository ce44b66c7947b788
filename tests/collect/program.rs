//! `weir collect` runs the program `weir-collect`. In the same way weir runs any other command that it does not know.

use std::{
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use weir_tests::{daemon::weir_binary, scratch::Scratch};

/// Runs a weir that finds other programs in this folder.
fn run(weir: &Path, path: &Path, arguments: &[&str]) -> Result<Output> {
    Command::new(weir).env("PATH", path).args(arguments).output().context("cannot run weir")
}

/// Checks that the exit code is this one, and that the output has these words.
fn check(output: &Output, code: i32, words: &[&str]) -> Result<()> {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(output.status.code() == Some(code), "{}: {text}", output.status);
    for word in words {
        ensure!(text.contains(word), "{word:?} is missing: {text}");
    }
    Ok(())
}

/// The collector itself, and the help of weir about it.
pub fn weir_runs_the_collector() -> Result<()> {
    let scratch = Scratch::new()?;
    let weir = weir_binary()?;
    let run = |arguments: &[&str]| run(&weir, scratch.path(), arguments);
    check(&run(&["collect", "--help"])?, 0, &["Usage: weir collect [OPTIONS] --listen", "--token-file", "query"])?;
    check(&run(&["collect", "--version"])?, 0, &["weir-collect "])?;
    check(&run(&["collect", "query", "--help"])?, 0, &["Usage: weir collect query [OPTIONS]", "--database"])?;
    check(&run(&["collect", "--lisen"])?, 2, &["--listen", "Usage: weir collect"])?;
    check(&run(&["--help"])?, 0, &["collect ", "the separate program", "weir-COMMAND"])
}

/// Without the collector weir names the package to install. For an unknown command it names similar ones.
pub fn without_the_collector_weir_says_what_to_install() -> Result<()> {
    let scratch = Scratch::new()?;
    let weir = scratch.program(&weir_binary()?, "weir", 0o700)?;
    let run = |arguments: &[&str]| run(&weir, scratch.path(), arguments);
    let advice = ["install the package weir-collect", "cargo build --release -p weir-collect"];
    for arguments in [&["collect"][..], &["collect", "--help"], &["collect", "query", "--database", "F"]] {
        check(&run(arguments)?, 2, &advice)?;
    }
    let advice = ["install the package weir-collect", "cargo build --release -p weir-merge"];
    for arguments in [&["merge", "F"][..], &["top", "--merge", "F"]] {
        check(&run(arguments)?, 2, &advice)?;
    }
    check(&run(&["colect", "--help"])?, 2, &["unrecognized subcommand 'colect'", "'collect'"])?;
    check(&run(&["statu"])?, 2, &["unrecognized subcommand 'statu'", "'status'"])?;
    check(&run(&["../weir"])?, 2, &["unrecognized subcommand '../weir'"])?;
    // The file exists, but it is not a program.
    symlink("/etc/passwd", scratch.file("weir-other"))?;
    check(&run(&["other"])?, 3, &["cannot run ", "weir-other", "Permission denied"])
}

/// A program gets its arguments unchanged. weir ends with the program's exit code, or by the same signal.
pub fn a_program_takes_the_place_of_weir() -> Result<()> {
    let (beside, path) = (Scratch::new()?, Scratch::new()?);
    let weir = beside.program(&weir_binary()?, "weir", 0o700)?;
    let run = |arguments: &[&str]| run(&weir, path.path(), arguments);
    for (program, name) in [("echo", "weir-collect"), ("echo", "weir-echo"), ("sh", "weir-sh"), ("false", "weir-both")]
    {
        symlink(Path::new("/bin").join(program), path.file(name))?;
    }
    symlink("/bin/true", beside.file("weir-both"))?;

    for command in ["collect", "echo"] {
        let output = run(&[command, "--", "--help", "-V", "", "a b", "--"])?;
        check(&output, 0, &[])?;
        ensure!(output.stdout == b"-- --help -V  a b --\n", "{output:?}");
    }
    check(&run(&["sh", "-c", "exit 7"])?, 7, &[])?;
    let ended = run(&["sh", "-c", "kill -TERM $$"])?.status;
    ensure!(ended.signal() == Some(Signal::TERM.as_raw()), "{ended}");
    check(&run(&["both"])?, 0, &[]).context("the program beside weir comes first")
}
