//! The command line of `weir`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, builder::Resettable};
use jiff::Timestamp;
use weir_config::TypedTime;
use weir_system::log::Format;

use weir_common::control::CPUS_MAX;

pub use self::times::Earlier;
use self::times::{earlier, end, length, time};
use crate::replay::Windows;

mod times;

/// The last line of the help.
const OTHER_COMMANDS: &str = "Any other COMMAND runs the program weir-COMMAND, from beside weir or from PATH.";

/// The keys of `weir top`. No line is wrapped in 80 columns.
const TOP_KEYS: &str = "\
Keys:
  1 to 9, 0, Tab    choose a list; arrows choose a row
  Enter             everything about the row
  /                 filter: host:192.0.2.7 net:10.0.0.0/8 port:443 proto:udp
  b, p              order by bytes, by packets
  <, >              an earlier, a later time; End is now
  t                 a span: the last 1m, 5m, 20m, 1h or 24h
  @                 a time: type 14:30 or 2026-11-26 14:30, in UTC
  w                 the last window, or the open one
  d                 names of addresses by reverse DNS
  Space, ?, q       hold the screen, show the help, quit";

/// Packet analytics for routers: exact accounting of every packet, fixed memory, error bounds on every estimate.
#[derive(Debug, Parser)]
#[command(
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = OTHER_COMMANDS,
    disable_version_flag = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With --version: also print the features and the eBPF object of this program
    #[arg(long, requires = "version")]
    pub verbose: bool,
}

impl Cli {
    /// The parser of weir's own commands. It rejects every other command.
    pub fn known_commands() -> clap::Command {
        Self::command().allow_external_subcommands(false).external_subcommand_value_parser(Resettable::Reset)
    }
}

/// The commands of `weir`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the traffic of interfaces and report every interval
    Run(RunArgs),
    /// Measure capture files (pcap, pcapng) offline, in the same way; needs no privilege
    Replay(ReplayArgs),
    /// Check a configuration: print every mistake with line and column, or all settings and their memory
    Check(CheckArgs),
    /// Show what this kernel, driver and user can do, and why not; attaches nothing
    Doctor(DoctorArgs),
    /// Show the state of the running weir: its interfaces, sinks and costs
    Status(StatusArgs),
    /// Show live who uses the link, from the running weir, from replayed captures or from the reports of a fleet
    Top(TopArgs),
    /// Print the last report of the running weir, or several windows together
    Report(ReportArgs),
    /// Print what the running weir knows about a key in the last window, listed or not
    Ask(AskArgs),
    /// Print what each interface has carried by hour, day or month, with the 95th percentile and the busiest second
    Usage(UsageArgs),
    /// Print the names of hosts that the running weir knows, and where each is from
    Names(NamesArgs),
    /// Print what weir remembers of a time: lists, and keys
    #[command(subcommand)]
    History(HistoryCommand),
    /// Make the running weir read its configuration again; every packet is still counted
    Reload(ReloadArgs),
    /// Make the running weir detach from interfaces, and remove filters that a killed weir left at tc hooks (as root)
    Detach(DetachArgs),
    /// Make the running weir attach again to interfaces that it was told to detach from
    Attach(AttachArgs),
    /// Show or remove reports that wait on disk for a sink
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Receive reports over HTTP and store each once in a database (runs the separate program weir-collect)
    #[command(disable_help_flag = true)]
    Collect(PassedArgs),
    /// Merge the reports of many routers into one answer: a separate program, weir-merge
    #[command(disable_help_flag = true)]
    Merge(PassedArgs),
    /// Make the secret of a fleet, or compare that of two routers
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print a JSON Schema
    #[command(subcommand)]
    Schema(Schema),
    /// Any other name, with its arguments: the program `weir-NAME`.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// The configuration to use.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Configuration file [default: /etc/weir/weir.yaml if it exists, otherwise built-in settings]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The options of `weir run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Tells which configuration to use.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Measure this interface instead of those of the configuration; may be given several times
    #[arg(short, long = "interface", value_name = "NAME")]
    pub interfaces: Vec<String>,
    /// Refuse to start if an interface does not exist; otherwise weir waits for it
    #[arg(long)]
    pub strict: bool,
    /// Print reports as JSON, one per line, also on a terminal, which otherwise gets tables
    #[arg(long)]
    pub json: bool,
    /// Format of log lines [default: the variable `WEIR_LOG_FORMAT`, else auto]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<Format>,
}

/// The options of `weir replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// Capture files (pcap, pcapng, also compressed with gzip or zstd), merged in time order; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Tells which configuration to use.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print reports as JSON, one per line, instead of tables
    #[arg(long)]
    pub json: bool,
    /// Print the whole of each report, not only one screen
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Print a report for each window of this length (`10s`, `5m`) that has packets; `all` is one report of everything
    #[arg(long, value_name = "LENGTH", value_parser = windows, default_value = "all")]
    pub window: Windows,
    /// Add a view, written as in the configuration; may be given several times
    #[arg(long = "view", value_name = "{by: [dst_ip], match: {proto: udp}}")]
    pub views: Vec<String>,
    /// Print what is known about one key, as `weir ask` does; may be given several times
    #[arg(long = "ask", value_name = "src_ip=192.0.2.7,...")]
    pub asks: Vec<String>,
    /// Send every packet through the real XDP program (as root)
    #[arg(long)]
    pub kernel: bool,
    /// Also add each window to the history in this folder, which `weir history --path` reads; with `--window`
    #[arg(long, value_name = "FOLDER")]
    pub history: Option<PathBuf>,
    /// Derive the hash key from this number, so that the same captures give the same report. With `--kernel`, sampling
    /// is still random: the kernel draws the packets
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

/// The options of `weir doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Interfaces to look at [default: those of the configuration]
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// Tells which configuration to use.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print one line of JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Also write a file for a developer: these results, `weir check` and the last report, without secrets and
    /// addresses
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

/// The options of `weir check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The configuration file, as with --config
    #[arg(value_name = "FILE", conflicts_with = "config")]
    pub file: Option<PathBuf>,
    /// Tells which configuration to use.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Plan the memory for a machine with this many CPUs [default: those of this machine]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(CPUS_MAX)))]
    pub cpus: Option<u32>,
}

/// The weir to query.
#[derive(Args, Debug)]
pub struct SocketArgs {
    /// The control socket of the running weir [default: that of the configuration]
    #[arg(short, long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Tells which configuration to use.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// The options of `weir status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one line of JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `weir top`.
#[derive(Args, Debug)]
#[command(after_help = TOP_KEYS, group = ArgGroup::new("files").args(["replay", "merge"]))]
pub struct TopArgs {
    /// Replay captures instead (pcap, pcapng, also compressed with gzip or zstd); needs no privilege
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "socket")]
    pub replay: Vec<PathBuf>,
    /// Show the routers whose reports are in these files or databases of weir-collect, merged, and follow the files
    /// (runs the separate program weir-merge)
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["socket", "config", "replay", "speed"])]
    pub merge: Vec<PathBuf>,
    /// How many seconds of the captures to replay in each second
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = speed, requires = "replay")]
    pub speed: f64,
    /// Length of a window of the replay or of the fleet, such as `10s` [default: the configured interval; with --merge
    /// 1m, or as long as the longest reports]
    #[arg(long, value_name = "LENGTH", value_parser = windows, requires = "files")]
    pub window: Option<Windows>,
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// The options of `weir report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Print this many of the last windows together instead: sums, and bounds for the rows of lists
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Print all windows of the past LENGTH together, such as `20m`, `3h` or `7d`
    #[arg(long, value_name = "LENGTH", value_parser = length, conflicts_with_all = ["last", "from"])]
    pub since: Option<Duration>,
    /// Print all windows from this time on together: `14:30` (today) or `2026-11-26 14:30`, both in UTC, or RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "last")]
    pub from: Option<Timestamp>,
    /// Print all windows until this time together, in the same formats; without a date it is of the day of the start
    #[arg(long, value_name = "TIME", value_parser = end, conflicts_with = "last")]
    pub to: Option<TypedTime>,
    /// Print the window that has this time, in the same formats
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = ["last", "since", "from", "to"])]
    pub at: Option<Timestamp>,
    /// Print the whole report, not only one screen; in the pager if it is longer than the terminal
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one line of JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// The options of `weir ask`.
#[derive(Args, Debug)]
pub struct AskArgs {
    /// An address, a prefix, a port, a service, the name of a host, or the fields of a row with their values; of a time
    /// also conditions, as `src_ip=10.1.0.0/16,dst_port=443`
    #[arg(required_unless_present = "by", value_name = "192.0.2.7|192.0.2.0/24|:443|tcp/443|example.net|vlan=7,...")]
    pub keys: Vec<String>,
    /// Ask about the open window so far, instead of the last one
    #[arg(long, conflicts_with_all = ["since", "from", "to", "at", "by", "path"])]
    pub live: bool,
    /// Ask about a time instead: what its lists had of an address, or of the fields of a row; and what its sampled flow
    /// records have of anything else.
    #[command(flatten)]
    pub time: SpanArgs,
    /// Of a time: a row for each value of these fields, such as `dst_ip` or `src_ip/24,dst_port`
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Where the history is.
    #[command(flatten)]
    pub place: HistoryPlaceArgs,
    /// Print one line of JSON instead of a table
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Of a time: print the answer out of flow records as comma-separated values, with a header
    #[arg(long, conflicts_with = "live")]
    pub csv: bool,
}

/// `weir usage`.
#[derive(Args, Debug)]
pub struct UsageArgs {
    /// Only this interface; or `hosts`, `networks`, or one own address [default: all interfaces]
    #[arg(value_name = "IFACE")]
    pub what: Option<String>,
    /// The length of a period; months begin on the configured day
    #[arg(long, value_name = "PERIOD", value_parser = ["hour", "day", "month"], default_value = "month")]
    pub by: String,
    /// How many periods [default: 24 hours, 31 days or 13 months]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// How many hosts or networks in each period [default: 10]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// The end of the last period: `14:30` (today) or `2026-11-26 14:30`, both in UTC, or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one line of JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Print comma-separated values instead of a table
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// A time of the past.
#[derive(Args, Debug)]
pub struct SpanArgs {
    /// All windows of the past LENGTH, such as `20m`, `3h` or `7d`
    #[arg(long, value_name = "LENGTH", value_parser = length, conflicts_with = "from")]
    pub since: Option<Duration>,
    /// All windows from this time on: `14:30` (today) or `2026-11-26 14:30`, both in UTC, or RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// All windows until this time, in the same formats; without a date it is of the day of the start
    #[arg(long, value_name = "TIME", value_parser = end)]
    pub to: Option<TypedTime>,
    /// The window that has this time, in the same formats
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = ["since", "from", "to"])]
    pub at: Option<Timestamp>,
}

/// `weir history`.
#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// Print a list of all windows of a time together
    Top(HistoryTopArgs),
    /// Print what the windows of a time have of keys
    Find(HistoryFindArgs),
    /// Compare a list of a time with that of an earlier one: what is new, gone, grown or shrunk
    Changes(HistoryChangesArgs),
}

/// `weir history top`.
#[derive(Args, Debug)]
pub struct HistoryTopArgs {
    /// The list
    #[arg(value_parser = ["flows", "sources", "destinations", "pairs", "services"])]
    pub list: String,
    /// The order of the rows
    #[arg(long, value_parser = ["bytes", "packets"], default_value = "bytes")]
    pub by: String,
    /// The time.
    #[command(flatten)]
    pub time: SpanArgs,
    /// Where the history is.
    #[command(flatten)]
    pub place: HistoryPlaceArgs,
    /// Print one line of JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values, with a header
    #[arg(long)]
    pub csv: bool,
}

/// `weir history find`.
#[derive(Args, Debug)]
pub struct HistoryFindArgs {
    /// An address, a network, a port, a service, the fields of a row with their values, or conditions on addresses,
    /// ports and protocols, as `src_ip=10.1.0.0/16,dst_port=443`
    #[arg(required = true, value_name = "192.0.2.7|192.0.2.0/24|:443|tcp/443|src_ip=192.0.2.7,...")]
    pub keys: Vec<String>,
    /// The time.
    #[command(flatten)]
    pub time: SpanArgs,
    /// Where the history is.
    #[command(flatten)]
    pub place: HistoryPlaceArgs,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `weir history changes`.
#[derive(Args, Debug)]
pub struct HistoryChangesArgs {
    /// The list
    #[arg(value_parser = ["flows", "sources", "destinations", "pairs", "services"])]
    pub list: String,
    /// What is compared
    #[arg(long, value_parser = ["bytes", "packets"], default_value = "bytes")]
    pub by: String,
    /// The later time.
    #[command(flatten)]
    pub time: SpanArgs,
    /// The earlier time, which is as long: `7d` earlier, or from a time on [default: the time just before]
    #[arg(long, value_name = "LENGTH|TIME", value_parser = earlier)]
    pub against: Option<Earlier>,
    /// Where the history is.
    #[command(flatten)]
    pub place: HistoryPlaceArgs,
    /// Print one line of JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values, with a header
    #[arg(long)]
    pub csv: bool,
}

/// Where a history is.
#[derive(Args, Debug)]
pub struct HistoryPlaceArgs {
    /// Read this folder, without a running weir
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["socket", "config"])]
    pub path: Option<PathBuf>,
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// The options of `weir names`.
#[derive(Args, Debug)]
pub struct NamesArgs {
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one line of JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The options of `weir reload`.
#[derive(Args, Debug)]
pub struct ReloadArgs {
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print one line of JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The options of `weir detach`.
#[derive(Args, Debug)]
pub struct DetachArgs {
    /// From these interfaces
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// From all interfaces, also those that appear later
    #[arg(long, conflicts_with_all = ["interfaces", "leftovers"])]
    pub all: bool,
    /// Only remove what a killed weir left; do not ask the running one to detach
    #[arg(long)]
    pub leftovers: bool,
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// The options of `weir attach`.
#[derive(Args, Debug)]
pub struct AttachArgs {
    /// To these interfaces
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,
    /// To all interfaces that it was told to detach from
    #[arg(long, conflicts_with = "interfaces")]
    pub all: bool,
    /// The weir to query.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// The commands of `weir key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Print a new secret, or write it into a new file that only its owner may read
    New(KeyNewArgs),
    /// Print the fingerprint of today's key: routers with the same one have the same secret
    Id(KeyIdArgs),
}

/// The options of `weir key new`.
#[derive(Args, Debug)]
pub struct KeyNewArgs {
    /// The file to create
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The options of `weir key id`.
#[derive(Args, Debug)]
pub struct KeyIdArgs {
    /// The file with the secret [default: `hash_key` of the configuration]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Tells which configuration to use.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// The commands of `weir spool`.
#[derive(Debug, Subcommand)]
pub enum SpoolCommand {
    /// List reports, refused reports and tombstones, in the order in which they are delivered
    Ls(SpoolListArgs),
    /// Print reports as JSON, one per line
    Cat(SpoolArgs),
    /// Try refused reports again: all, or the named ones. The collector must accept other reports by now
    Retry(SpoolArgs),
    /// Remove reports; a tombstone is delivered in the place of each one that was waiting
    Rm(SpoolRemoveArgs),
}

/// The options of `weir spool ls`.
#[derive(Args, Debug)]
pub struct SpoolListArgs {
    /// Tells which reports to list.
    #[command(flatten)]
    pub what: SpoolArgs,
    /// Print a line of JSON for each
    #[arg(long)]
    pub json: bool,
}

/// The options of `weir spool cat`.
#[derive(Args, Debug)]
pub struct SpoolArgs {
    /// Only these: names of sinks' folders, or ids of reports [default: all]
    #[arg(value_name = "SINK|ID")]
    pub names: Vec<String>,
    /// Tells which folder to use.
    #[command(flatten)]
    pub place: SpoolPlaceArgs,
}

/// The options of `weir spool rm`.
#[derive(Args, Debug)]
pub struct SpoolRemoveArgs {
    /// Names of sinks' folders, or ids of reports
    #[arg(required = true, value_name = "SINK|ID")]
    pub names: Vec<String>,
    /// Tells which folder to use.
    #[command(flatten)]
    pub place: SpoolPlaceArgs,
}

/// Where the spools are.
#[derive(Args, Debug)]
pub struct SpoolPlaceArgs {
    /// The folder of all spools [default: that of the configuration, else /var/lib/weir/spool]
    #[arg(short, long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// Tells which configuration to use.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Arguments that are passed on to another program.
#[derive(Args, Debug)]
pub struct PassedArgs {
    /// The program's arguments; `--help` prints its help
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// The schemas that weir can print.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Schema {
    /// The schema of a report
    Report,
    /// The schema of the message that `subscribe` on the control socket sends each second
    Second,
    /// The schema of the answer to `live` on the control socket: the lists of the open window
    Live,
    /// The schema of a tombstone, which is delivered in place of lost reports
    Tombstone,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: Option<f64> = text.parse().ok().filter(|speed| (0.001..=1e6).contains(speed));
    speed.ok_or_else(|| "expected a number from 0.001 to 1000000".to_owned())
}

fn windows(text: &str) -> Result<Windows, String> {
    if text == "all" {
        return Ok(Windows::All);
    }
    match weir_config::parse_duration(text) {
        Some(length) if !length.is_zero() => Ok(Windows::Every(length)),
        Some(_) => Err("a window must be longer than 0s".to_owned()),
        None => Err("expected `all` or a length such as 10s or 5m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_the_keys_is_wrapped_in_80_columns() {
        assert!(TOP_KEYS.lines().all(|line| line.chars().count() < 80), "{TOP_KEYS}");
    }
}
