//! `weir`: reads the command line, runs the command, and turns errors into a message and an exit code.

use std::{
    collections::HashSet,
    env,
    ffi::{OsStr, OsString},
    fmt,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use crossbeam::channel::TryRecvError;
use rustix::{io::Errno, thread::CapabilitySet};
use weir::{
    cli::{
        AskArgs, AttachArgs, CheckArgs, Cli, Command, ConfigArgs, DetachArgs, DoctorArgs, KeyCommand, KeyIdArgs,
        KeyNewArgs, ReloadArgs, ReplayArgs, ReportArgs, RunArgs, Schema, SocketArgs, SpoolArgs, SpoolCommand,
        SpoolListArgs, SpoolPlaceArgs, SpoolRemoveArgs, StatusArgs, TopArgs,
    },
    control::{
        Directory,
        client::{self, AskError},
        protocol::{self, Attached, Detached, KeyAnswers},
    },
    coordinator::MeasureError,
    doctor::{
        self, Diagnosis,
        bundle::{self, BundleInput},
    },
    external::{self, COLLECT, ExternalError, MERGE},
    key::{self, KeyCommandError},
    memory::{self, Fit, Fitted, allocator, program_file},
    pipeline::{self, RunError, Start},
    reload::{Read, Reloaded, aside},
    replay::{self, Options, ReplayError, Windows},
    show::{
        self, Form, ShowError,
        replayed::Printed,
        resolve::{self, Resolved},
    },
    state,
    top::{Live, Replayed},
    workers::WorkersError,
};
use weir_attach::{AttachError, FoundFilters, Nat, Survey, leftovers, netlink::Devices};
use weir_config::{
    self as config, Config, Direction, HashKey, Interface, Mistakes, Mode, OwnFiles, Source,
    limits::INTERFACES_MAX,
    names::{Geo, GeoError},
    slots,
};
use weir_datapath::{
    Cpus, KernelError,
    capture::{Capture, input},
    object_sha256, tap,
};
use weir_deliver::{
    sink,
    spool::{
        command::{self, SpoolError, Spools},
        root::SpoolRoot,
    },
};
use weir_measure::{price::Prices, question::Views};
use weir_report::{LiveAnswers, schema, sketches, write_answers};
use weir_system::{
    clock,
    exit::Exit,
    log::{self, Format, say, say_lines},
    numbers::mebibytes,
    privileges::way_out,
    sandbox::{self, Origin},
    screen::{self, Screen, command_line},
    signals::{self, Signals},
    text::escaped,
};

/// The default path of the configuration.
const CONFIG: &str = "/etc/weir/weir.yaml";
/// The variable in which systemd names a service's persistent directories (`StateDirectory=`).
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
/// Its value in weir's own service.
const STATE_DIRECTORY_DEFAULT: &str = "/var/lib/weir";

/// An error with its exit code.
struct Failure {
    exit: Exit,
    error: anyhow::Error,
}

fn main() -> ExitCode {
    let Cli { command, version, verbose } = command_line();
    let Some(command) = command else { return ExitCode::from(print_version(version, verbose) as u8) };
    let result = match command {
        Command::Run(args) => run(args),
        Command::Replay(args) => replay_captures(args),
        Command::Check(args) => check(&args),
        Command::Doctor(args) => examine(args),
        Command::Status(args) => status(&args),
        Command::Top(args) => top(args),
        Command::Report(args) => report(&args),
        Command::Ask(args) => ask(args),
        Command::Reload(args) => reload(&args),
        Command::Detach(args) => detach(&args),
        Command::Attach(args) => attach(&args),
        Command::Spool(command) => spool(&command),
        Command::Key(command) => key(command),
        Command::Schema(Schema::Report) => print(schema::REPORT.trim_end()),
        Command::Schema(Schema::Second) => print(schema::SECOND.trim_end()),
        Command::Schema(Schema::Live) => print(schema::LIVE.trim_end()),
        Command::Schema(Schema::Tombstone) => print(schema::TOMBSTONE.trim_end()),
        // Pass the arguments on unchanged: clap would leave out a `--`.
        Command::Collect(_) => external(COLLECT.as_ref(), &env::args_os().skip(2).collect::<Vec<_>>()),
        Command::Merge(_) => external(MERGE.as_ref(), &env::args_os().skip(2).collect::<Vec<_>>()),
        Command::Other(words) => external(&words[0], &words[1..]),
    };
    let exit = result.unwrap_or_else(|Failure { exit, error }| {
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
    });
    ExitCode::from(exit as u8)
}

/// Prints the version. Without a command, `--version` is the only valid option.
fn print_version(version: bool, verbose: bool) -> Exit {
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

fn run(RunArgs { config: config_args, interfaces, strict, json, log_format }: RunArgs) -> Result<Exit, Failure> {
    let _log = log::begin(chosen(log_format)?);
    allocator::give_back_what_is_freed();
    let named = if interfaces.is_empty() { None } else { Some(named(interfaces)?) };
    let read = move |config_args: &ConfigArgs| {
        let (mut config, source) = read_to_run(config_args, state_directory().as_deref())?;
        config.interfaces = named.clone().unwrap_or(config.interfaces);
        Ok::<_, Failure>(Read { config, source })
    };
    let path = config_args.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG));
    let Read { config, .. } = read(&config_args)?;
    if config.interfaces.is_empty() {
        return Err(Failure {
            exit: Exit::Usage,
            error: anyhow::anyhow!(
                "no interface to measure: name one (`weir run --interface eth0`), or list some under `interfaces:` in \
                 {} (`ip -br link` shows what there is)",
                path.display()
            ),
        });
    }
    let state_directory = state_directory();
    let socket_directory = Directory::provide(config.control.socket.as_deref());
    let wanted = config.wanted(state_directory.as_deref());
    for folder in wanted.files.spool.iter() {
        SpoolRoot::provide(folder);
    }
    program_file::resident_bytes();
    let places = sandbox::close(
        &wanted,
        Origin { config: &path, state_directory: state_directory.as_deref(), made: socket_directory.made() },
    );
    let signals = signals::listen(|| std::process::exit(Exit::Interrupted as i32))
        .map_err(|error| Failure { exit: Exit::Impossible, error: error.into() })?;
    let reread = || {
        let (path, config_args, read) = (path.clone(), config_args.clone(), read.clone());
        aside(move || {
            // If this were a pipe, the reloader would wait for a writer.
            if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(format!("{}: cannot read the configuration: it is not a regular file", path.display()));
            }
            read(&config_args).map_err(|failure| format!("{:#}", failure.error))
        })
    };
    let has_tables = io::stdout().is_terminal() && !json;
    let start = Start { directory: state_directory.as_deref(), strict, has_tables, reread: &reread, places };
    pipeline::run(&config, start, signals)?;
    Ok(Exit::Done)
}

/// Where weir keeps its state across restarts; the first directory, if systemd gives it several.
fn state_directory() -> Option<PathBuf> {
    let directories = env::var_os(STATE_DIRECTORY)?;
    env::split_paths(&directories).find(|directory| !directory.as_os_str().is_empty())
}

/// The interfaces on the command line, without duplicates.
fn named(names: Vec<String>) -> Result<Vec<Interface>, Failure> {
    let mut known = HashSet::new();
    let interfaces: Vec<_> = names
        .into_iter()
        .filter(|name| known.insert(name.clone()))
        .map(|name| Interface { name, mode: Mode::Auto, direction: Direction::Ingress, feeds: None })
        .collect();
    if interfaces.len() > INTERFACES_MAX {
        let error = anyhow::anyhow!("{} interfaces: weir measures at most {INTERFACES_MAX}", interfaces.len());
        return Err(Failure { exit: Exit::Usage, error });
    }
    Ok(interfaces)
}

fn replay_captures(args: ReplayArgs) -> Result<Exit, Failure> {
    let ReplayArgs { files, config, json, full, window, views, asks, kernel, seed } = args;
    let mut config = read_config(&config)?;
    add_views(&mut config, &views)?;
    can_be_read(&files)?;
    let options = Options { windows: window, files, kernel, asks, seed, progress: io::stderr().is_terminal() };
    let form = Form { json, full };
    let mut printed = Printed::new(form, window);
    let broken = replay::replay(&config, &options, &mut |report| printed.add(report))?;
    printed.finish()?;
    for broken in &broken {
        say(format_args!("weir: {broken}"));
    }
    Ok(if broken.is_empty() { Exit::Done } else { Exit::Broken })
}

/// Whether these captures are there.
fn can_be_read(files: &[PathBuf]) -> Result<(), Failure> {
    let usage = |error| Failure { exit: Exit::Usage, error };
    for file in files.iter().filter(|file| !input::is_stdin(file)) {
        std::fs::metadata(file).map_err(|error| usage(anyhow::anyhow!("cannot read {}: {error}", file.display())))?;
    }
    match files.iter().filter(|file| input::is_stdin(file)).count() {
        0 => {}
        1 if io::stdin().is_terminal() => {
            return Err(usage(anyhow::anyhow!("standard input is a terminal: pipe a capture into it")));
        }
        1 => {}
        _ => return Err(usage(anyhow::anyhow!("- is standard input, which can be read only once"))),
    }
    Ok(())
}

/// Whether these files are captures, before a screen would hide the answer. What can be read only once, such as a pipe,
/// is not opened.
fn are_captures(files: &[PathBuf]) -> Result<(), Failure> {
    let again = |file: &&PathBuf| std::fs::metadata(file).is_ok_and(|of| of.is_file() || of.is_dir());
    for file in files.iter().filter(again) {
        Capture::open(file).map_err(|broken| Failure { exit: Exit::Broken, error: broken.into() })?;
    }
    Ok(())
}

/// Has the program that merges reports show them live.
fn top_of_fleet(files: Vec<PathBuf>, window: Option<Windows>) -> Result<Exit, Failure> {
    let mut arguments: Vec<OsString> = vec!["--live".into()];
    if let Some(window) = window {
        let length = match window {
            Windows::Every(length) if length.subsec_nanos() == 0 => format!("{}s", length.as_secs()),
            Windows::Every(_) | Windows::All => {
                let error = anyhow::anyhow!("--window: a window of a fleet has whole seconds, such as 10s or 1m");
                return Err(Failure { exit: Exit::Usage, error });
            }
        };
        arguments.extend(["--window".into(), length.into()]);
    }
    arguments.push("--".into());
    arguments.extend(files.into_iter().map(PathBuf::into_os_string));
    external(MERGE.as_ref(), &arguments)
}

fn top(TopArgs { replay: files, merge, speed, window, socket: args }: TopArgs) -> Result<Exit, Failure> {
    if !merge.is_empty() {
        return top_of_fleet(merge, window);
    }
    let usage = |why| Failure { exit: Exit::Usage, error: anyhow::anyhow!("{why}") };
    let impossible = |error: anyhow::Error| Failure { exit: Exit::Impossible, error };
    if !weir_top::is_terminal() {
        return Err(usage("weir top draws on a terminal: for a pipe or a file there is `weir report --json`"));
    }
    let mut source: Box<dyn weir_top::Source> = if files.is_empty() {
        let path = socket(&args)?;
        // If no weir answers, say why before the screen takes over the terminal.
        client::ask(&path, protocol::Command::Status)?;
        Box::new(Live::new(path).map_err(|error| impossible(error.into()))?)
    } else {
        if files.iter().any(|file| input::is_stdin(file)) {
            return Err(usage("the keyboard is standard input: name a file to replay"));
        }
        can_be_read(&files)?;
        are_captures(&files)?;
        let config = read_config(&args.config)?;
        let windows = window.unwrap_or(Windows::Every(config.report.interval));
        let options = Options { windows, files, kernel: false, asks: Vec::new(), seed: None, progress: false };
        Box::new(Replayed::new(config, options, speed).map_err(|error| impossible(error.into()))?)
    };
    let Signals { stop, hangups } = signals::listen(|| {}).map_err(|error| impossible(error.into()))?;
    let is_stopped = || stop.try_recv() != Err(TryRecvError::Empty) || hangups.try_recv().is_ok();
    weir_top::run(source.as_mut(), &is_stopped).map_err(|error| impossible(error.into()))?;
    Ok(Exit::Done)
}

/// Adds the views on the command line. A view without a name is named by its position.
fn add_views(config: &mut Config, views: &[String]) -> Result<(), Failure> {
    let usage = |error: anyhow::Error| Failure { exit: Exit::Usage, error };
    for (nth, text) in (1..).zip(views) {
        let view =
            config.parse_view(text, "--view", &format!("view{nth}")).map_err(|mistakes| usage(mistakes.into()))?;
        if config.views.iter().any(|known| known.name == view.name) {
            return Err(usage(anyhow::anyhow!(
                "--view {text}: there is a view {} already: give it another `name`",
                view.name
            )));
        }
        config.views.push(view);
    }
    Ok(())
}

fn check(CheckArgs { file, config, cpus }: &CheckArgs) -> Result<Exit, Failure> {
    let config = &ConfigArgs { config: file.clone().or_else(|| config.config.clone()) };
    let state_directory = state_directory().unwrap_or_else(|| PathBuf::from(STATE_DIRECTORY_DEFAULT));
    let (config, _) = read_to_run(config, Some(&state_directory))?;
    let exit = print(plan(&config, *cpus)?)?;
    let mut wrong = sink::check(&config.sinks).map_err(RunError::from)?;
    let spool = config.files(Some(&state_directory)).spool;
    wrong.extend(spool.and_then(|folder| SpoolRoot::check(&folder).err()).map(|why| format!("spool.path: {why}")));
    for one in &mut wrong {
        one.push_str(": reports will wait until that is fixed");
    }
    wrong.extend(
        weir_web::check(&config.web).err().map(|why| format!("web: {why}: there will be no page until a restart")),
    );
    for one in &wrong {
        say(format_args!("weir: {one}"));
    }
    Ok(if wrong.is_empty() { exit } else { Exit::Broken })
}

/// What a configuration means, and how much memory it needs on a machine with this many CPUs.
fn plan(config: &Config, cpus: Option<u32>) -> Result<String, Failure> {
    config.hash_key.check().map_err(RunError::from)?;
    let cpus = match cpus {
        Some(count) => Cpus::of(count),
        None => Cpus::of_this_machine().map_err(RunError::from)?,
    };
    let has_programs = tap::needs_programs(&config.interfaces);
    let machine = Fit { cpus: &cpus, has_programs, interfaces: slots(&config.interfaces), running: None };
    let fitted = memory::fit(config, machine, &Arc::new(Geo::open(&config.geo)?));
    fitted.check(config, machine).map_err(RunError::from)?;
    let Fitted { config, views, memory, smaller, kept: _ } = &fitted;
    let mut plan = format!("# settings in force\n{}", config.to_yaml());
    if let Some(smaller) = smaller {
        plan += &format!("\n# smaller than by default, to fit into `memory`\n{smaller}\n");
    }
    if !config.interfaces.is_empty() {
        plan += "\n# what feeds totals and lists, with the interfaces that are here now\n";
        plan += &match Survey::new(&config.interfaces, has_programs) {
            Ok(survey) => survey.to_string(),
            Err(error) => format!("the kernel does not list its interfaces: {error}\n"),
        };
        if let nat @ Nat::Rules(_) = Nat::ask() {
            plan += &format!("NAT: {nat}\n");
        }
    }
    let prices = Prices::of(views, memory.shards()).measured(views);
    plan += &format!("\n# views: the lists of every report, and those of the configuration\n{prices}");
    if !config.alerts.rules.is_empty() {
        plan += "\n# alerts: each report is judged by these rules\n";
        for rule in config.alerts.rules.iter() {
            plan += &format!("  {rule}\n");
        }
    }
    if let Some(history) = config.history {
        plan += &format!("\n# history\n{}", weir_history::Reach::new(history.memory, config.report.interval));
    }
    plan += &exported(config, views);
    Ok(format!("{plan}\n# memory, fixed\n{memory}").trim_end().to_owned())
}

/// The size of the exported sketches, if there are any.
fn exported(config: &Config, views: &Views) -> String {
    let (export, at_most) = (&config.export, sketches::bytes_at_most(&config.export, views));
    if at_most == 0 {
        return String::new();
    }
    let reports = sketches::reports_a_day(export, config.report.interval);
    format!(
        "\n# sketches in reports, as JSON without compression\n  {} a report at most, {reports} reports a \
         day: {} a day at most\n",
        mebibytes(at_most, 2),
        mebibytes(at_most * reports, 0)
    )
}

fn examine(DoctorArgs { interfaces, config, json, bundle }: DoctorArgs) -> Result<Exit, Failure> {
    let mut config = read_config(&config)?;
    if !interfaces.is_empty() {
        config.interfaces = named(interfaces)?;
    }
    let diagnosis = doctor::examine(&config);
    let written = if json {
        diagnosis.write_json(&mut Screen::stdout(screen::Form::Json))
    } else {
        writeln!(Screen::stdout(screen::Form::Text), "{diagnosis}")
    };
    written.map_err(ReplayError::from)?;
    if let Some(path) = bundle {
        write_bundle(&path, &config, &diagnosis)?;
        if !json {
            let path = path.display();
            print(format!(
                "\n{path} has all this and more, with stand-ins for addresses and names. Read it before you send it."
            ))?;
        }
    }
    Ok(if diagnosis.possible { Exit::Done } else { Exit::Impossible })
}

fn write_bundle(path: &Path, config: &Config, diagnosis: &Diagnosis) -> Result<(), Failure> {
    let report = match &config.control.socket {
        Some(socket) => client::ask(socket, protocol::Command::Report { last: None })
            .map_err(|error| error.to_string())
            .and_then(|report| serde_json::from_str(report.get()).map_err(|error| error.to_string())),
        None => Err("the configuration has no control socket".to_owned()),
    };
    let check = plan(config, None).map_err(|failure| format!("{:#}", failure.error));
    bundle::write(path, &BundleInput { config, diagnosis, check, report }).map_err(|error| Failure {
        exit: Exit::Broken,
        error: anyhow::anyhow!("cannot write {}: {error}", path.display()),
    })
}

/// The socket of the weir to query. A user who may not read the configuration can still be a member of the socket's
/// group.
fn socket(SocketArgs { socket, config }: &SocketArgs) -> Result<PathBuf, Failure> {
    if let Some(socket) = socket {
        return Ok(socket.clone());
    }
    let may_read = config.config.is_some() || std::fs::File::open(CONFIG).is_ok();
    let control = match if may_read { read_config(config) } else { Ok(Config::default()) } {
        Ok(config) => config.control,
        // If the file is invalid, the running weir should be the one to say so.
        Err(_) if config::Control::default().is_there() => config::Control::default(),
        Err(failure) => return Err(failure),
    };
    control.socket.ok_or_else(|| Failure {
        exit: Exit::Usage,
        error: anyhow::anyhow!(
            "the configuration has no control socket (`control: {{socket: none}}`): name it by --socket"
        ),
    })
}

fn status(StatusArgs { socket: args, json }: &StatusArgs) -> Result<Exit, Failure> {
    show::status::show(&socket(args)?, *json)?;
    Ok(Exit::Done)
}

fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let ReportArgs { last, full, socket: whom, json, .. } = args;
    let (socket, form) = (socket(whom)?, Form { json: *json, full: *full });
    match (show::report::asked_for(args, clock::now().wall), last) {
        (Some(span), _) => show::report::past(&socket, span, form)?,
        (None, Some(last)) => show::report::together(&socket, *last, form)?,
        (None, None) => show::report::last(&socket, form)?,
    }
    Ok(Exit::Done)
}

fn ask(AskArgs { keys, live, socket: args, json }: AskArgs) -> Result<Exit, Failure> {
    let usage = |why: String| Failure { exit: Exit::Usage, error: anyhow::Error::msg(why) };
    let (keys, names) = resolve::resolve(keys, resolve::system).map_err(usage)?;
    for Resolved { name, addresses } in names {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        say(format_args!("{name} is {}", addresses.join(", ")));
    }
    let asked = client::ask(&socket(&args)?, protocol::Command::Ask { keys, live })?;
    if json {
        return print_json(asked);
    }
    if live {
        let open: LiveAnswers = show::understood(&asked)?;
        write_answers(&open.so_far(), &open.answers, show::style(), &mut show::tables()).map_err(ReplayError::from)?;
        return Ok(Exit::Done);
    }
    let KeyAnswers { report_id: _, window, answers } = show::understood(&asked)?;
    write_answers(&window, &answers, show::style(), &mut show::tables()).map_err(ReplayError::from)?;
    Ok(Exit::Done)
}

fn reload(ReloadArgs { socket: args, json }: &ReloadArgs) -> Result<Exit, Failure> {
    let answer = client::ask(&socket(args)?, protocol::Command::Reload)?;
    if *json {
        return print_json(answer);
    }
    let reloaded: Reloaded = show::understood(&answer)?;
    print(reloaded.at(clock::now().wall))
}

/// Tells the running weir to detach, if there is one. Then removes leftovers at the tc hooks, but no filter that
/// another weir still uses.
fn detach(args: &DetachArgs) -> Result<Exit, Failure> {
    let DetachArgs { interfaces, all, leftovers: only_leftovers, socket: args } = args;
    if interfaces.is_empty() && !all && !only_leftovers {
        return Err(unnamed(
            "`weir detach eth0` detaches from eth0, `weir detach --all` from all interfaces, and `weir detach \
             --leftovers` only removes what a killed weir left at tc hooks",
        ));
    }
    if !only_leftovers && tell_to_detach(interfaces, args)? && !interfaces.is_empty() {
        return Ok(Exit::Done);
    }
    let impossible = |error| Failure { exit: Exit::Impossible, error };
    let cannot_list =
        |error: io::Error| impossible(anyhow::anyhow!("cannot list the filters of the tc hooks: {error}"));
    let there = Devices::open().and_then(|mut devices| devices.list()).map_err(cannot_list)?;
    let mut named = Vec::new();
    for name in interfaces {
        let Some(device) = there.iter().find(|device| device.names().any(|one| one == name)) else {
            return Err(RunError::from(AttachError::not_found(name, &there)).into());
        };
        named.push(device.name.as_str());
    }
    let FoundFilters { filters: mut leftovers, unread } = leftovers().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let way_out = way_out(CapabilitySet::SYS_ADMIN);
            impossible(anyhow::anyhow!(
                "there are filters at the tc hooks, but weir may not see whose they are: {way_out}"
            ))
        }
        _ => cannot_list(error),
    })?;
    leftovers.retain(|one| named.is_empty() || named.contains(&one.interface.as_str()));
    if leftovers.is_empty() && unread.is_none() {
        return print("weir has left nothing at the tc hooks");
    }
    for leftover in leftovers {
        let (name, direction) = (&leftover.interface, leftover.way.name());
        leftover.remove_if_left().map_err(|error| {
            impossible(anyhow::anyhow!("cannot remove weir's filter from {name} ({direction}): {error}"))
        })?;
        print_line(match (leftover.is_used, leftover.owner) {
            (false, _) => format!("{name} ({direction}): removed"),
            (true, Some(pid)) => {
                format!("{name} ({direction}): stays, because the weir with process id {pid} still uses it")
            }
            (true, None) => format!("{name} ({direction}): stays, because another weir, in a container, still uses it"),
        })?;
    }
    match unread {
        Some((name, error)) => {
            let is_forbidden = matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::ACCESS));
            let way_out = if is_forbidden { format!("; {}", way_out(CapabilitySet::NET_ADMIN)) } else { String::new() };
            Err(impossible(anyhow::anyhow!(
                "cannot list the filters of the tc hooks of {name}: {error}{way_out}. weir may have left some there"
            )))
        }
        None => Ok(Exit::Done),
    }
}

/// The refusal of a command that changes interfaces and names none.
fn unnamed(what_to_write: &str) -> Failure {
    let error = anyhow::anyhow!("name the interfaces (`weir status` lists them), or write `--all`: {what_to_write}");
    Failure { exit: Exit::Usage, error }
}

/// Tells the running weir to attach again.
fn attach(AttachArgs { interfaces, all, socket: args }: &AttachArgs) -> Result<Exit, Failure> {
    if interfaces.is_empty() && !all {
        return Err(unnamed(
            "`weir attach eth0` attaches to eth0 again, `weir attach --all` to all interfaces that weir was told to \
             detach from",
        ));
    }
    let told = client::ask(&socket(args)?, protocol::Command::Attach { interfaces: interfaces.clone() })?;
    let Attached { pid, to, missing } = show::understood(&told)?;
    if to.is_empty() && missing.is_empty() {
        return print(format!("the weir with process id {pid} was not told to detach from any interface"));
    }
    for one in to {
        print_line(format!("{one}: the weir with process id {pid} measures it again"))?;
    }
    for one in &missing {
        say(format_args!("weir: {one}"));
    }
    Ok(if missing.is_empty() { Exit::Done } else { Exit::Broken })
}

/// Tells the running weir to detach. Returns whether there was one.
fn tell_to_detach(interfaces: &[String], args: &SocketArgs) -> Result<bool, Failure> {
    let path = match socket(args) {
        Ok(path) => path,
        // A weir without a socket cannot be asked.
        Err(_) if args.socket.is_none() => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let told = match client::ask(&path, protocol::Command::Detach { interfaces: interfaces.to_vec() }) {
        Err(gone @ (AskError::NotThere(_) | AskError::Gone(_))) if args.socket.is_none() => {
            say(format_args!("weir: {gone}. So this only removes what a killed weir left at tc hooks (`--leftovers`)"));
            return Ok(false);
        }
        Err(gone @ (AskError::NotThere(_) | AskError::Gone(_))) => {
            return Err(Failure {
                exit: Exit::Impossible,
                error: anyhow::anyhow!(
                    "{gone}. If it was killed, its filters may still be at tc hooks: `weir detach --leftovers` removes \
                     them"
                ),
            });
        }
        told => told?,
    };
    let Detached { pid, from } = show::understood(&told)?;
    for one in from {
        print_line(format!(
            "{one}: detached; the weir with process id {pid} leaves it alone until `weir attach`, a restart, or a \
             reload with other `interfaces`"
        ))?;
    }
    Ok(true)
}

fn spool(command: &SpoolCommand) -> Result<Exit, Failure> {
    let impossible = |error: SpoolError| Failure { exit: Exit::Impossible, error: error.into() };
    let (SpoolCommand::Ls(SpoolListArgs { what: SpoolArgs { names, place }, .. })
    | SpoolCommand::Cat(SpoolArgs { names, place })
    | SpoolCommand::Retry(SpoolArgs { names, place })
    | SpoolCommand::Rm(SpoolRemoveArgs { names, place })) = command;
    let spools = Spools::new(spool_folder(place)?);
    let items = spools.list(names).map_err(|error| match error {
        SpoolError::NotThere { .. } => Failure { exit: Exit::Usage, error: error.into() },
        _ => impossible(error),
    })?;
    let is_json = matches!(command, SpoolCommand::Ls(SpoolListArgs { json: true, .. }) | SpoolCommand::Cat(_));
    let mut out = Screen::stdout(if is_json { screen::Form::Json } else { screen::Form::Text });
    let mut exit = Exit::Done;
    match command {
        SpoolCommand::Ls(SpoolListArgs { json, .. }) => {
            let write = if *json { command::write_json } else { command::write_list };
            write(&items, &mut out).map_err(ReplayError::from)?;
        }
        SpoolCommand::Cat(_) => {
            for item in &items {
                match item.line() {
                    Ok(line) => out.write_all(&line).map_err(ReplayError::from)?,
                    Err(error) => {
                        say(format_args!("weir: {error}"));
                        exit = Exit::Broken;
                    }
                }
            }
        }
        SpoolCommand::Retry(_) => {
            let mut wanted = 0;
            for item in &items {
                if spools.retry(item).map_err(impossible)? {
                    wanted += 1;
                    writeln!(out, "{}: will send {} again with its next report", escaped(&item.sink), item.id)
                        .map_err(ReplayError::from)?;
                }
            }
            if wanted == 0 {
                writeln!(out, "no report is refused").map_err(ReplayError::from)?;
            }
        }
        SpoolCommand::Rm(_) => {
            for item in &items {
                spools.remove(item).map_err(impossible)?;
                writeln!(out, "{}: removed {}", escaped(&item.sink), item.id).map_err(ReplayError::from)?;
            }
        }
    }
    Ok(exit)
}

/// The spool folder: from the command line, or as in the service.
fn spool_folder(SpoolPlaceArgs { path, config }: &SpoolPlaceArgs) -> Result<PathBuf, Failure> {
    if let Some(path) = path {
        return Ok(path.clone());
    }
    let state_directory = state_directory().unwrap_or_else(|| PathBuf::from(STATE_DIRECTORY_DEFAULT));
    read_config(config)?.spool.folder(Some(&state_directory)).ok_or_else(|| Failure {
        exit: Exit::Usage,
        error: anyhow::anyhow!("the configuration says `spool: {{path: none}}`: nothing waits on disk"),
    })
}

fn key(command: KeyCommand) -> Result<Exit, Failure> {
    match command {
        KeyCommand::New(KeyNewArgs { file: None }) => print(key::new_secret()?),
        KeyCommand::New(KeyNewArgs { file: Some(path) }) => {
            key::create(&path).map(|()| Exit::Done).map_err(Failure::from)
        }
        KeyCommand::Id(KeyIdArgs { file, config }) => {
            let hash_key =
                file.map_or_else(|| Ok(read_config(&config)?.hash_key), |path| Ok::<_, Failure>(HashKey::File(path)))?;
            print(key::fingerprints(&hash_key, clock::now().wall)?)
        }
    }
}

impl From<KeyCommandError> for Failure {
    fn from(error: KeyCommandError) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }
}

/// Runs a separate program, and returns only if that fails.
fn external(name: &OsStr, arguments: &[OsString]) -> Result<Exit, Failure> {
    let error = external::run(name, arguments);
    let exit = match &error {
        ExternalError::NotInstalled(_) => Exit::Usage,
        ExternalError::Refused { .. } => Exit::Impossible,
        ExternalError::Unknown(_) => {
            // clap prints the error, with similar commands.
            Cli::known_commands().get_matches();
            Exit::Usage
        }
    };
    Err(Failure { exit, error: error.into() })
}

/// The configuration for `weir run`. No sink may write to one of weir's own files.
fn read_to_run(args: &ConfigArgs, state_directory: Option<&Path>) -> Result<(Config, Source), Failure> {
    let (config, source) = read_source(args)?;
    let path = args.config.as_deref().unwrap_or(Path::new(CONFIG));
    let own = OwnFiles { config: path, state_directory, state: &state::FILES };
    let checked = config.refuse_own_files(&source, own);
    checked.map_err(|mistakes| Failure { exit: Exit::Usage, error: mistakes.into() })?;
    Ok((config, source))
}

fn read_config(args: &ConfigArgs) -> Result<Config, Failure> {
    read_source(args).map(|(config, _)| config)
}

/// The configuration with its text, which is empty if there is no file.
fn read_source(ConfigArgs { config }: &ConfigArgs) -> Result<(Config, Source), Failure> {
    let read = match config {
        Some(path) => Config::read_with_source(path),
        None if Path::new(CONFIG).exists() => Config::read_with_source(Path::new(CONFIG)),
        None => return Ok((Config::default(), Source::new(CONFIG, ""))),
    };
    read.map_err(|mistakes| Failure { exit: Exit::Usage, error: mistakes.into() })
}

/// The format of the log: from the command line, otherwise from the variable.
fn chosen(format: Option<Format>) -> Result<Format, Failure> {
    Format::chosen(format).map_err(|why| Failure { exit: Exit::Usage, error: anyhow::Error::msg(why) })
}

fn print(text: impl fmt::Display) -> Result<Exit, Failure> {
    print_as(screen::Form::Text, text)
}

/// Prints one line. A name in it cannot begin another line.
fn print_line(text: impl fmt::Display) -> Result<Exit, Failure> {
    print(escaped(&text.to_string()))
}

fn print_json(json: impl fmt::Display) -> Result<Exit, Failure> {
    print_as(screen::Form::Json, json)
}

fn print_as(form: screen::Form, text: impl fmt::Display) -> Result<Exit, Failure> {
    writeln!(Screen::stdout(form), "{text}").map_err(ReplayError::from)?;
    Ok(Exit::Done)
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let exit = match &error {
            RunError::Attach(AttachError::NotFound { .. })
            | RunError::Key(_)
            | RunError::Geo(_)
            | RunError::Budget(_) => Exit::Usage,
            RunError::Sink(error) if error.is_mistake() => Exit::Usage,
            RunError::Kernel(_)
            | RunError::Taken(_)
            | RunError::Attach(_)
            | RunError::Taps(_)
            | RunError::Thread(_)
            | RunError::Measure(MeasureError::Workers(WorkersError::Worker(_))) => Exit::Impossible,
            RunError::Sink(_) | RunError::Measure(_) => Exit::Broken,
        };
        Self { exit, error: error.into() }
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        let exit = match &error {
            ReplayError::Kernel(_) | ReplayError::Pin(_) => Exit::Impossible,
            ReplayError::Key(_) | ReplayError::Ask { .. } | ReplayError::Geo(_) => Exit::Usage,
            ReplayError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            ReplayError::Write(_) | ReplayError::Merge(_) => Exit::Broken,
        };
        Self { exit, error: error.into() }
    }
}

impl From<ShowError> for Failure {
    fn from(error: ShowError) -> Self {
        match error {
            ShowError::Ask(error) => error.into(),
            ShowError::Foreign(_) => Self { exit: Exit::Impossible, error: error.into() },
            ShowError::Write(error) => ReplayError::from(error).into(),
        }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let exit = if matches!(error, AskError::Refused(_)) { Exit::Usage } else { Exit::Impossible };
        Self { exit, error: error.into() }
    }
}

impl From<GeoError> for Failure {
    fn from(error: GeoError) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        Self { exit: Exit::Impossible, error: error.into() }
    }
}
