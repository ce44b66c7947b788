//! The README is short, every page fits a terminal, and the report that the README shows is a real one.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use weir::{
    cli::{Cli, Command, ReplayArgs},
    replay::{self, Options},
};
use weir_config::Config;
use weir_schema::{Style, write_overview, write_tables};

use crate::{
    page::{self, Page},
    root,
};

const README: &str = "README.md";
const LINES_MAX: usize = 150;
const WORDS_MAX: usize = 1_300;
const COLUMNS_MAX: usize = 120;
const ROWS_MAX: usize = 10;

#[test]
fn the_readme_is_short() -> Result<()> {
    let page = Page::read(README)?;
    let lines = page.text.lines().count();
    ensure!(lines <= LINES_MAX, "{lines} lines");
    let words = page.text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    ensure!(words <= WORDS_MAX, "{words} words");
    for (number, line) in (1..).zip(page.text.lines()) {
        let columns = line.chars().count();
        ensure!(columns <= COLUMNS_MAX, "{}: {columns} columns", page.at(number));
    }
    Ok(())
}

#[test]
fn pages_fit_a_terminal_and_their_tables_a_screen() -> Result<()> {
    for page in page::all()? {
        for line in page.lines().iter().filter(|line| !line.text.starts_with('|')) {
            let columns = line.text.chars().count();
            ensure!(columns <= COLUMNS_MAX, "{}: {columns} columns", page.at(line.number));
        }
        // The other pages are for looking things up, so their tables may be long.
        let is_short = [README, "docs/PROMISES.md", "docs/COSTS.md"].iter().any(|short| page.path.ends_with(short));
        for table in page.tables().into_iter().filter(|_| is_short) {
            let rows = table.len();
            ensure!(rows <= ROWS_MAX, "{}: a table of {rows} rows", page.at(table[0].number));
        }
    }
    Ok(())
}

/// The block begins with the command; `…` stands for lines that are left out.
#[test]
fn the_report_is_a_real_one() -> Result<()> {
    let page = Page::read(README)?;
    let blocks = page.blocks();
    let block = blocks.iter().find(|block| block.language == "text").context("no block shows a report")?;
    let [command, shown @ ..] = block.lines.as_slice() else { bail!("the block is empty") };
    let command = command.strip_prefix("$ ").context("the block does not begin with a command")?;
    let Some(Command::Replay(ReplayArgs { files, window, full, seed, .. })) =
        Cli::try_parse_from(command.split(' '))?.command
    else {
        bail!("only a replay makes the same report again: {command}");
    };
    ensure!(seed.is_some(), "without a seed the estimates differ a little each time: {command}");
    let options = Options {
        files: files.iter().map(|file| root().join(file)).collect(),
        windows: window,
        kernel: false,
        asks: Vec::new(),
        seed,
        progress: false,
    };
    let mut made = Vec::new();
    replay::replay(&Config::default(), &options, &mut |report| match full {
        true => write_tables(report, Style::default(), &mut made),
        false => write_overview(report, Style::default(), "", &mut made),
    })?;
    let made = String::from_utf8(made)?;
    let mut rest = made.lines();
    for line in shown.iter().filter(|line| line.trim() != "…") {
        ensure!(rest.any(|made| made == *line), "the report has no line, or not here:\n{line}\nit is\n{made}");
    }
    Ok(())
}
