//! Mistakes in a configuration, as messages for the person who wrote it.

use std::{env, fmt, path::Path};

use weir_system::text::escaped;

/// A position in the file. Lines and columns count from 1; a column is a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the line, from 1.
    pub line: usize,
    /// The character in that line.
    pub column: usize,
}

impl Position {
    /// The position right after some text, which must be valid UTF-8.
    pub(super) fn after(text: &[u8]) -> Self {
        let line_start = text.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
        let line = 1 + text.iter().filter(|b| **b == b'\n').count();
        Self { line, column: 1 + String::from_utf8_lossy(&text[line_start..]).chars().count() }
    }
}

/// A mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The place of the mistake; `None` if it concerns the whole file.
    pub place: Option<Position>,
    /// The setting, such as `sinks[0].timeout`; empty if the mistake concerns no single setting.
    pub path: String,
    /// The mistake in words, with what would be right.
    pub message: String,
}

/// All mistakes in a configuration file, in line order.
///
/// Each is displayed as one line, even if it quotes line breaks, such as `weir.yaml:12:13: report.interval: 200ms is
/// below the minimum of 1s`. The last line tells what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    file: String,
    list: Vec<Mistake>,
    unlisted: usize,
    advice: &'static str,
}

impl Mistakes {
    /// Mistakes in the content of `file`. `list` has the ones to show, and `unlisted` is the number of the others.
    pub(super) fn in_content(file: &str, mut list: Vec<Mistake>, unlisted: usize) -> Self {
        list.sort_by_key(|mistake| mistake.place.map_or((1, Position { line: 0, column: 0 }), |place| (0, place)));
        let advice = "the weir.yaml that comes with weir explains every setting; `weir check FILE` checks \
                      a file without starting weir";
        Self { file: file.to_owned(), list, unlisted, advice }
    }

    /// The same mistakes, for a view that is not part of a file.
    #[must_use]
    pub(super) fn in_a_view(self) -> Self {
        Self { advice: "`weir replay --help` has an example, and docs/VIEWS.md explains views", ..self }
    }

    /// An error for a file that could not be read as text.
    pub(super) fn unreadable(file: &str, place: Option<Position>, message: String) -> Self {
        let list = vec![Mistake { place, path: String::new(), message }];
        let advice = "mend the file, or name another one when weir is started (--config FILE)";
        Self { file: file.to_owned(), list, unlisted: 0, advice }
    }

    /// An error for a file that does not exist. A relative path says where it was looked for.
    pub(super) fn missing(file: &str, path: &Path) -> Self {
        let place = match env::current_dir() {
            Ok(directory) if path.is_relative() => format!(" in {}", directory.display()),
            _ => String::new(),
        };
        let advice =
            "write the file, or name one that exists (--config FILE); without a name, weir reads /etc/weir/weir.yaml";
        Self { advice, ..Self::unreadable(file, None, format!("there is no such file{place}")) }
    }

    /// The file's name as given.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The mistakes, in the order of their places; at most [`MISTAKES_MAX`](super::limits::MISTAKES_MAX).
    #[must_use]
    pub fn list(&self) -> &[Mistake] {
        &self.list
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, list, unlisted, advice } = self;
        for Mistake { place, path, message } in list {
            write!(f, "{}:", escaped(file))?;
            if let Some(Position { line, column }) = place {
                write!(f, "{line}:{column}:")?;
            }
            if !path.is_empty() {
                write!(f, " {}:", escaped(path))?;
            }
            writeln!(f, " {}", escaped(message))?;
        }
        let count = list.len() + unlisted;
        write!(f, "{count} mistake{}", if count == 1 { "" } else { "s" })?;
        if *unlisted > 0 {
            write!(f, ", of which the first {} are listed", list.len())?;
        }
        write!(f, ": {advice}")
    }
}

impl std::error::Error for Mistakes {}

#[cfg(test)]
mod tests {
    use std::{env, path::Path};

    use crate::Config;

    #[test]
    fn a_file_that_does_not_exist_is_said_to_be_missing_and_where() {
        let told = Config::read(Path::new("nofile.yaml")).unwrap_err().to_string();
        let here = env::current_dir().unwrap();
        let way_out =
            "write the file, or name one that exists (--config FILE); without a name, weir reads /etc/weir/weir.yaml";
        let expected = format!("nofile.yaml: there is no such file in {}\n1 mistake: {way_out}", here.display());
        assert_eq!(told, expected);
        let told = Config::read(Path::new("/nowhere/weir.yaml")).unwrap_err().to_string();
        assert!(told.starts_with("/nowhere/weir.yaml: there is no such file\n"), "{told}");
    }
}
