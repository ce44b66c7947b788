//! The command line of `weir-collect`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use weir_system::log::Format;

use crate::query::Topic;

/// The reference collector of weir: receives reports over HTTP and stores each once in a database.
///
/// Where weir is installed, it is also `weir collect`.
#[derive(Debug, Parser)]
#[command(
    name = "weir-collect",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    /// What to do instead of collecting.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Where senders connect: an address of this machine and a port
    #[arg(short, long, value_name = "127.0.0.1:8427", required = true)]
    pub listen: Option<SocketAddr>,
    /// The database file; it is created if it does not exist
    #[arg(short, long, value_name = "FILE", required = true)]
    pub database: Option<PathBuf>,
    /// Take reports only from senders that know the token in this file (`Authorization: Bearer TOKEN`)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Let anybody who can reach the address store reports, even from other machines
    #[arg(long, conflicts_with = "token_file")]
    pub no_token: bool,
    /// Serve the page of all routers to browsers at this address of this machine
    #[arg(long, value_name = "127.0.0.1:8428")]
    pub page: Option<SocketAddr>,
    /// Show the page only to users who enter the token in this file as the password
    #[arg(long, value_name = "FILE", requires = "page")]
    pub page_token_file: Option<PathBuf>,
    /// A name by which browsers may ask for the page, besides localhost and addresses; may be repeated
    #[arg(long, value_name = "NAME", requires = "page")]
    pub page_host: Vec<String>,
    /// Format of log lines [default: the variable `WEIR_LOG_FORMAT`, else auto]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<Format>,
}

/// The commands about a database that reports have been collected in.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the content of the database, even while the collector runs
    Query(QueryArgs),
}

/// The options of `query`.
#[derive(Args, Debug)]
pub struct QueryArgs {
    /// What to print
    #[arg(value_enum, default_value_t = Topic::Windows)]
    pub topic: Topic,
    /// The database
    #[arg(short, long, value_name = "FILE")]
    pub database: PathBuf,
    /// Print JSON, one row per line, instead of a table
    #[arg(long)]
    pub json: bool,
    /// Only this observer: its id
    #[arg(long, value_name = "ID")]
    pub observer: Option<String>,
    /// Print this many of the latest windows and tombstones [default: 20 in a table, all in JSON]
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<u32>,
}
