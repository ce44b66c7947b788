//! weir and flowsketch on the same capture, with the same questions: time, memory, and how true each answer is.
//!
//! The first four questions are flowsketch's examples. Both read the capture file themselves, and answer for the whole
//! of it. Every answer is compared with the truth about the packets; a bound of weir's that does not hold fails the
//! run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    slice,
};

use anyhow::{Context, Result, bail, ensure};
use weir_tests::{daemon::weir_binary, scratch::Scratch};

use crate::table::{self, least_and_median, thousands};

mod answers;
mod process;
mod questions;
mod truth;

use answers::{Accuracy, Answer};
use process::Run;
use questions::{QUESTIONS, Question};
use truth::{Bytes, Truth};

const ROUNDS: usize = 5;
/// A configured error of the largest that is smaller than weir's default, and takes more memory.
const CLOSE: f64 = 0.0002;
/// The commit of flowsketch for which the figures hold.
const COMMIT: &str = "148e30ea45ebdeff78748750487e71f2d484593b";

/// One row: some questions that are asked at once.
struct BenchRow {
    name: String,
    questions: &'static [Question],
    /// True if weir answers its standard views as well.
    with_standard_views: bool,
    /// The error of the largest that is configured in weir.
    error: Option<f64>,
    weir: Vec<Run>,
    flowsketch: Vec<Run>,
}

/// Measures and prints.
///
/// # Errors
///
/// There is no binary, there is no room for the capture (some 170 MB), a tool fails, or a bound of weir does not hold.
pub fn bench(checkout: Option<&Path>) -> Result<()> {
    let weir = weir_binary()?;
    let flowsketch = checkout.map(build).transpose()?;
    let scratch = Scratch::new()?;
    let capture = scratch.file("traffic.pcap");
    let truth = Truth::write(&capture)?;

    let examples = &QUESTIONS[..Question::EXAMPLES];
    let mut rows: Vec<BenchRow> =
        examples.iter().map(|question| asked(question.name, slice::from_ref(question), false)).collect();
    rows.push(asked("all four", examples, false));
    rows.push(asked("all four, and weir's standard views", examples, true));
    rows.push(asked("twelve", &QUESTIONS, false));
    let close = format!("twelve, weir with `error: {CLOSE}` for the largest");
    rows.push(BenchRow { error: Some(CLOSE), ..asked(&close, &QUESTIONS, false) });
    for _ in 0..ROUNDS {
        for row in &mut rows {
            row.weir.push(run_weir(&weir, &scratch, &capture, row)?);
            if let Some(flowsketch) = &flowsketch
                && !row.is_of_weir()
            {
                row.flowsketch.push(run_flowsketch(flowsketch, &scratch, &capture, row.questions)?);
            }
        }
    }
    table::say(format!("{}\n", table::machine()?))?;
    print_costs(&rows, truth.packets())?;
    let [.., whole, close] = &rows[..] else { bail!("no rows") };
    print_answers(whole, close, &truth)?;
    if flowsketch.is_none() {
        table::say(format!(
            "\nflowsketch: skipped. Name a checkout with --flowsketch DIR, at commit {}.",
            &COMMIT[..7]
        ))?;
    }
    Ok(())
}

fn asked(name: &str, questions: &'static [Question], with_standard_views: bool) -> BenchRow {
    let (name, runs) = (name.to_owned(), Vec::new);
    BenchRow { name, questions, with_standard_views, error: None, weir: runs(), flowsketch: runs() }
}

impl BenchRow {
    /// Returns true if only weir is run for this row, because flowsketch answers the same questions in another row.
    const fn is_of_weir(&self) -> bool {
        self.with_standard_views || self.error.is_some()
    }
}

/// Builds flowsketch in its checkout, and returns its program.
fn build(checkout: &Path) -> Result<PathBuf> {
    let git = Command::new("git").arg("-C").arg(checkout).args(["rev-parse", "HEAD"]).output();
    let git = git.context("cannot start git")?;
    let commit = String::from_utf8_lossy(&git.stdout);
    let place = checkout.display();
    ensure!(git.status.success(), "{place} is no checkout: {}", String::from_utf8_lossy(&git.stderr).trim());
    ensure!(
        commit.trim() == COMMIT,
        "{place} is at commit {}, and the figures are of {COMMIT}: check that out",
        commit.trim()
    );
    let checkout = checkout.canonicalize()?;
    let target = checkout.join("target");
    let built = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet", "--package", "flowsketch-cli", "--target-dir"])
        .arg(&target)
        .current_dir(&checkout)
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "flowsketch cannot be built in {place}");
    Ok(target.join("release/flowsketch"))
}

fn run_weir(weir: &Path, scratch: &Scratch, capture: &Path, asked: &BenchRow) -> Result<Run> {
    let views: Vec<String> = asked.questions.iter().filter_map(|question| question.view(asked.error)).collect();
    let standard = if asked.with_standard_views { "" } else { "standard_views: []\n" };
    let config = scratch.file("weir.yaml");
    fs::write(&config, format!("interfaces: [any]\n{standard}views: [{}]\n", views.join(", ")))?;
    let mut command = Command::new(weir);
    command.args(["replay", "--json", "--window", "all", "--seed", "1", "--config"]).arg(config).arg(capture);
    process::run(&mut command).context("weir replay")
}

fn run_flowsketch(flowsketch: &Path, scratch: &Scratch, capture: &Path, questions: &[Question]) -> Result<Run> {
    let mut command = Command::new(flowsketch);
    command.arg("replay").arg(capture).args(["--format", "json", "--seed", "1"]);
    for question in questions {
        let query = scratch.file(&format!("{}.yaml", question.name));
        // One window holds the whole capture, as in the replay.
        fs::write(&query, question.query())?;
        command.arg("--query").arg(query);
    }
    process::run(&mut command).context("flowsketch replay")
}

fn print_costs(rows: &[BenchRow], packets: u64) -> Result<()> {
    let nanos = |runs: &[Run]| {
        let each: Vec<f64> = runs.iter().map(|run| 1e9 * run.cpu.as_secs_f64() / packets as f64).collect();
        (!each.is_empty()).then(|| least_and_median(each).1)
    };
    let mebibytes = |runs: &[Run]| {
        let most = runs.iter().map(|run| run.peak_kib).max();
        most.map_or_else(String::new, |kib| format!("{:.1}", kib as f64 / 1024.0))
    };
    // The costs of flowsketch for the same questions are in both rows of weir.
    let asked_as = |row: &BenchRow| rows.iter().find(|other| !other.is_of_weir() && other.questions == row.questions);
    let lines = rows.iter().map(|row| {
        let flowsketch = &asked_as(row).unwrap_or(row).flowsketch;
        let (ours, theirs) = (nanos(&row.weir), nanos(flowsketch));
        let number = |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.0}"));
        let times = ours.zip(theirs).map_or_else(String::new, |(ours, theirs)| format!("{:.1}", theirs / ours));
        [row.name.clone(), number(ours), number(theirs), times, mebibytes(&row.weir), mebibytes(flowsketch)]
    });
    table::write(
        ["questions", "weir, ns/pkt", "flowsketch, ns/pkt", "times", "weir, MiB", "flowsketch, MiB"],
        &lines.collect::<Vec<_>>(),
    )?;
    table::say(format!(
        "\nCPU time (user and system) of `weir replay` and `flowsketch replay` over one capture of {} packets, median of\n\
         {ROUNDS} runs, which took turns; the most memory that a process occupied (VmHWM).\n",
        thousands(packets),
    ))
}

/// Prints how true the answers are. `close` has the same questions as `whole`, with a smaller error of the largest.
fn print_answers(whole: &BenchRow, close: &BenchRow, truth: &Truth) -> Result<()> {
    let run = |runs: &[Run]| runs.last().map(|run| run.out.clone());
    let questions = whole.questions;
    let [weir, close] = [whole, close].map(|asked| answers::of_weir(&run(&asked.weir).context("no run")?, questions));
    let (weir, close) = (weir?, close?);
    let flowsketch = run(&whole.flowsketch).map(|out| answers::of_flowsketch(&out, questions)).transpose()?;
    let mut lines = Vec::new();
    for (nth, question) in questions.iter().enumerate() {
        let judge = |answer: &[Answer], counted| {
            let rows = truth.rows(question, counted);
            answers::judge(answer, &rows, Truth::sought(question, &rows)).context(question.name)
        };
        let closely = question.is_about_largest().then(|| (format!("weir, error: {CLOSE}"), &close[nth]));
        for (tool, answer) in [("weir".to_owned(), &weir[nth])].into_iter().chain(closely) {
            let judged = judge(answer, Bytes::OfFrames)?;
            if judged.held != judged.rows {
                bail!("{tool}, {}: {} of {} bounds hold", question.name, judged.held, judged.rows);
            }
            lines.push(line(question, &tool, &judged));
        }
        if let Some(flowsketch) = &flowsketch {
            lines.push(line(question, "flowsketch", &judge(&flowsketch[nth], Bytes::OfIp)?));
        }
    }
    table::write(
        ["answer", "tool", "largest found", "mean error", "largest error", "mean width of bounds", "bounds that hold"],
        &lines,
    )?;
    table::say(
        "\nErrors and widths are shares of the true value, over the largest that were found. flowsketch counts the bytes of\n\
         IP packets, weir those of frames: each is held against its own truth. flowsketch states a confidence for each\n\
         row: 99.3 % for sums by protocol, 99 % for packet_size_p99, 95 % for distinct values; bounds of the largest\n\
         always hold. weir's always hold, but for distinct values: 99.9 % for all rows together.",
    )
}

fn line(question: &Question, tool: &str, judged: &Accuracy) -> [String; 7] {
    let Accuracy { rows, sought, found, mean_error, largest_error, mean_width, held } = *judged;
    let percent = |share: f64| format!("{:.3} %", 100.0 * share);
    [
        question.name.to_owned(),
        tool.to_owned(),
        format!("{found} of {sought}"),
        percent(mean_error),
        percent(largest_error),
        mean_width.map_or_else(|| "none".to_owned(), percent),
        format!("{held} of {rows}"),
    ]
}
