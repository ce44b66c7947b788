//! Paths, links and tests that the pages name exist.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{
    page::{self, Page, spans},
    root,
};

/// The folders that a path in the text may begin with.
pub const FOLDERS: [&str; 7] = ["common/", "config/", "daemon/", "docs/", "ebpf/", "scripts/", "tests/"];

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let mut wrong = Vec::new();
    for page in page::all()?.iter().chain(&[Page::read("CHANGELOG.md")?, Page::read("common/sketch/README.md")?]) {
        for line in page.lines() {
            for target in line.links().into_iter().filter(|target| !target.contains("://")) {
                if let Err(error) = follow(page, target) {
                    wrong.push(format!("{}: {target}: {error:#}", page.at(line.number)));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn follow(page: &Page, target: &str) -> Result<()> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = page.path.parent().context("a page is a file")?;
    let path = if file.is_empty() { page.path.clone() } else { folder.join(file) };
    ensure!(root().join(&path).exists(), "there is no such file");
    let found = anchor.is_empty() || Page::read(path)?.anchors().iter().any(|known| known == anchor);
    ensure!(found, "the page has no such heading");
    Ok(())
}

#[test]
fn every_path_exists() -> Result<()> {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in page::all()? {
        for (number, name) in names(&page) {
            count += 1;
            if let Err(error) = find(&name) {
                wrong.push(format!("{}: {name}: {error:#}", page.at(number)));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(count > 100, "only {count} paths were found in the pages: the test does not see them");
    Ok(())
}

/// `ARCHITECTURE.md` follows a packet with steps of the form "`function` in [file](file)".
#[test]
fn each_function_on_the_way_of_a_packet_is_in_its_file() -> Result<()> {
    let page = Page::read("ARCHITECTURE.md")?;
    let mut steps = 0;
    for line in page.lines() {
        for (name, rest) in
            line.text.split("` in [").skip(1).zip(line.text.split("` in [")).map(|(file, name)| (name, file))
        {
            let name = name.rsplit('`').next().unwrap_or_default();
            let file = rest.split(['(', ')']).nth(1).unwrap_or_default();
            let source = fs::read_to_string(root().join(file)).with_context(|| page.at(line.number))?;
            ensure!(
                source.contains(&format!("fn {name}(")) || source.contains(&format!("fn {name}<")),
                "{}: {file} has no function {name}",
                page.at(line.number)
            );
            steps += 1;
        }
    }
    ensure!(steps > 10, "only {steps} steps were found in the page: the test does not see them");
    Ok(())
}

/// The names in a page: paths in code spans and in commands, and the first column of a table below a heading that names
/// a folder.
fn names(page: &Page) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for line in page.lines() {
        let is_row = line.text.starts_with('|');
        let folder = spans(line.heading).into_iter().find(|span| span.ends_with('/') && is_row);
        let first = line.cells().first().copied().unwrap_or_default();
        for span in line.spans() {
            match folder {
                Some(folder) if spans(first).contains(&span) => names.push((line.number, format!("{folder}{span}"))),
                _ => names.extend(path(span).map(|path| (line.number, path))),
            }
        }
    }
    for block in page.blocks().iter().filter(|block| block.language != "text") {
        for (number, line) in (block.number + 1..).zip(&block.lines) {
            let words = line.split_whitespace().map(|word| word.trim_matches(['"', ',', ';']));
            names.extend(words.filter_map(path).map(|path| (number, path)));
        }
    }
    names
}

/// The path that a span of code begins with. `NAME` in a path is for the reader to fill in.
fn path(span: &str) -> Option<String> {
    let word = span.split_whitespace().next()?;
    FOLDERS.iter().any(|folder| word.starts_with(folder) && !word.contains("NAME")).then(|| word.to_owned())
}

/// Finds a file or folder, and the function in the file if a name follows `::`.
fn find(name: &str) -> Result<()> {
    let (path, function) = name.split_once("::").unwrap_or((name, ""));
    let file = root().join(path);
    ensure!(file.exists(), "there is no such file");
    if !function.is_empty() {
        let text = fs::read_to_string(file)?;
        ensure!(text.contains(&format!("fn {function}(")), "the file has no such function");
    }
    Ok(())
}

#[test]
fn every_promise_names_what_shows_it() -> Result<()> {
    let page = Page::read("docs/PROMISES.md")?;
    let rows: Vec<_> = page.tables().into_iter().flatten().collect();
    ensure!(rows.len() > 30, "{} promises are too few: the test does not see them", rows.len());
    for row in rows {
        let cells = row.cells();
        ensure!(cells.len() == 2, "{}: a promise and what shows it: {cells:?}", page.at(row.number));
        let shown = spans(cells[1]).into_iter().any(|span| path(span).is_some());
        ensure!(shown, "{}: nothing shows it", page.at(row.number));
    }
    Ok(())
}
