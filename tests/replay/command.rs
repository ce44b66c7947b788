//! `weir replay` as a user runs it: its output and its exit codes.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader, BufWriter, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use weir_tests::{
    account::{self, Loss, tally},
    daemon::weir_binary,
    judge::judge,
    oracle::Oracle,
    pcap::{SNAPLEN_MAX, Schedule, Writer},
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::library::{judge_together, reports};

pub const DONE: i32 = 0;
const BROKEN: i32 = 1;
const USAGE: i32 = 2;
const IMPOSSIBLE: i32 = 3;
/// The user without any files.
const NOBODY: u32 = 65_534;

/// Writes a capture of 10 s of a plan's packets, and returns the truth about it.
pub fn capture(path: &Path, plan: Plan) -> Result<Oracle> {
    capture_again_and_again(path, plan, 1)
}

/// How long the traffic of [`capture`] takes. It starts with a window of this length.
pub const CAPTURE_TIME: Duration = Duration::from_secs(10);

/// The same traffic this many times, one after the other; and the truth about one of them.
pub fn capture_again_and_again(path: &Path, plan: Plan, times: u32) -> Result<Oracle> {
    let packets_per_second = (plan.packets / CAPTURE_TIME.as_secs()).max(1) as u32;
    let mut oracle = Oracle::new();
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), SNAPLEN_MAX)?;
    for time in 0..times {
        let start = Duration::from_secs(1_700_000_000) + CAPTURE_TIME * time;
        let schedule = Schedule { start, packets_per_second };
        for (nth, packet) in (0..).zip(Traffic::new(plan)?) {
            writer.write(schedule.at(nth), &packet.frame)?;
            if time == 0 {
                oracle.add(&packet.truth);
            }
        }
    }
    writer.finish()?;
    Ok(oracle)
}

/// The output of `weir`, and how it ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub log: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        Self { code: status.code(), out: stdout, log: String::from_utf8_lossy(&stderr).into_owned() }
    }
}

impl Ended {
    /// Returns its reports, if it has ended with `code`.
    ///
    /// # Errors
    ///
    /// It ended otherwise, panicked, or printed anything but reports that lost nothing on its standard output.
    pub fn reports(&self, code: i32) -> Result<Vec<Value>> {
        ensure!(self.code == Some(code), "it ended with {:?}, not {code}: {}", self.code, self.log);
        ensure!(!self.log.contains("panicked"), "{}", self.log);
        let reports = reports(&self.out)?;
        account::check(&reports, Loss::None)?;
        judge(&reports)?;
        judge_together(&reports)?;
        Ok(reports)
    }

    /// Returns its error message, if it has ended with `code` and without a report.
    fn refusal(&self, code: i32) -> Result<&str> {
        let reports = self.reports(code)?;
        ensure!(reports.is_empty(), "{} reports", reports.len());
        ensure!(!self.log.is_empty(), "it said nothing");
        Ok(&self.log)
    }
}

/// Runs `weir replay`.
pub fn weir_replay<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Ended> {
    let mut command = Command::new(weir_binary()?);
    command.arg("replay").args(arguments).stdin(Stdio::null());
    Ok(command.output().context("cannot start weir")?.into())
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("the scratch directory's path is text")
}

fn says(log: &str, parts: &[&str]) -> Result<()> {
    ensure!(parts.iter().all(|part| log.contains(part)), "it should say {parts:?}: {log}");
    Ok(())
}

pub fn several_files_are_one_measurement() -> Result<()> {
    let scratch = Scratch::new()?;
    let [one, two] = ["one.pcap", "two.pcap"].map(|name| scratch.file(name));
    let mut sent = capture(&one, Plan::default())?.sent();
    sent.add(capture(&two, Plan { seed: 2, ..Plan::default() })?.sent());
    let reports = weir_replay(["--json", "--window", "all", text(&one), text(&two)])?.reports(DONE)?;
    ensure!(reports.len() == 1, "{} reports", reports.len());
    ensure!(tally(&reports[0]["totals"])? == sent, "{} of {sent:?}", reports[0]["totals"]);
    ensure!(reports[0]["interfaces"][0]["name"] == "replay", "{}", reports[0]["interfaces"]);
    // Both are of the same time.
    let reports = weir_replay(["--json", "--window", "2s", text(&one), text(&two)])?.reports(DONE)?;
    ensure!(reports.len() == 5, "{} reports", reports.len());
    Ok(())
}

pub fn windows_are_as_long_as_told() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    let oracle = capture(&file, Plan::default())?;
    for (window, count) in [("all", 1), ("10s", 1), ("5s", 2), ("1s", 10), ("500ms", 20), ("1m", 1)] {
        let ended = weir_replay(["--json", "--window", window, text(&file)])?;
        let reports = ended.reports(DONE)?;
        ensure!(reports.len() == count, "{} reports of {window}", reports.len());
        ensure!(ended.log.is_empty(), "{}", ended.log);
        if let Err(deviations) = oracle.check_reports(&reports) {
            anyhow::bail!("{window}: {}", deviations.join("\n"));
        }
    }
    ensure!(weir_replay(["--json", text(&file)])?.reports(DONE)?.len() == 1, "one report of the whole file");
    for window in ["garbage", "0s", "-5s", "10", "5 parsecs", ""] {
        let ended = weir_replay(["--json", &format!("--window={window}"), text(&file)])?;
        says(ended.refusal(USAGE)?, &["--window"]).with_context(|| format!("window {window:?}"))?;
    }
    Ok(())
}

pub fn a_missing_file_is_a_mistake_before_anything_is_read() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    capture(&file, Plan::default())?;
    let missing = scratch.file("missing.pcap");
    let ended = weir_replay(["--json", text(&file), text(&missing)])?;
    says(ended.refusal(USAGE)?, &[text(&missing), "No such file"])?;
    let config = weir_replay(["--json", "--config", text(&missing), text(&file)])?;
    says(config.refusal(USAGE)?, &[text(&missing)])?;
    says(weir_replay(["--json"])?.refusal(USAGE)?, &["<FILE>"])
}

pub fn a_broken_capture_is_reported_as_far_as_it_goes() -> Result<()> {
    let scratch = Scratch::new()?;
    let [whole, cut, nothing] = ["whole.pcap", "cut.pcap", "nothing"].map(|name| scratch.file(name));
    let sent = capture(&whole, Plan::default())?.sent();
    let mut bytes = fs::read(&whole)?;
    bytes.truncate(bytes.len() - 5);
    fs::write(&cut, bytes)?;
    fs::write(&nothing, "")?;
    let ended = weir_replay(["--json", "--window", "all", text(&cut)])?;
    let reports = ended.reports(BROKEN)?;
    let read = tally(&reports[0]["totals"])?;
    ensure!(read.packets == sent.packets - 1, "{read:?} of {sent:?}");
    says(&ended.log, &[text(&cut), "after 9999 packets", "at byte", "ends inside"])?;

    // The following captures are still read.
    let files = [&cut, &nothing, &whole].map(|path| text(path));
    let ended = weir_replay(["--json", "--window", "all"].iter().chain(&files))?;
    let reports = ended.reports(BROKEN)?;
    ensure!(tally(&reports[0]["totals"])?.packets == 2 * sent.packets - 1, "{}", reports[0]["totals"]);
    says(&ended.log, &[text(&cut), text(&nothing), "empty"])?;
    ensure!(ended.log.lines().count() == 2, "{}", ended.log);
    Ok(())
}

pub fn a_file_that_is_no_capture_is_named() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"Dear reader, neither is this.\n")?;
    for (name, content, parts) in [
        ("letter.txt", b"Dear reader, this is not a capture.\n".to_vec(), &["not a capture", "begins with"][..]),
        ("letter.txt.gz", gzip.finish()?, &["not a capture", "begins with"]),
        ("whole.pcap.xz", b"\xfd7zXZ\0\0\x04".to_vec(), &["xz-compressed", "decompress it first"]),
        ("empty.pcap", Vec::new(), &["empty"]),
        ("one-byte", vec![0xa1], &["one-byte"]),
    ] {
        let file = scratch.file(name);
        fs::write(&file, content)?;
        let ended = weir_replay(["--json", text(&file)])?;
        says(ended.refusal(BROKEN)?, &[&[text(&file)], parts].concat())?;
        ensure!(ended.log.lines().count() == 1, "{}", ended.log);
    }
    // A directory exists, but cannot be read as a capture.
    says(weir_replay(["--json", text(scratch.path())])?.refusal(BROKEN)?, &[text(scratch.path())])
}

pub fn packed_captures_and_standard_input_are_read() -> Result<()> {
    let scratch = Scratch::new()?;
    let [plain, gzipped, zstandard, cut] = ["plain", "gzipped", "zstandard", "cut"].map(|name| scratch.file(name));
    let sent = capture(&plain, Plan::default())?.sent();
    let bytes = fs::read(&plain)?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&bytes)?;
    let gzip = gzip.finish()?;
    fs::write(&gzipped, &gzip)?;
    fs::write(&cut, &gzip[..gzip.len() / 2])?;
    fs::write(&zstandard, zstd::encode_all(&bytes[..], 0)?)?;
    let packets = |ended: &Ended, code| -> Result<u64> { Ok(tally(&ended.reports(code)?[0]["totals"])?.packets) };
    for file in [&gzipped, &zstandard] {
        let ended = weir_replay(["--json", "--window", "all", text(file)])?;
        ensure!(packets(&ended, DONE)? == sent.packets && ended.log.is_empty(), "{}", ended.log);
        // The same over standard input, alone and together with a file.
        for beside in [&[][..], &[text(&plain)]] {
            let arguments = [&["--json", "--window", "all", "-"], beside].concat();
            let ended = weir_replay_from(file, arguments)?;
            let times = 1 + beside.len() as u64;
            ensure!(packets(&ended, DONE)? == times * sent.packets && ended.log.is_empty(), "{}", ended.log);
        }
    }
    let ended = weir_replay(["--json", "--window", "all", text(&cut)])?;
    let read = packets(&ended, BROKEN)?;
    ensure!((sent.packets / 3..sent.packets).contains(&read), "{read} of {} packets", sent.packets);
    says(&ended.log, &[text(&cut), &format!("after {read} packets"), "the gzip data ends too early"])?;
    let nothing = weir_replay(["--json", "-"])?;
    says(nothing.refusal(BROKEN)?, &["standard input: the file is empty"])?;
    says(weir_replay_from(&plain, ["-", "-"])?.refusal(USAGE)?, &["only once"])
}

/// Runs `weir replay` with a file as its standard input.
fn weir_replay_from<A: AsRef<OsStr>>(input: &Path, arguments: impl IntoIterator<Item = A>) -> Result<Ended> {
    let mut command = Command::new(weir_binary()?);
    command.arg("replay").args(arguments).stdin(File::open(input)?);
    Ok(command.output().context("cannot start weir")?.into())
}

pub fn the_version_names_the_features_and_the_object() -> Result<()> {
    let version = |arguments: &[&str]| -> Result<Ended> {
        Ok(Command::new(weir_binary()?).args(arguments).stdin(Stdio::null()).output()?.into())
    };
    let short = version(&["--version"])?;
    ensure!(
        short.code == Some(DONE) && short.out.starts_with(b"weir ") && short.out.ends_with(b"\n"),
        "{:?}",
        short.out
    );
    ensure!(version(&["-V"])?.out == short.out);
    let long = String::from_utf8(version(&["--version", "--verbose"])?.out)?;
    let digits = long.lines().find_map(|line| line.strip_prefix("eBPF object: SHA-256 ")).context("no hash")?;
    ensure!(digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{long}");
    ensure!(long.as_bytes().starts_with(&short.out) && long.contains("\nfeatures: "), "{long}");
    says(version(&["--verbose"])?.refusal(USAGE)?, &["--version"])
}

pub fn a_closed_output_is_no_error() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    capture(&file, Plan::default())?;
    for format in [&["--json"][..], &[]] {
        let mut command = Command::new(weir_binary()?);
        // Far more than a pipe holds.
        command.args(["replay", "--window", "50ms"]).args(format).arg(&file).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::with_capacity(64, child.stdout.take().context("piped")?).read_line(&mut line)?;
        ensure!(!line.is_empty(), "no first line");
        let mut log = String::new();
        child.stderr.take().context("piped")?.read_to_string(&mut log)?;
        let status = child.wait()?;
        ensure!(status.code() == Some(DONE) && log.is_empty(), "{format:?}: {status}: {log}");
    }
    Ok(())
}

pub fn tables_are_for_people() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    capture(&file, Plan::default())?;
    for (arguments, part) in [(&[][..], "TRUST   kept 100.0 %"), (&["--full"], "TOP SOURCES BY BYTES")] {
        let ended = weir_replay(arguments.iter().copied().chain([text(&file)]))?;
        ensure!(ended.code == Some(DONE) && ended.log.is_empty(), "{:?}: {}", ended.code, ended.log);
        let tables = String::from_utf8(ended.out)?;
        ensure!(tables.contains(part) && tables.lines().count() > 10, "{tables}");
        ensure!(!tables.contains('\u{1b}'), "colours without a terminal: {tables}");
    }
    Ok(())
}

pub fn the_progress_is_for_terminals() -> Result<()> {
    let scratch = Scratch::new()?;
    let [file, out] = ["traffic.pcap", "out"].map(|name| scratch.file(name));
    // The line changes once in 16,384 packets.
    capture(&file, Plan { packets: 100_000, ..Plan::default() })?;
    let weir = weir_binary()?;
    let line = format!("'{}' replay --json --window all '{}' > '{}'", text(&weir), text(&file), text(&out));
    let terminal = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output()?;
    let shown = String::from_utf8_lossy(&terminal.stdout).into_owned();
    ensure!(terminal.status.success(), "{shown}");
    ensure!(shown.contains(" left") && shown.contains("/s"), "no progress: {shown:?}");
    ensure!(reports(&fs::read(&out)?)?.len() == 1, "the progress is in the reports");
    let ended = weir_replay(["--json", "--window", "all", text(&file)])?;
    ensure!(ended.reports(DONE)?.len() == 1 && ended.log.is_empty(), "{}", ended.log);
    Ok(())
}

pub fn without_privilege_only_the_kernel_is_refused() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    capture(&file, Plan::default())?;
    // The folder is one that other users cannot enter.
    let weir = scratch.file("weir");
    fs::copy(weir_binary()?, &weir)?;
    for (path, mode) in [(scratch.path(), 0o755), (&weir, 0o755), (&file, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let as_nobody = |arguments: &[&str]| -> Result<Ended> {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        command.arg("--inh-caps=-all").arg(&weir).arg("replay").args(arguments).arg(&file);
        Ok(command.stdin(Stdio::null()).output().context("cannot start setpriv")?.into())
    };
    ensure!(as_nobody(&["--json", "--window", "all"])?.reports(DONE)?.len() == 1);
    let ended = as_nobody(&["--json", "--window", "all", "--kernel"])?;
    says(ended.refusal(IMPOSSIBLE)?, &["not permitted", "root"])?;
    ensure!(ended.log.lines().count() == 1, "{}", ended.log);
    Ok(())
}

/// The path of a program in the search path; `None` if it is not installed.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}
