//! Commands, options and settings that the pages name exist.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use clap::{
    Command, CommandFactory,
    error::ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion, MissingRequiredArgument,
    },
};
use serde_json::Value;
use weir::cli::Cli;
use weir_collect::cli::Cli as Collector;
use weir_config::{Config, Mistake, rule::catalogue::Catalogue, view::Standard};
use weir_merge::cli::Cli as Merge;

use crate::{fields, page, root};

#[test]
fn every_command_is_understood() -> Result<()> {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in page::all()? {
        let spans =
            page.lines().into_iter().flat_map(|line| line.spans().into_iter().map(move |span| (line.number, span)));
        let mut commands: Vec<_> = spans.map(|(number, span)| (number, span.to_owned())).collect();
        for block in page.blocks() {
            for (number, line) in (block.number + 1..).zip(&block.lines) {
                let line = line.split(" #").next().unwrap_or_default();
                commands.extend(line.split("&&").map(|command| (number, command.to_owned())));
            }
        }
        for (number, command) in commands {
            let words: Vec<_> = command.split_whitespace().skip_while(|word| matches!(*word, "$" | "sudo")).collect();
            let result = match words.as_slice() {
                ["weir", "collect", arguments @ ..] | ["weir-collect", arguments @ ..] => {
                    understood(Collector::command(), &[&["weir-collect"], arguments].concat())
                }
                ["weir", "merge", arguments @ ..] | ["weir-merge", arguments @ ..] => {
                    understood(Merge::command(), &[&["weir-merge"], arguments].concat())
                }
                ["weir", _, ..] => understood(Cli::known_commands(), &words),
                [script, arguments @ ..] if script.starts_with("scripts/") && !script.ends_with('/') => {
                    has_words(script, arguments)
                }
                [option] if option.starts_with("--") && option.len() > 2 => known(option),
                _ => continue,
            };
            count += 1;
            if let Err(error) = result {
                wrong.push(format!("{}: {command}: {error:#}", page.at(number)));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(count > 50, "only {count} commands were found in the pages: the test does not see them");
    Ok(())
}

/// Checks that a program accepts this command line. The text may name a command without its required arguments.
fn understood(program: Command, words: &[&str]) -> Result<()> {
    match program.try_get_matches_from(words) {
        Err(error) => {
            let is_part = matches!(
                error.kind(),
                DisplayHelp | DisplayVersion | MissingRequiredArgument | DisplayHelpOnMissingArgumentOrSubcommand
            );
            ensure!(is_part, "{error}");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

#[test]
fn a_command_that_weir_does_not_know_is_not_understood() {
    assert!(understood(Cli::known_commands(), &["weir", "status", "--json"]).is_ok());
    assert!(understood(Cli::known_commands(), &["weir", "states"]).is_err());
    assert!(understood(Collector::command(), &["weir-collect", "query", "--databases", "F"]).is_err());
}

/// Checks that a script has these arguments in its text. Words in capitals are placeholders.
fn has_words(script: &str, arguments: &[&str]) -> Result<()> {
    let text = fs::read_to_string(root().join(script))?;
    for word in arguments.iter().filter(|word| word.starts_with("--") || word.chars().all(|c| c.is_ascii_lowercase())) {
        ensure!(text.contains(word), "the script does not know {word}");
    }
    Ok(())
}

/// Checks that a command of `weir` or a script has this option.
fn known(option: &str) -> Result<()> {
    let name = option.trim_start_matches("--");
    let has = |command: &Command| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let others = [Collector::command(), Merge::command()];
    let is_ours = Cli::command().get_subcommands().chain(&others).any(has);
    let scripts = fs::read_dir(root().join("scripts"))?;
    let mut texts = scripts.filter_map(Result::ok).filter_map(|script| fs::read_to_string(script.path()).ok());
    ensure!(is_ours || texts.any(|text| text.contains(option)), "nothing has this option");
    Ok(())
}

#[test]
fn every_configuration_is_valid() -> Result<()> {
    let mut count = 0;
    for page in page::all()? {
        for block in page.blocks().into_iter().filter(|block| block.language == "yaml") {
            count += 1;
            let Err(mistakes) = Config::parse(&block.lines.join("\n"), &page.at(block.number)) else { continue };
            // weir cannot check the settings of a sink that it was built without.
            let is_left_out = |mistake: &Mistake| mistake.message.contains("was built without");
            ensure!(mistakes.list().iter().all(is_left_out), "{mistakes}");
        }
    }
    ensure!(count > 0, "no page shows a configuration");
    Ok(())
}

/// A name such as `report.interval` is a setting, a field of a report, or a value that an alert rule can use.
#[test]
fn every_setting_exists() -> Result<()> {
    let settings = serde_json::to_value(Config::default())?;
    let sections = settings.as_object().context("the configuration is a map")?;
    let fields = fields::of_schema()?;
    let numbers = Catalogue::new(Standard::ALL, &[]);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in page::all()?.iter().filter(|page| page.path != Path::new("docs/REPORT.md")) {
        for line in page.lines() {
            for span in line.spans() {
                let Some((section, name)) = span.split_once('.') else { continue };
                let is_name = name.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '_' | '.' | '[' | ']'));
                let bare = section.trim_end_matches("[]");
                let is_section = sections.contains_key(bare) || fields.iter().any(|field| field == bare);
                if !is_name || !is_section || name == "rs" {
                    continue;
                }
                count += 1;
                let is_field = fields.iter().any(|field| field == span) || numbers.find(span).is_some();
                if !is_field && !is_setting(&settings[bare], name) {
                    wrong.push(format!("{}: {span}", page.at(line.number)));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "neither a setting nor a field or number of a report:\n{}", wrong.join("\n"));
    ensure!(count > 10, "only {count} names were found in the pages: the test does not see them");
    Ok(())
}

fn is_setting(section: &Value, name: &str) -> bool {
    match section {
        Value::Array(list) => list.iter().any(|entry| entry.get(name).is_some()),
        _ => section.get(name).is_some(),
    }
}
