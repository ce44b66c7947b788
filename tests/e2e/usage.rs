//! Messages for users: how to correct each mistake, and how much memory a configuration needs.

use std::{
    ffi::OsString,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_datapath::probe_tcx;
use weir_tests::{
    account::Loss,
    daemon::{Daemon, Signal, weir_binary},
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{Ended, TIMEOUT, Watch, check_accounts, modes, number, weir, weir_with};

tests![
    without_privilege_it_says_what_it_needs,
    the_capabilities_of_the_unit_are_enough,
    without_an_interface_it_says_how_to_name_one,
    a_mistake_in_the_configuration_has_a_place_and_a_remedy,
    a_secret_that_every_user_may_read_is_refused,
    check_refuses_each_key_file_that_run_refuses,
    check_prints_what_is_in_force_and_its_memory,
    reports_never_go_into_a_file_of_weirs_own,
    check_reports_the_same_problems_of_sinks_as_the_start,
];

/// A user without any rights.
pub const NOBODY: u32 = 65_534;

/// A copy of the binary and a configuration that all users may read.
pub struct Public {
    scratch: Scratch,
}

impl Public {
    /// Creates the folder and the configuration.
    pub fn new(config: &str) -> Result<Self> {
        let scratch = Scratch::new()?;
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
        scratch.program(&weir_binary()?, "weir", 0o755)?;
        fs::write(scratch.file("weir.yaml"), config)?;
        fs::set_permissions(scratch.file("weir.yaml"), fs::Permissions::from_mode(0o644))?;
        Ok(Self { scratch })
    }

    /// The path of the binary.
    pub fn binary(&self) -> PathBuf {
        self.scratch.file("weir")
    }

    /// The path of the configuration.
    pub fn config(&self) -> PathBuf {
        self.scratch.file("weir.yaml")
    }

    /// `weir run`, as words of a command line.
    fn run(&self) -> [OsString; 4] {
        let [binary, config] = ["weir", "weir.yaml"].map(|name| self.scratch.file(name).into_os_string());
        [binary, "run".into(), "--config".into(), config]
    }
}

fn without_privilege_it_says_what_it_needs() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let public = Public::new(&format!("interfaces: [{}]\n", QuietPair::OBSERVER_INTERFACE))?;
    let [binary, arguments @ ..] = public.run();
    let mut command = Command::new(binary);
    command.args(arguments).uid(NOBODY).gid(NOBODY);
    let ended = pair.observer.enter(|| Ended::of(&mut command))??;
    ended.check(3, &["not permitted to load eBPF programs: run as root, or with the capabilities CAP_BPF"])?;
    ensure!(ended.err.lines().count() == 1, "one sentence is enough:\n{}", ended.err);
    Ok(())
}

fn the_capabilities_of_the_unit_are_enough() -> Result<()> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/weir.service");
    let unit = fs::read_to_string(unit)?;
    let granted = unit.lines().find_map(|line| line.strip_prefix("AmbientCapabilities="));
    let granted = granted.context("the unit grants no capabilities")?.to_lowercase();
    let names: Vec<_> = granted.split(' ').map(|name| name.replace("cap_", "+")).collect();
    let capabilities = format!("-all,{}", names.join(","));

    let pair = Lab::quiet_pair()?;
    let interface = QuietPair::OBSERVER_INTERFACE;
    let public = Public::new(&format!(
        "interfaces: [{{name: {interface}, mode: native, direction: both}}]\nreport: {{interval: 1s}}\n"
    ))?;
    let mut command = pair.observer.command("timeout");
    // With `--foreground`, `timeout` signals weir only once. Otherwise it signals weir and then its process group.
    command.args(["--foreground", "--preserve-status", "--signal=TERM", "5", "setpriv", "--clear-groups"]);
    command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
    for set in ["inh-caps", "ambient-caps", "bounding-set"] {
        command.arg(format!("--{set}={capabilities}"));
    }
    let ended = Ended::of(command.args(public.run()))?;
    ended.check(0, &["measuring every packet"])?;
    let reports = ended.out.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    check_accounts(&reports, Loss::None)?;
    ensure!(!reports.is_empty(), "it reported nothing");
    let modes = modes(interface, &reports);
    let sent = if matches!(probe_tcx(), Ok(true)) { "tcx" } else { "tc" };
    ensure!(modes.chunks(2).all(|modes| *modes == ["xdp-native", sent]), "with {granted}: {modes:?}");
    Ok(())
}

fn without_an_interface_it_says_how_to_name_one() -> Result<()> {
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, "interfaces: []\n")?;
    let ended = weir(&["run", "--config", &config.display().to_string()])?;
    ended.check(2, &["no interface to measure", "--interface eth0", "interfaces:"])
}

fn a_mistake_in_the_configuration_has_a_place_and_a_remedy() -> Result<()> {
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, "interfaces: [eth0]\nreport:\n  intervall: 10s\n  top: 1000\n")?;
    let path = config.display().to_string();
    for command in ["run", "check"] {
        let ended = weir(&[command, "--config", &path])?;
        let typo = format!("{path}:3:3: ");
        let limit = format!("{path}:4:8: ");
        ended.check(2, &[&typo, "intervall", "did you mean", "interval", &limit, "1000"])?;
    }
    let missing = scratch.file("missing.yaml").display().to_string();
    weir(&["check", "--config", &missing])?.check(2, &[&missing, "there is no such file", "name one that exists"])
}

fn a_secret_that_every_user_may_read_is_refused() -> Result<()> {
    const KEY: &str = "8f3c1a7be02d4965b1fe7730c4a9d258";
    let scratch = Scratch::new()?;
    let [inline, naming, key] = ["inline.yaml", "naming.yaml", "hash.key"].map(|name| scratch.file(name));
    fs::write(&inline, format!("interfaces: [lo]\nhash_key: \"{KEY}\"\n"))?;
    fs::write(&naming, format!("interfaces: [lo]\nhash_key: {{file: {}}}\n", key.display()))?;
    fs::write(&key, KEY)?;
    for (config, secret) in [(&inline, &inline), (&naming, &key)] {
        let (path, way_out) = (config.display().to_string(), format!("run `chmod o= {}`", secret.display()));
        for (mode, code) in [(0o644, 2), (0o640, 0)] {
            fs::set_permissions(secret, fs::Permissions::from_mode(mode))?;
            let says: &[&str] = if code == 0 { &[] } else { &["(mode 0644)", &way_out] };
            weir(&["check", "--config", &path])?.check(code, says)?;
        }
        fs::set_permissions(secret, fs::Permissions::from_mode(0o604))?;
        weir(&["run", "--config", &path])?.check(2, &["(mode 0604)", &way_out])?;
    }
    Ok(())
}

fn check_refuses_each_key_file_that_run_refuses() -> Result<()> {
    const KEY: &str = "8f3c1a7be02d4965b1fe7730c4a9d258";
    let scratch = Scratch::new()?;
    let [config, key, folder, pipe] = ["weir.yaml", "hash.key", "folder", "pipe"].map(|name| scratch.file(name));
    fs::create_dir(&folder)?;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)?;
    let contents = [
        String::new(),
        KEY[1..].to_owned(),
        format!("{KEY}0"),
        format!("0x{KEY}"),
        "correct horse battery staple".to_owned(),
        "0".repeat(32),
        "deadbeef".repeat(4),
        format!("{KEY}\n{KEY}"),
        format!("{KEY}\n2026-13-01 {KEY}"),
        format!("{KEY}\n{}", "\n".repeat(8_192)),
    ];
    let content = |text: &str| -> Result<PathBuf> {
        fs::write(&key, text)?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        Ok(key.clone())
    };
    let refused = |file: &Path| -> Result<()> {
        fs::write(&config, format!("interfaces: [lo]\nhash_key: {{file: {}}}\n", file.display()))?;
        let [run, check] = ["run", "check"].map(|command| weir(&[command, "--config", &config.display().to_string()]));
        let (run, check) = (run?, check?);
        run.check(2, &[&file.display().to_string()])?;
        check.check(2, &[&run.err]).with_context(|| format!("{file:?}"))
    };
    for file in [&scratch.file("missing"), &folder, &pipe] {
        refused(file)?;
    }
    for text in &contents {
        refused(&content(text)?)?;
    }
    Ok(())
}

fn check_prints_what_is_in_force_and_its_memory() -> Result<()> {
    let scratch = Scratch::new()?;
    let config = scratch.file("weir.yaml");
    fs::write(&config, "report: {interval: 1s, top: 7}\nhash_key: \"8f3c1a7be02d4965b1fe7730c4a9d258\"\n")?;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o640))?;
    let ended = weir(&["check", "--config", &config.display().to_string()])?;
    ended.check(0, &[])?;
    for part in ["interval: 1s", "top: 7", "cache_flows: auto", "ring: auto"] {
        ensure!(ended.out.contains(part), "\"{part}\" is not in:\n{}", ended.out);
    }
    ensure!(!ended.out.contains("8f3c1a7b"), "the key is shown:\n{}", ended.out);

    // The memory that it prints for the defaults is what the running daemon plans.
    let empty = scratch.file("empty.yaml");
    let interface = QuietPair::OBSERVER_INTERFACE;
    fs::write(&empty, format!("interfaces: [{interface}]\nsinks: [{{type: file, path: /dev/null}}]\n"))?;
    let checked = weir(&["check", "--config", &empty.display().to_string()])?;
    checked.check(0, &[])?;
    let line = checked.out.lines().find(|line| line.trim_start().starts_with("resident, at most"));
    let said = line.with_context(|| format!("no memory in:\n{}", checked.out))?;
    let reports = Watch::start("")?.stop(Loss::None)?;
    let planned = number(&reports[0]["self"]["memory_bytes"])? as f64 / f64::from(1 << 20);
    ensure!(said.contains(&format!(" {planned:.1} MiB ")), "{planned:.1} MiB are planned, but it said:\n{said}");
    Ok(())
}

fn reports_never_go_into_a_file_of_weirs_own() -> Result<()> {
    let (pair, scratch, state) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let config = scratch.file("weir.yaml");
    fs::write(scratch.file("token"), "s3cret\n")?;
    fs::set_permissions(scratch.file("token"), fs::Permissions::from_mode(0o600))?;
    fs::hard_link(scratch.file("token"), scratch.file("second"))?;
    let program = weir_with(&[("STATE_DIRECTORY", state.path())], &scratch)?;
    for (path, what) in [
        (config.clone(), "is this configuration: name another file"),
        (scratch.file("token"), "is the file of `sinks[1].token_file`"),
        (scratch.file("second"), "is the file of `sinks[1].token_file`"),
        (state.file("last-report.lock"), "is a file of weir's state"),
        (state.file("spool/lock"), "is in the spool ("),
    ] {
        let text = format!(
            "interfaces: [{}]\nreport: {{interval: 1s}}\ncontrol: {{socket: none}}\nsinks:\n- {{type: file, path: {}}}\n\
             - {{type: http, url: \"http://127.0.0.1:9/\", token_file: {}}}\n",
            QuietPair::OBSERVER_INTERFACE,
            path.display(),
            scratch.file("token").display()
        );
        fs::write(&config, &text)?;
        for command in ["check", "run"] {
            let mut weir = pair.observer.command(program.display().to_string());
            weir.arg(command).arg("--config").arg(&config);
            Ended::of(&mut weir)?.check(2, &[&format!("{}:5:16: sinks[0].path: ", config.display()), what])?;
        }
        ensure!(fs::read_to_string(&config)? == text, "the configuration was written to");
    }
    Ok(())
}

fn check_reports_the_same_problems_of_sinks_as_the_start() -> Result<()> {
    const WAITS: &str = "eports wait until that is fixed";
    let (pair, scratch) = (Lab::quiet_pair()?, Scratch::new()?);
    let token = scratch.file("token");
    let write = |text: &[u8], mode| -> Result<()> {
        fs::write(&token, text)?;
        Ok(fs::set_permissions(&token, fs::Permissions::from_mode(mode))?)
    };
    fs::create_dir(scratch.file("folder"))?;
    let file = |name: &str| format!("{{type: file, path: {}}}", scratch.file(name).display());
    let http = format!("{{type: http, url: \"http://127.0.0.1:9/\", token_file: {}}}", token.display());
    /// A function that prepares a case.
    type Prepare<'a> = &'a dyn Fn() -> Result<()>;
    let cases: [(&str, Prepare<'_>, &str); 6] = [
        (&http, &|| Ok(()), "No such file"),
        (&http, &|| write(b"s3cret", 0o644), "chmod o="),
        (&http, &|| write(b"two\nlines", 0o600), "in one line"),
        (&http, &|| write(b"\xff\xfe", 0o600), "UTF-8"),
        (&file("folder"), &|| Ok(()), "is a folder: name a file in it"),
        (&file("missing/reports"), &|| Ok(()), "missing is missing: make it (`mkdir -p "),
    ];
    for (sink, prepare, why) in cases {
        prepare()?;
        let mut daemon = Daemon::start(Some(&pair.observer), |_| {
            format!("interfaces: [{}]\nreport: {{interval: 1s}}\nsinks: [{sink}]\n", QuietPair::OBSERVER_INTERFACE)
        })?;
        let config = daemon.directory().join("weir.yaml").display().to_string();
        weir(&["check", "--config", &config])?.check(1, &["sinks[0]: ", why, "will wait until that is fixed"])?;
        daemon.wait_for_line(WAITS, TIMEOUT)?;
        ensure!(daemon.log()?.lines().any(|line| line.contains(WAITS) && line.contains(why)), "{}", daemon.log()?);
        // A normal stop would wait for the sink first.
        daemon.signal(Signal::KILL)?;
        daemon.wait(TIMEOUT)?;
    }
    write(b"s3cret\n", 0o600)?;
    for (settings, code, says) in [
        (format!("sinks: [{http}]"), 0, ""),
        (format!("spool: {{path: /proc/x}}\nsinks: [{http}]"), 1, "spool.path: /proc is for the kernel's own files"),
        (format!("spool: {{path: {}}}\nsinks: [{http}]", token.display()), 1, "token is not a folder"),
    ] {
        let config = scratch.file("weir.yaml");
        fs::write(&config, settings)?;
        weir(&["check", "--config", &config.display().to_string()])?.check(code, &[says])?;
    }
    Ok(())
}
