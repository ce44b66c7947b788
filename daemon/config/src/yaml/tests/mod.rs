//! Tests of the whole path from text to a configuration or its mistakes.

mod alerts;
mod damage;
mod mistakes;
mod networks;
mod secrets;
mod settings;
mod sinks;
mod views;

use std::fs;
use std::path::PathBuf;

use super::*;

const SHIPPED: &str = include_str!("../../../../../config/weir.yaml");

fn parse(text: &str) -> Result<Config, Mistakes> {
    Config::parse(text, "weir.yaml")
}

/// The mistakes of a text as displayed, without the file name and the advice at the end.
pub(super) fn mistakes(text: &str) -> Vec<String> {
    let shown = parse(text).expect_err(text).to_string();
    let (lines, _advice) = shown.rsplit_once('\n').unwrap();
    lines.lines().map(|line| line.strip_prefix("weir.yaml:").unwrap().to_owned()).collect()
}

/// A temporary file of this test process.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-config-{}-{name}", std::process::id()));
    fs::write(&path, content).unwrap();
    path
}

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn network(name: &str, prefixes: &[&str], own: bool) -> Network {
    Network { name: name.to_owned(), prefixes: prefixes.iter().map(|p| p.parse().unwrap()).collect(), file: None, own }
}
