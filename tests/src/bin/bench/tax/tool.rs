//! The tools: how each is started on the router, and what it reports at the end.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account, clock,
    daemon::{Daemon, weir_binary},
    foreign::{Does, Foreign},
    netns::Namespace,
    route::WAN,
    scratch::Scratch,
};

use super::process;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A tool, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool<'a> {
    /// Nothing is attached.
    Nothing,
    /// A program that does nothing, in the driver (XDP).
    EmptyXdp,
    /// An empty program at the tc hook (TCX).
    EmptyTcx,
    /// weir with its defaults, in this mode of the configuration.
    Weir(&'static str),
    /// Another build of weir, in this mode.
    Other(&'a Path, &'static str),
    /// Debian's `softflowd`, with its defaults, exporting `NetFlow` 5.
    Softflowd,
    /// Debian's `pmacctd` with its print plugin by flow, and larger buffers than its defaults.
    Pmacctd,
}

/// A tool that runs.
pub enum Running {
    /// No tool is attached.
    Nothing,
    /// The program that does nothing.
    Empty { _attached: Foreign },
    /// A running weir.
    Weir(Daemon),
    /// Another tool.
    Peer(Peer),
}

/// The packets that a tool reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reported {
    /// Packets that it saw; weir only.
    pub seen: Option<Tally>,
    /// Packets in its flows.
    pub packets: u64,
}

impl<'a> Tool<'a> {
    /// Returns the name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Nothing => "no tool".to_owned(),
            Self::EmptyXdp => "empty program, native XDP".to_owned(),
            Self::EmptyTcx => "empty program, TCX".to_owned(),
            Self::Weir(mode) => format!("weir, {}", attached(mode)),
            Self::Other(_, mode) => format!("the other weir, {}", attached(mode)),
            Self::Softflowd => "softflowd".to_owned(),
            Self::Pmacctd => "pmacctd".to_owned(),
        }
    }

    /// Returns true if it is installed.
    pub fn is_there(self) -> bool {
        let command = match self {
            Self::Nothing | Self::EmptyXdp | Self::EmptyTcx | Self::Weir(_) | Self::Other(..) => return true,
            Self::Softflowd => "softflowd",
            Self::Pmacctd => "pmacctd",
        };
        let found = Command::new(command).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok()
    }

    /// Starts it on the router's interface; it measures when this returns.
    ///
    /// # Errors
    ///
    /// The tool does not start; the error has its output.
    pub fn start(self, router: &Namespace) -> Result<Running> {
        Ok(match self {
            Self::Nothing => Running::Nothing,
            Self::EmptyXdp => Running::Empty { _attached: Foreign::attach(router, WAN, Does::Pass)? },
            Self::EmptyTcx => Running::Empty { _attached: Foreign::attach_tcx(router, WAN)? },
            Self::Weir(mode) => Running::Weir(weir(router, mode, "")?),
            Self::Other(program, mode) => Running::Weir(start_weir(program, router, mode, "")?),
            Self::Softflowd => Running::Peer(Peer::softflowd(router)?),
            Self::Pmacctd => Running::Peer(Peer::pmacctd(router)?),
        })
    }
}

/// How weir is attached in a mode of the configuration, for the table.
fn attached(mode: &str) -> String {
    match mode {
        "auto" => "auto: TCX".to_owned(),
        "afpacket" => "packet socket".to_owned(),
        mode => format!("{mode} XDP"),
    }
}

/// Starts weir with its defaults, except for a mode and further settings.
///
/// # Errors
///
/// The tool does not start; the error has its output.
pub fn weir(router: &Namespace, mode: &str, settings: &str) -> Result<Daemon> {
    start_weir(&weir_binary()?, router, mode, settings)
}

fn start_weir(program: &Path, router: &Namespace, mode: &str, settings: &str) -> Result<Daemon> {
    let mut daemon = Daemon::start_program(program, Some(router), |reports| {
        let sinks = format!("sinks: [{{type: file, path: {}}}]", reports.display());
        format!("interfaces: [{{name: {WAN}, mode: {mode}}}]\n{settings}{sinks}\n")
    })?;
    daemon.wait_for_line("measuring every packet", TIMEOUT)?;
    Ok(daemon)
}

impl Running {
    /// Returns the process id.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Nothing | Self::Empty { .. } => None,
            Self::Weir(daemon) => Some(daemon.pid()),
            Self::Peer(peer) => Some(peer.child.id()),
        }
    }

    /// Stops it, and returns what it reported.
    ///
    /// # Errors
    ///
    /// It failed, or weir's reports are not as they have to be.
    pub fn stop(self) -> Result<Reported> {
        match self {
            Self::Nothing | Self::Empty { .. } => Ok(Reported::default()),
            Self::Weir(mut daemon) => {
                let account = account(&stop_weir(&mut daemon)?)?;
                Ok(Reported { seen: Some(account.seen), packets: account.attributed.packets })
            }
            Self::Peer(peer) => peer.stop(),
        }
    }
}

/// Stops weir and returns its reports.
///
/// # Errors
///
/// It failed.
pub fn stop_weir(daemon: &mut Daemon) -> Result<Vec<Value>> {
    let status = daemon.stop(TIMEOUT)?;
    ensure!(status.success(), "weir ended with {status}\n{}", daemon.log()?);
    daemon.reports()
}

/// The ledgers of several windows, added up.
#[derive(Clone, Copy, Debug, Default)]
pub struct LedgerSums {
    /// All that weir saw.
    pub seen: Tally,
    /// The packets in the flows of the report.
    pub attributed: Tally,
    /// The packets that it saw and lost.
    pub lost: Tally,
}

/// Adds up the ledgers of reports, each of which has to balance.
///
/// # Errors
///
/// One does not.
pub fn account(reports: &[Value]) -> Result<LedgerSums> {
    let ledger = account::add_up(reports)?;
    Ok(LedgerSums { seen: ledger.seen, attributed: ledger.attributed, lost: ledger.all_lost() })
}

/// Another running tool; killed on drop.
pub struct Peer {
    tool: Tool<'static>,
    child: Child,
    scratch: Scratch,
    /// The socket that flows are exported to. It is bound so that the kernel sends no errors back, and it is never
    /// read.
    _export: Option<UdpSocket>,
}

const CONTROL: &str = "control";
const FLOWS: &str = "flows.csv";
const LOG: &str = "log";

impl Peer {
    fn softflowd(router: &Namespace) -> Result<Self> {
        let export = router.enter(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))??;
        let scratch = Scratch::new()?;
        let mut command = router.command("softflowd");
        command.args(["-d", "-i", WAN, "-v", "5", "-n", &export.local_addr()?.to_string()]);
        command.arg("-p").arg(scratch.file("pid")).arg("-c").arg(scratch.file(CONTROL));
        let mut peer = Self::start(Tool::Softflowd, command, scratch, Some(export))?;
        peer.wait_for_line("Exporting flows")?;
        Ok(peer)
    }

    fn pmacctd(router: &Namespace) -> Result<Self> {
        let scratch = Scratch::new()?;
        let config = scratch.file("pmacctd.conf");
        let text = format!(
            "daemonize: false\npcap_interface: {WAN}\nplugins: print\n\
             aggregate: src_host, dst_host, src_port, dst_port, proto\n\
             print_output: csv\nprint_output_file: {}\nprint_output_file_append: true\n\
             plugin_buffer_size: 1048576\nplugin_pipe_size: 33554432\n",
            scratch.file(FLOWS).display()
        );
        fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = router.command("pmacctd");
        command.arg("-f").arg(config);
        let mut peer = Self::start(Tool::Pmacctd, command, scratch, None)?;
        peer.wait_for_line("cache entries=")?;
        Ok(peer)
    }

    fn start(tool: Tool<'static>, mut command: Command, scratch: Scratch, export: Option<UdpSocket>) -> Result<Self> {
        let log = File::create(scratch.file(LOG)).context("cannot write a log")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(scratch.path());
        let child = command.spawn().with_context(|| format!("cannot start {tool:?}"))?;
        Ok(Self { tool, child, scratch, _export: export })
    }

    fn wait_for_line(&mut self, part: &str) -> Result<()> {
        let path = self.scratch.file(LOG);
        clock::wait_for(&format!("\"{part}\" of {:?}", self.tool), TIMEOUT, || {
            let log = fs::read_to_string(&path)?;
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "{:?} has ended:\n{log}", self.tool);
            Ok(log.contains(part).then_some(()))
        })
    }

    fn stop(mut self) -> Result<Reported> {
        let packets = match self.tool {
            // It is asked while it runs, and then killed, because exporting its flows could take minutes.
            Tool::Softflowd => self.statistics()?,
            _ => {
                kill_process(Pid::from_child(&self.child), Signal::INT)?;
                clock::wait_for(&format!("the end of {:?}", self.tool), TIMEOUT, || Ok(self.child.try_wait()?))?;
                self.printed()?
            }
        };
        Ok(Reported { seen: None, packets })
    }

    /// The number of packets that `softflowd` has processed, by its own statistics.
    fn statistics(&self) -> Result<u64> {
        let output = Command::new("softflowctl").arg("-c").arg(self.scratch.file(CONTROL)).arg("statistics").output();
        let text = String::from_utf8_lossy(&output.context("cannot run softflowctl")?.stdout).into_owned();
        let number = text.lines().find_map(|line| line.strip_prefix("Packets processed: "));
        number.and_then(|number| number.trim().parse().ok()).with_context(|| format!("softflowctl: {text}"))
    }

    /// The packets of all flows that `pmacctd` has printed; each output begins with a line of titles.
    fn printed(&self) -> Result<u64> {
        let path = self.scratch.file(FLOWS);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut column = None;
        let mut packets = 0;
        for line in text.lines() {
            let cells: Vec<_> = line.split(',').collect();
            if let Some(titled) = cells.iter().position(|cell| *cell == "PACKETS") {
                column = Some(titled);
            } else {
                let cell = column.and_then(|column| cells.get(column));
                packets +=
                    cell.and_then(|cell| cell.parse::<u64>().ok()).with_context(|| format!("pmacctd: {line}"))?;
            }
        }
        Ok(packets)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        process::kill_below(self.child.id());
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
