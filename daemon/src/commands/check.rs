//! `weir check`: explains a configuration, its memory and its mistakes.

use std::{path::PathBuf, sync::Arc};

use weir::{
    cli::{CheckArgs, ConfigArgs},
    memory::{self, Fit, Fitted},
    pipeline::RunError,
};
use weir_attach::{Nat, Survey};
use weir_config::{Config, names::Geo, slots};
use weir_datapath::{Cpus, tap};
use weir_deliver::{sink, spool::root::SpoolRoot};
use weir_measure::{price::Prices, question::Views};
use weir_report::exporter;
use weir_system::{exit::Exit, log::say, numbers::mebibytes};

use super::{
    failure::Failure,
    output::print,
    settings::{STATE_DIRECTORY_DEFAULT, read_to_run, state_directory},
};

pub(super) fn check(CheckArgs { file, config, cpus }: &CheckArgs) -> Result<Exit, Failure> {
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

/// Describes the effect of a configuration, and how much memory it needs on a machine with this many CPUs.
pub(super) fn plan(config: &Config, cpus: Option<u32>) -> Result<String, Failure> {
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
    plan += &hosts(config, views);
    let prices = Prices::of(views, memory.shards()).measured(views);
    plan += &format!("\n# views: the lists of every report, and those of the configuration\n{prices}");
    let rules = config.rules();
    if !rules.is_empty() {
        plan += "\n# alerts: each report is judged by these rules\n";
        for rule in &rules {
            plan += &format!("  {rule}\n");
        }
    }
    if let Some(history) = &config.history {
        plan += &format!("\n# history\n{}", weir_history::Reach::new(history, config.report.interval));
    }
    plan += &exported(config, views);
    Ok(format!("{plan}\n# memory, fixed\n{memory}").trim_end().to_owned())
}

/// Which addresses are hosts, if anything depends on it.
fn hosts(config: &Config, views: &Views) -> String {
    if config.new_hosts.is_none() && views.questions.iter().all(|question| question.own.is_none()) {
        return String::new();
    }
    let networks: Vec<String> = config.networks_of_hosts().iter().map(ToString::to_string).collect();
    let which = if config.networks.iter().any(|network| network.own) {
        "the addresses in networks with `own: true`"
    } else {
        "no network has `own: true`: private addresses, and those behind this machine"
    };
    format!("\n# hosts: {which}\n  {}\n", networks.join("\n  "))
}

/// The size of the exported sketches, if there are any.
fn exported(config: &Config, views: &Views) -> String {
    let (export, at_most) = (&config.export, exporter::bytes_at_most(&config.export, views));
    if at_most == 0 {
        return String::new();
    }
    let reports = exporter::reports_a_day(export, config.report.interval);
    format!(
        "\n# sketches in reports, as JSON without compression\n  {} a report at most, {reports} reports a \
         day: {} a day at most\n",
        mebibytes(at_most, 2),
        mebibytes(at_most * reports, 0)
    )
}
