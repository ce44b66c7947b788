//! The command line.

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
    /// An answer for each window of this length, aligned to midnight UTC, such as 1h [default: one for all reports]
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub window: Option<Duration>,
    /// An answer for each site or each router
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Rows of each list
    #[arg(short, long, value_name = "ROWS", default_value_t = 20)]
    pub top: usize,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
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

/// A time such as `90s`, `5m`, `1h` or `1d`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: write a whole number and a unit, such as 90s, 5m, 1h or 1d");
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
        for wrong in ["", "5", "h", "0s", "1w", "1.5h", "-1h", "99999999999999999999s"] {
            assert!(duration(wrong).unwrap_err().contains("such as 90s"), "{wrong}");
        }
    }
}
