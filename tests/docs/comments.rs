//! Comments in the sources fit a screen, as the code does. The formatter does not wrap comments.

use std::{fs, path::Path};

use anyhow::{Result, ensure};

use crate::root;

const FOLDERS: [&str; 4] = ["common", "daemon", "ebpf", "tests"];
const COLUMNS_MAX: usize = 120;

#[test]
fn comments_fit_a_screen() -> Result<()> {
    let (mut wide, mut files) = (Vec::new(), 0);
    for folder in FOLDERS {
        visit(&root().join(folder), &mut |path, text| {
            files += 1;
            wide.extend(wide_lines(text).into_iter().map(|number| format!("{}:{number}", path.display())));
        })?;
    }
    ensure!(wide.is_empty(), "more than {COLUMNS_MAX} columns:\n{}", wide.join("\n"));
    ensure!(files > 400, "only {files} files were found");
    Ok(())
}

/// The formatter of the page's code wraps neither comments nor strings.
#[test]
fn the_code_of_pages_fits_a_screen() -> Result<()> {
    let (mut wide, mut files) = (Vec::new(), 0);
    for folder in FOLDERS {
        visit_all(&root().join(folder), "js", &mut |path, text| {
            files += 1;
            let lines = (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
            wide.extend(lines.map(|(number, _)| format!("{}:{number}", path.display())));
        })?;
    }
    ensure!(wide.is_empty(), "more than {COLUMNS_MAX} columns:\n{}", wide.join("\n"));
    ensure!(files > 40, "only {files} files were found");
    Ok(())
}

#[test]
fn pictures_and_tables_may_be_wide() {
    let wide = "x".repeat(COLUMNS_MAX);
    let text = format!(
        "//! {wide}\nlet s = \"{wide}\";\n    // {wide}\n//! | {wide} |\n/// ```text\n/// {wide}\n/// ```\n// a\n"
    );
    assert_eq!(wide_lines(&text), [1, 3]);
}

/// The numbers of the lines that are too wide. Tables and pictures may be wide.
fn wide_lines(text: &str) -> Vec<usize> {
    let (mut found, mut in_picture) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
        let comment = comment.trim_start_matches(['/', '!', ' ']);
        in_picture ^= comment.starts_with("```");
        if !in_picture && !comment.starts_with('|') && line.chars().count() > COLUMNS_MAX {
            found.push(number);
        }
    }
    found
}

/// Calls `each` with every source file below a folder, except for build output.
pub fn visit(folder: &Path, each: &mut dyn FnMut(&Path, &str)) -> Result<()> {
    visit_all(folder, "rs", each)
}

/// Calls `each` with every file below a folder whose name ends in this way, except for build output.
fn visit_all(folder: &Path, extension: &str, each: &mut dyn FnMut(&Path, &str)) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            visit_all(&path, extension, each)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            each(&path, &fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
