//! A page of documentation, with the parts of Markdown that the tests read: headings, code, links and tables.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::root;

/// A page of the documentation.
pub struct Page {
    /// The path from the root of the repository.
    pub path: PathBuf,
    /// The text of the page.
    pub text: String,
}

/// A line that is not in a block of code.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    /// The number of the line, from 1.
    pub number: usize,
    /// The text of the line.
    pub text: &'a str,
    /// The heading above it, or the line itself if it is a heading.
    pub heading: &'a str,
}

/// A fenced block of code.
pub struct Block<'a> {
    /// The line of its first fence.
    pub number: usize,
    /// The language after the first fence.
    pub language: &'a str,
    /// The lines of the block.
    pub lines: Vec<&'a str>,
}

/// Every page that the tests check.
///
/// # Errors
///
/// A folder cannot be read.
pub fn all() -> Result<Vec<Page>> {
    let mut paths: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from).into();
    for folder in ["docs", "docs/collectors"] {
        for entry in fs::read_dir(root().join(folder))? {
            let entry = entry?;
            let is_picture = entry.path().extension().is_some_and(|extension| extension == "png");
            let is_page = entry.file_type()?.is_file() && !is_picture;
            paths.extend(is_page.then(|| Path::new(folder).join(entry.file_name())));
        }
    }
    for entry in fs::read_dir(root().join("tests"))? {
        let readme = Path::new("tests").join(entry?.file_name()).join("README.md");
        paths.extend(root().join(&readme).is_file().then_some(readme));
    }
    paths.sort();
    paths.into_iter().map(Page::read).collect()
}

impl Page {
    /// Reads the page at `path`.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let text = fs::read_to_string(root().join(&path)).with_context(|| path.display().to_string())?;
        Ok(Self { path, text })
    }

    /// The name of the page and a line, as compilers write it.
    pub fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    /// The lines outside of blocks of code.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let (mut lines, mut heading, mut in_block) = (Vec::new(), "", false);
        for (number, text) in (1..).zip(self.text.lines()) {
            if is_fence(text) {
                in_block = !in_block;
            } else if !in_block {
                if text.starts_with('#') {
                    heading = text.trim_start_matches('#').trim();
                }
                lines.push(Line { number, text, heading });
            }
        }
        lines
    }

    /// The blocks of code.
    pub fn blocks(&self) -> Vec<Block<'_>> {
        let (mut blocks, mut open) = (Vec::new(), None::<Block<'_>>);
        for (number, text) in (1..).zip(self.text.lines()) {
            match (is_fence(text), open.as_mut()) {
                (true, None) => {
                    open = Some(Block { number, language: text.trim_start_matches('`'), lines: Vec::new() });
                }
                (true, Some(_)) => blocks.extend(open.take()),
                (false, Some(block)) => block.lines.push(text),
                (false, None) => {}
            }
        }
        blocks
    }

    /// The tables, each as its lines without the heading and the rule below it.
    pub fn tables(&self) -> Vec<Vec<Line<'_>>> {
        let (mut tables, mut table) = (Vec::new(), Vec::new());
        for line in self.lines() {
            if line.text.starts_with('|') {
                table.push(line);
            } else if !table.is_empty() {
                tables.push(std::mem::take(&mut table));
            }
        }
        tables.extend((!table.is_empty()).then_some(table));
        tables.into_iter().map(|table| table.into_iter().skip(2).collect()).collect()
    }

    /// The anchors of the headings, as they follow `#` in a link.
    pub fn anchors(&self) -> Vec<String> {
        let headings = self.lines().into_iter().filter(|line| line.text.starts_with('#'));
        headings.map(|line| anchor(line.heading)).collect()
    }
}

impl<'a> Line<'a> {
    /// The spans of code in the line.
    pub fn spans(&self) -> Vec<&'a str> {
        spans(self.text)
    }

    /// The cells of a row of a table.
    pub fn cells(&self) -> Vec<&'a str> {
        self.text.trim().trim_matches('|').split('|').map(str::trim).collect()
    }

    /// The targets of the links in the line.
    pub fn links(&self) -> Vec<&'a str> {
        let targets = self.text.split("](").skip(1);
        targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
    }
}

/// The spans of code in a text: anything between two backticks.
pub fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn is_fence(line: &str) -> bool {
    line.starts_with("```")
}

/// Letters and digits in lower case; a space becomes a hyphen; other signs are left out.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let text =
            "# One: `a`\n[x](y.md#z) `b`\n\n| h |\n|---|\n| `c` | d |\n\n```sh\n# no heading\n```\n## Two\n".to_owned();
        let page = Page { path: PathBuf::from("p.md"), text };
        assert_eq!(page.anchors(), ["one-a", "two"]);
        assert_eq!(page.lines()[1].links(), ["y.md#z"]);
        assert_eq!(page.lines()[1].heading, "One: `a`");
        assert_eq!(page.tables().len(), 1);
        assert_eq!(page.tables()[0][0].cells(), ["`c`", "d"]);
        assert_eq!(page.blocks()[0].lines, ["# no heading"]);
        assert_eq!((page.blocks()[0].language, page.blocks()[0].number), ("sh", 8));
    }
}
