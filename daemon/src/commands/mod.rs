//! The commands of `weir`, each with its input, its work and its output. [`settings`], [`output`] and [`failure`] are
//! shared.

mod check;
mod doctor;
mod external;
mod failure;
mod history;
mod interfaces;
mod key;
mod output;
mod query;
mod replay;
mod run;
mod settings;
mod spool;
mod top;

use std::env;

use weir::{
    cli::{Command, Schema},
    control::client::AskError,
    external::{COLLECT, MERGE},
};
use weir_config::Mistakes;
use weir_datapath::object_sha256;
use weir_schema::schema;
use weir_system::{
    exit::Exit,
    log::{say, say_lines},
};

use self::{failure::Failure, output::print};

/// Runs a command, and says why it failed.
pub fn run(command: Command) -> Exit {
    let result = match command {
        Command::Run(args) => run::run(args),
        Command::Replay(args) => replay::replay_captures(args),
        Command::Check(args) => check::check(&args),
        Command::Doctor(args) => doctor::examine(args),
        Command::Status(args) => query::status(&args),
        Command::Top(args) => top::top(args),
        Command::Report(args) => query::report(&args),
        Command::Ask(args) => query::ask(args),
        Command::Usage(args) => query::usage(args),
        Command::Names(args) => query::names(&args),
        Command::History(command) => history::history(&command),
        Command::Reload(args) => query::reload(&args),
        Command::Detach(args) => interfaces::detach(&args),
        Command::Attach(args) => interfaces::attach(&args),
        Command::Spool(command) => spool::spool(&command),
        Command::Key(command) => key::key(command),
        Command::Schema(Schema::Report) => print(schema::REPORT.trim_end()),
        Command::Schema(Schema::Second) => print(schema::SECOND.trim_end()),
        Command::Schema(Schema::Live) => print(schema::LIVE.trim_end()),
        Command::Schema(Schema::Tombstone) => print(schema::TOMBSTONE.trim_end()),
        // Pass the arguments on unchanged: clap would leave out a `--`.
        Command::Collect(_) => external::external(COLLECT.as_ref(), &env::args_os().skip(2).collect::<Vec<_>>()),
        Command::Merge(_) => external::external(MERGE.as_ref(), &env::args_os().skip(2).collect::<Vec<_>>()),
        Command::Other(words) => external::external(&words[0], &words[1..]),
    };
    result.unwrap_or_else(|Failure { exit, error }| {
        // `Done` with an error is a closed pipe: the reader of the output, such as `head`, has ended.
        if exit != Exit::Done {
            // A configuration's mistakes begin with file and line, where editors look for them.
            match error.is::<Mistakes>() {
                true => say_lines(&error.to_string()),
                // A running weir refuses a configuration with all its mistakes.
                false if error.is::<AskError>() => say_lines(&format!("weir: {error:#}")),
                false => say(format_args!("weir: {error:#}")),
            }
        }
        exit
    })
}

/// Prints the version. Without a command, `--version` is the only valid option.
pub fn version(version: bool, verbose: bool) -> Exit {
    debug_assert!(version, "clap prints the help instead");
    let mut text = format!("weir {}", env!("CARGO_PKG_VERSION"));
    if verbose {
        let features =
            [("kafka", cfg!(feature = "kafka")), ("nats", cfg!(feature = "nats")), ("otlp", cfg!(feature = "otlp"))];
        let with: Vec<_> = features.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect();
        let with = if with.is_empty() { "none".to_owned() } else { with.join(", ") };
        text = format!("{text}\nfeatures: {with}\neBPF object: SHA-256 {}", object_sha256());
    }
    print(&text).unwrap_or_else(|failure| failure.exit)
}
