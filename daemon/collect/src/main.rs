//! `weir-collect`: parses the command line, collects or queries, and turns errors into a message and an exit code.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use weir_collect::{
    CollectError, Options, StoreError,
    cli::{Cli, Command, QueryArgs},
    page::{self, PageError},
    query::{self, Query, QueryError},
};
use weir_system::log::{self, Format, say};
use weir_system::{
    exit::Exit,
    screen::{self, Screen, command_line},
    signals,
};

/// An error with its exit code.
struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

fn main() -> ExitCode {
    let exit = run(command_line()).unwrap_or_else(|Failure { exit, error }| {
        // `Done` with an error is a closed pipe: the reader of the output, such as `head`, has ended.
        if exit != Exit::Done {
            say(format_args!("weir-collect: {error:#}"));
        }
        exit
    });
    ExitCode::from(exit as u8)
}

fn run(cli: Cli) -> Result<Exit, Failure> {
    let Cli { command, listen, database, token_file, no_token, page, page_token_file, page_host, log_format } = cli;
    if let Some(Command::Query(QueryArgs { topic, database, json, observer, limit })) = &command {
        let query = Query { topic: *topic, json: *json, observer: observer.as_deref(), limit: *limit };
        let form = if *json { screen::Form::Json } else { screen::Form::Text };
        let mut out = BufWriter::new(Screen::stdout(form));
        query::run(database, &query, &mut out)?;
        out.flush().map_err(QueryError::from)?;
        return Ok(Exit::Done);
    }
    let (Some(listen), Some(database)) = (listen, &database) else {
        return Err(usage("name where to listen and the database: --listen ADDRESS --database FILE".to_owned()));
    };
    let _log = log::begin(Format::chosen(log_format).map_err(usage)?);
    let signals = signals::listen(|| std::process::exit(Exit::Interrupted as i32))
        .map_err(|error| Failure { exit: Exit::Impossible, error: error.into() })?;
    let token_of_page = page_token_file.as_deref();
    let page = page.map(|listen| page::Settings { listen, token_file: token_of_page, hosts: &page_host });
    let options = Options { listen, database, token_file: token_file.as_deref(), for_everybody: no_token, page };
    weir_collect::run(options, &signals)?;
    Ok(Exit::Done)
}

fn usage(why: String) -> Failure {
    Failure { exit: Exit::Usage, error: anyhow::Error::msg(why) }
}

impl From<CollectError> for Failure {
    fn from(error: CollectError) -> Self {
        let exit = match &error {
            CollectError::Open(_) | CollectError::Token(_) => Exit::Usage,
            CollectError::Page(PageError::Open(_) | PageError::Token(_)) => Exit::Usage,
            CollectError::Page(PageError::Start { .. }) => Exit::Impossible,
            CollectError::Store(error) => exit_of(error),
            CollectError::Listen { .. } | CollectError::Thread(_) => Exit::Impossible,
            CollectError::Broken(_) => Exit::Broken,
        };
        Self { exit, error: error.into() }
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let exit = match &error {
            QueryError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            QueryError::Write(_) => Exit::Broken,
            QueryError::Store(error) => exit_of(error),
        };
        Self { exit, error: error.into() }
    }
}

/// The exit code for a database that cannot be used.
fn exit_of(error: &StoreError) -> Exit {
    match error {
        StoreError::Missing(_) | StoreError::Foreign(_) => Exit::Usage,
        StoreError::Sqlite { .. } => Exit::Broken,
        StoreError::Later { .. } | StoreError::Moved(_) | StoreError::Make { .. } => Exit::Impossible,
    }
}
