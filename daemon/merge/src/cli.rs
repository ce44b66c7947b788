//! The command line of `weir-merge`.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};

use crate::merger;

/// Merge the reports of many routers into one answer: sums, distinct counts, the largest keys, floods and scans.
///
/// What did not arrive and what cannot be joined is named. docs/FLEET.md explains it.
#[derive(Debug, Parser)]
#[command(name = "weir-merge", version, max_term_width = 100)]
pub struct Cli {
    /// Files of reports, one a line, also compressed by gzip or zstd; databases of weir-collect; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// An answer for each window of this length, such as 1h. The first window of a day begins at midnight UTC, so the
    /// length must divide a day [default: one for all reports; with --live 1m, or as long as the longest reports]
    #[arg(short, long, value_name = "TIME", value_parser = window)]
    pub window: Option<Duration>,
    /// An answer for each site or each router
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Rows of each list [default: 20; with --live 100]
    #[arg(short, long, value_name = "ROWS")]
    pub top: Option<usize>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Follow the files, and show the newest window on a live screen: `weir top --merge` runs this
    #[arg(long, conflicts_with_all = ["by", "json"])]
    pub live: bool,
}

/// What has an answer of its own.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum By {
    /// A site: `observer.site`
    Site,
    /// A router
    Router,
}

impl From<By> for merger::By {
    fn from(by: By) -> Self {
        match by {
            By::Site => Self::Site,
            By::Router => Self::Router,
        }
    }
}

impl Cli {
    /// The inputs, as messages name them.
    pub fn inputs(&self) -> String {
        match &*self.files {
            [one] => one.display().to_string(),
            [one, others @ ..] => format!("{} and {} more files", one.display(), others.len()),
            [] => "no file".to_owned(),
        }
    }
}

const DAY: u64 = 86_400;

/// The shortest length of at least so many seconds that divides a day, or a day.
pub fn window_of_at_least(seconds: u64) -> Duration {
    let length = (seconds.max(1)..=DAY).find(|length| DAY.is_multiple_of(*length));
    Duration::from_secs(length.unwrap_or(DAY))
}

/// A length that divides a day.
fn window(text: &str) -> Result<Duration, String> {
    let seconds = duration(text)?.as_secs();
    if DAY.is_multiple_of(seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let longer = (seconds..=DAY).find(|length| DAY.is_multiple_of(*length));
    let shorter = (1..seconds.min(DAY + 1)).rev().find(|length| DAY.is_multiple_of(*length));
    let near: Vec<String> = [shorter, longer].into_iter().flatten().map(shown).collect();
    Err(format!("{text} does not divide a day: take {}", near.join(" or ")))
}

/// A number of seconds in its largest whole unit.
pub fn shown(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(length, _)| seconds.is_multiple_of(*length));
    let (length, name) = unit.unwrap_or((1, "s"));
    format!("{}{name}", seconds / length)
}

/// A time such as `90s`, `5m`, `1h` or `1d`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write a whole number and a unit, such as 90s, 5m, 1h or 1d");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!(["90s", "5m", "1h", "2d"].map(seconds), [Ok(90), Ok(300), Ok(3_600), Ok(172_800)]);
        let window = |text| window(text).map(|time| time.as_secs());
        assert_eq!(["90s", "1h", "1d"].map(window), [Ok(90), Ok(3_600), Ok(86_400)]);
        assert_eq!(window("7m"), Err("7m does not divide a day: take 400s or 432s".to_owned()));
        assert_eq!(window("5h"), Err("5h does not divide a day: take 288m or 6h".to_owned()));
        assert_eq!(window("2d"), Err("2d does not divide a day: take 1d".to_owned()));
        for wrong in ["", "5", "h", "0s", "1w", "1.5h", "-1h", "99999999999999999999s"] {
            assert!(duration(wrong).unwrap_err().contains("such as 90s"), "{wrong}");
        }
    }
}
