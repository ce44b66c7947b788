//! The command line of `weir-merge`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, ValueEnum, builder::PossibleValuesParser};
use jiff::{SignedDuration, Timestamp};
use weir_config::TypedTime;
use weir_schema::listing::summable_lists;

use crate::merger;

/// Merge the reports of many routers into one answer: sums, distinct counts, the largest keys, floods and scans.
///
/// What did not arrive and what cannot be joined is named. docs/FLEET.md explains it.
#[derive(Debug, Parser)]
#[command(name = "weir-merge", version, max_term_width = 100)]
pub struct Cli {
    /// Files of reports, one a line, also compressed by gzip or zstd; databases of weir-collect; `-` is standard input
    #[arg(required_unless_present = "history", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// An answer for each window of this length, such as 1h. The first window of a day begins at midnight UTC, so the
    /// length must divide a day [default: one for all reports; with --live 1m, or as long as the longest reports]
    #[arg(short, long, value_name = "TIME", value_parser = window)]
    pub window: Option<Duration>,
    /// An answer for each site or each router
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Rows of each list [default: 20; with --live or --history 100]
    #[arg(short, long, value_name = "ROWS")]
    pub top: Option<usize>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Follow the files, and show the newest window on a live screen: `weir top --merge` runs this
    #[arg(long, conflicts_with_all = ["by", "json"])]
    pub live: bool,
    /// Print a list of a time out of the histories in these folders instead, each the `history` folder of a router, or
    /// a copy of it
    #[arg(long, value_name = "FOLDER", num_args = 1.., conflicts_with_all = ["files", "window", "by", "live"])]
    pub history: Vec<PathBuf>,
    /// Which list and which time of the histories.
    #[command(flatten)]
    pub of_history: HistoryArgs,
}

/// The options of `--history`.
#[derive(Args, Debug)]
#[group(conflicts_with = "files", multiple = true)]
pub struct HistoryArgs {
    /// Of histories: the list [default: sources]
    #[arg(long, value_name = "LIST", value_parser = lists())]
    pub list: Option<String>,
    /// Of histories: order the list by packets, not bytes
    #[arg(long)]
    pub packets: bool,
    /// Of histories: all windows of the past LENGTH, such as `20m`, `3h` or `7d`
    #[arg(long, value_name = "LENGTH", value_parser = length, conflicts_with = "from")]
    pub since: Option<Duration>,
    /// Of histories: all windows from this time on: `14:30` (today) or `2026-11-26 14:30`, both in UTC, or RFC 3339
    #[arg(long, value_name = "TIME", value_parser = TypedTime::parse)]
    pub from: Option<TypedTime>,
    /// Of histories: all windows until this time, in the same formats; without a date it is of the day of the start
    #[arg(long, value_name = "TIME", value_parser = TypedTime::parse)]
    pub to: Option<TypedTime>,
    /// Of histories: the window that has this time, in the same formats
    #[arg(long, value_name = "TIME", value_parser = TypedTime::parse, conflicts_with_all = ["since", "from", "to"])]
    pub at: Option<TypedTime>,
    /// Of histories: print comma-separated values, with a header
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

impl HistoryArgs {
    /// The start and the end of the time; `None` where it is open.
    pub fn times(&self, now: Timestamp) -> [Option<Timestamp>; 2] {
        let Self { since, from, to, at, .. } = self;
        if let Some(at) = at.map(|at| at.today(now)) {
            return [Some(at), at.checked_add(SignedDuration::from_nanos(1)).ok()];
        }
        let ago = |ago: &Duration| now.checked_sub(SignedDuration::try_from(*ago).ok()?).ok();
        let start = since.as_ref().map_or_else(|| from.map(|from| from.today(now)), ago);
        [start, to.map(|to| start.map_or_else(|| to.today(now), |start| to.after(start)))]
    }
}

/// The lists of histories that can be added up.
fn lists() -> PossibleValuesParser {
    PossibleValuesParser::new(summable_lists().map(|(name, _)| name))
}

/// A length of time until now.
fn length(text: &str) -> Result<Duration, String> {
    let length = weir_config::parse_duration(text).filter(|length| !length.is_zero());
    length.ok_or_else(|| "expected a length such as 20m, 3h or 7d".to_owned())
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
    fn histories_have_options_of_their_own() {
        let parse = |arguments: &[&str]| Cli::try_parse_from([&["weir-merge"], arguments].concat());
        let now: Timestamp = "2026-11-28T09:00:00Z".parse().unwrap();
        let times = |arguments: &[&str]| {
            let cli = parse(&[&["--history", "a", "b"], arguments].concat()).unwrap();
            assert_eq!(cli.history.len(), 2);
            cli.of_history.times(now).map(|time| time.map(|time| time.to_string()))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(times(&["--since", "1h"]), [some("2026-11-28T08:00:00Z"), None]);
        assert_eq!(
            times(&["--from", "2026-11-24 23:00", "--to", "01:00", "--list", "pairs"]),
            [some("2026-11-24T23:00:00Z"), some("2026-11-25T01:00:00Z")]
        );
        assert_eq!(times(&["--at", "08:30"]), [some("2026-11-28T08:30:00Z"), some("2026-11-28T08:30:00.000000001Z")]);
        for wrong in [
            &["file", "--since", "1h"][..],
            &["file", "--csv"],
            &["--history", "a", "--window", "1h"],
            &["--history", "a", "--at", "08:30", "--to", "09:00"],
            &["--history", "a", "--list", "views"],
            &["--history", "a", "--since", "0s"],
            &[],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--history", "a", "--json"]).is_ok() && parse(&["file"]).is_ok());
    }

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
