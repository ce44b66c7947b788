//! Checks that everything exists which scripts name: files, packages, and the survivors in
//! `tests/mutants/survivors.md`.

use std::{collections::BTreeSet, fs, process::Command};

use anyhow::{Context, Result, ensure};

use crate::{page::Page, paths::FOLDERS, root, workspace::packages};

/// The scripts with their texts.
fn scripts() -> Result<Vec<(String, String)>> {
    let mut files = vec![".ci/run".to_owned()];
    for file in fs::read_dir(root().join("scripts"))? {
        files.push(format!("scripts/{}", file?.file_name().display()));
    }
    files.sort();
    files.into_iter().map(|file| Ok((file.clone(), fs::read_to_string(root().join(file))?))).collect()
}

#[test]
fn every_file_that_a_script_names_exists() -> Result<()> {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (script, text) in scripts()? {
        for pattern in named_files(&text) {
            count += 1;
            wrong.extend(missing(&pattern)?.into_iter().map(|file| format!("{script}: there is no {file}")));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(count > 80, "only {count} files were found in the scripts: the test does not see them");
    Ok(())
}

#[test]
fn every_file_with_surviving_mutants_exists() -> Result<()> {
    let page = Page::read("tests/mutants/survivors.md")?;
    let named: BTreeSet<_> =
        page.text.lines().filter_map(|line| line.strip_prefix("- `")?.split(": ").next()).collect();
    ensure!(named.len() > 5, "only {named:?} were found: the test does not see them");
    for file in named {
        ensure!(root().join(file).is_file(), "there is no {file}");
    }
    Ok(())
}

#[test]
fn every_package_that_a_script_names_exists() -> Result<()> {
    let known: BTreeSet<String> = packages()?.into_iter().map(|package| package.name).collect();
    let mut count = 0;
    for (script, text) in scripts()? {
        for name in named_packages(&text) {
            // Those of `tests/peers/` and `tests/stores/` are no members of the workspace.
            let is_apart = ["peers", "stores"].iter().any(|apart| name == format!("weir-{apart}"));
            ensure!(is_apart || known.contains(name), "{script}: there is no package {name}");
            count += 1;
        }
    }
    ensure!(count > 15, "only {count} packages were found in the scripts: the test does not see them");
    Ok(())
}

#[test]
fn every_target_that_a_script_names_exists() -> Result<()> {
    let known: BTreeSet<_> = packages()?.into_iter().flat_map(|package| package.targets).collect();
    let mut count = 0;
    for (script, text) in scripts()? {
        for (kind, name) in named_targets(&text) {
            ensure!(known.contains(&(kind.to_owned(), name.to_owned())), "{script}: there is no {kind} {name}");
            count += 1;
        }
    }
    ensure!(count > 15, "only {count} targets were found in the scripts: the test does not see them");
    Ok(())
}

#[test]
fn a_file_is_found_however_a_script_names_it() -> Result<()> {
    let text = "# daemon/a.rs: as NAME\n    tests/b/{c,d}.rs \"common/e\" # f\n ./scripts/g $x/docs/h docs/$i)\ncase ebpf/j* | config/k) l";
    let found = ["daemon/a.rs", "tests/b/{c,d}.rs", "common/e", "ebpf/j*", "config/k"];
    ensure!(named_files(text) == found, "{:?}", named_files(text));
    ensure!(missing("scripts/{check,soak}")?.is_empty() && missing("daemon/*")?.is_empty());
    ensure!(missing("scripts/{check,none}")? == ["scripts/none"]);
    ensure!(missing("scripts/none*")? == ["scripts/none*"]);
    ensure!(named_packages("cargo test -p weir --package weir-a \\\n -p \"$x\"") == ["weir", "weir-a"]);
    let targets = named_targets("cargo test --bin weir --test e2e \\\n --test \"$1\" --tests --example pages -- a");
    ensure!(targets == [("bin", "weir"), ("test", "e2e"), ("example", "pages")], "{targets:?}");
    Ok(())
}

/// The words that begin as a path of the repository does. Those with a variable, and `NAME`, are for somebody to fill
/// in.
fn named_files(text: &str) -> Vec<String> {
    let words = text.split(|one: char| one.is_whitespace() || "\"'()|=;:`".contains(one));
    let words = words.map(|word| word.trim_end_matches([',', '.', ']', '[', '>', '/']));
    let is_file = |word: &&str| {
        FOLDERS.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len())
            && !word.contains('$')
            && !word.contains("NAME")
    };
    words.filter(is_file).map(str::to_owned).collect()
}

/// Returns the files that a pattern of bash names and that do not exist.
fn missing(pattern: &str) -> Result<Vec<String>> {
    let safe = |one: char| one.is_alphanumeric() || "/._-{},*\\".contains(one);
    ensure!(pattern.chars().all(safe), "{pattern:?} is no name of a file");
    let listed = Command::new("bash")
        .args(["-c", &format!("for file in {pattern}; do [ -e \"$file\" ] || echo \"$file\"; done")])
        .current_dir(root())
        .output()
        .context("bash")?;
    Ok(String::from_utf8(listed.stdout)?.lines().map(str::to_owned).collect())
}

/// The names after `-p` and `--package`.
fn named_packages(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = words.windows(2).filter(|pair| ["-p", "--package"].contains(&pair[0]));
    let names = after.map(|pair| pair[1].trim_end_matches(|one: char| !one.is_alphanumeric()));
    names.filter(|name| name.starts_with("weir") && !name.contains('$')).collect()
}

/// The kinds and names of targets that a script gives to cargo, without those in a variable.
fn named_targets(text: &str) -> Vec<(&str, &str)> {
    let words: Vec<_> = text.split_whitespace().collect();
    let kind = |word: &str| match word {
        "--bin" => Some("bin"),
        "--test" => Some("test"),
        "--example" => Some("example"),
        _ => None,
    };
    let named = words.windows(2).filter_map(|pair| Some((kind(pair[0])?, pair[1].trim_end_matches([']', ')', ';']))));
    named.filter(|(_, name)| !name.contains(['$', '"', '{'])).collect()
}
