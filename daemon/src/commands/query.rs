//! `weir status`, `weir report`, `weir ask` and `weir reload`: ask the running weir.

use std::{
    fs::File,
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use weir::{
    cli::{AskArgs, HistoryPlaceArgs, NamesArgs, ReloadArgs, ReportArgs, SocketArgs, StatusArgs, UsageArgs},
    control::{
        client,
        protocol::{self, KeyAnswers},
    },
    reload::Reloaded,
    show::{
        self,
        resolve::{self, Resolved},
    },
};
use weir_config::{self as config, Config};
use weir_measure::question::is_name;
use weir_schema::{
    AskedFlows, HostUsage, ListKey, LiveAnswers, NameOf, NamesAnswer, Usage, listing::ListForm, write_answers,
};
use weir_system::{
    clock,
    exit::Exit,
    log::say,
    screen::{Form, Screen},
};

use super::{
    failure::Failure,
    history::{ask as ask_past, find_keys, form, log_of_damage, read, span, usage as usage_error},
    output::{OutputError, print, print_json},
    settings::{CONFIG, read_config},
};

/// The socket of the weir to query. A user who may not read the configuration can still be a member of the socket's
/// group.
pub(super) fn socket(SocketArgs { socket, config }: &SocketArgs) -> Result<PathBuf, Failure> {
    if let Some(socket) = socket {
        return Ok(socket.clone());
    }
    let may_read = config.config.is_some() || File::open(CONFIG).is_ok();
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

pub(super) fn status(StatusArgs { socket: args, json }: &StatusArgs) -> Result<Exit, Failure> {
    show::status::show(&socket(args)?, *json)?;
    Ok(Exit::Done)
}

pub(super) fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let ReportArgs { last, full, socket: whom, json, .. } = args;
    let (socket, form) = (socket(whom)?, show::Form { json: *json, full: *full });
    match (show::report::asked_for(args, clock::now().wall), last) {
        (Some(span), _) => show::report::past(&socket, span, form)?,
        (None, Some(last)) => show::report::together(&socket, *last, form)?,
        (None, None) => show::report::last(&socket, form)?,
    }
    Ok(Exit::Done)
}

pub(super) fn ask(AskArgs { keys, live, time, by, place, json, csv }: AskArgs) -> Result<Exit, Failure> {
    let known = if place.path.is_none() && keys.iter().any(|key| is_name(key)) {
        known_names(&socket(&place.socket)?)
    } else {
        Vec::new()
    };
    let look_up = |name: &str| {
        let known = known.iter().filter(|of| of.name.eq_ignore_ascii_case(name)).map(|of| of.address);
        let known: Vec<IpAddr> = known.collect();
        if known.is_empty() { resolve::system(name) } else { Ok(known) }
    };
    let (keys, names) = resolve::resolve(keys, look_up).map_err(|why| Failure::usage(anyhow::Error::msg(why)))?;
    for Resolved { name, addresses } in names {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        say(format_args!("{name} is {}", addresses.join(", ")));
    }
    let (from, to) = span(&time);
    if from.is_some() || to.is_some() || place.path.is_some() {
        let _log = log_of_damage()?;
        // Several questions are answered as `weir history find` does: by lists, with samples where these know more.
        let is_of_lists = by.is_empty() && !csv && (keys.len() > 1 || keys.iter().all(|key| ListKey::is_in_lists(key)));
        return if is_of_lists {
            find_keys(keys, (from, to), &place, json)
        } else {
            flows(&keys, by, (from, to), &place, form(json, csv))
        };
    }
    if !by.is_empty() || csv {
        let what = if csv { "--csv" } else { "--by" };
        return Err(usage_error(format!("{what} is for questions about a time: name one, such as --since 1h")));
    }
    let args = place.socket;
    let asked = client::ask(&socket(&args)?, protocol::Command::Ask { keys, live })?;
    if json {
        return print_json(asked);
    }
    if live {
        let open: LiveAnswers = show::understood(&asked)?;
        write_answers(&open.so_far(), &open.answers, show::style(), &mut show::tables()).map_err(OutputError::from)?;
        return Ok(Exit::Done);
    }
    let KeyAnswers { report_id: _, window, answers } = show::understood(&asked)?;
    write_answers(&window, &answers, show::style(), &mut show::tables()).map_err(OutputError::from)?;
    Ok(Exit::Done)
}

/// The names of hosts that the running weir knows. None if it does not answer: then the question itself says so.
fn known_names(socket: &Path) -> Vec<NameOf> {
    let answer = client::ask(socket, protocol::Command::Names).ok();
    let names = answer.and_then(|answer| show::understood::<NamesAnswer>(&answer).ok());
    names.map_or_else(Vec::new, |answer| answer.names)
}

/// Prints what the flow records of a time have of a question.
fn flows(
    keys: &[String],
    by: Vec<String>,
    (from, to): (Option<String>, Option<String>),
    place: &HistoryPlaceArgs,
    form: ListForm,
) -> Result<Exit, Failure> {
    let question = match keys {
        [] => String::new(),
        [question] => question.clone(),
        several => {
            return Err(usage_error(format!(
                "{} questions: ask the flow records one at a time, with all conditions in one text, such as \
                 src_ip=10.1.0.0/16,dst_port=443",
                several.len()
            )));
        }
    };
    let answer = ask_past(place, protocol::Command::Flows { question, by, from, to })?;
    if form == ListForm::Json {
        return print_json(answer);
    }
    show::past::flows(&read::<AskedFlows>(&answer)?, form)?;
    Ok(Exit::Done)
}

pub(super) fn usage(
    UsageArgs { what, by, last, top, to, socket: whom, json, csv }: UsageArgs,
) -> Result<Exit, Failure> {
    let is_own = |what: &String| matches!(&**what, "hosts" | "networks") || what.parse::<IpAddr>().is_ok();
    let (of, interface) = if what.as_ref().is_some_and(is_own) { (what, None) } else { (None, what) };
    if top.is_some() && of.is_none() {
        return Err(usage_error("--top is for hosts and networks: interfaces have all their rows".to_owned()));
    }
    let (of_hosts, to) = (of.is_some(), to.map(|to| to.to_string()));
    let asked = client::ask(&socket(&whom)?, protocol::Command::Usage { of, interface, by: Some(by), last, top, to })?;
    if json {
        return print_json(asked);
    }
    let style = show::style();
    let (width, color) = (style.width, style.color);
    if of_hosts {
        let usage: HostUsage = show::understood(&asked)?;
        write_usage(csv, |mut out| usage.write_csv(&mut out), |mut out| usage.write(width, color, &mut out))
    } else {
        let usage: Usage = show::understood(&asked)?;
        write_usage(csv, |mut out| usage.write_csv(&mut out), |mut out| usage.write(width, color, &mut out))
    }
}

/// Writes comma-separated values, or a table.
fn write_usage(
    csv: bool,
    values: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    table: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> Result<Exit, Failure> {
    let written = if csv { values(&mut Screen::stdout(Form::Text)) } else { table(&mut show::tables()) };
    written.map_err(OutputError::from)?;
    Ok(Exit::Done)
}

pub(super) fn names(NamesArgs { socket: args, json }: &NamesArgs) -> Result<Exit, Failure> {
    let answer = client::ask(&socket(args)?, protocol::Command::Names)?;
    if *json {
        return print_json(answer);
    }
    let names: NamesAnswer = show::understood(&answer)?;
    let style = show::style();
    names.write(style.width, style.color, &mut show::tables()).map_err(OutputError::from)?;
    Ok(Exit::Done)
}

pub(super) fn reload(ReloadArgs { socket: args, json }: &ReloadArgs) -> Result<Exit, Failure> {
    let answer = client::ask(&socket(args)?, protocol::Command::Reload)?;
    if *json {
        return print_json(answer);
    }
    let reloaded: Reloaded = show::understood(&answer)?;
    print(reloaded.at(clock::now().wall))
}
