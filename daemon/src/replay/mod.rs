//! Replay: the same measurement over capture files, offline, with time from the capture.

pub mod capture;
mod datapath;
mod kernel;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use thiserror::Error;
use weir_common::control::Feeds;
use weir_sketch::{MergeError, hash::Key};

use self::{
    capture::{Broken, Capture},
    datapath::Datapath,
    kernel::KernelDatapath,
};
use crate::{
    clock,
    closing::{Closing, Times},
    config::{Config, KeyError},
    datapath::{
        Kernel, KernelError, Plan,
        cpu::{PinError, online_cpus, pin},
    },
    keys::Keys,
    measure::{
        interface::{Counts, MeasuredInterface},
        order::Closed,
        seen::{self, Rotation},
        shard::Shard,
        userspace::UserspaceCollector,
        window::Span,
    },
    memory::Memory,
    observer::Observer,
    report::Report,
};

/// How the time of a capture is divided into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// One report for everything.
    All,
    /// One report for each interval in which there are packets.
    Every(Duration),
}

/// What to replay, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The captures, in order.
    pub files: Vec<PathBuf>,
    /// How their time is divided into windows.
    pub windows: Windows,
    /// Through the kernel's program instead of its counterpart in userspace.
    pub kernel: bool,
    /// Fixes the hash keys and the run's number.
    pub seed: Option<u64>,
    /// Whether to show a progress bar on standard error.
    pub progress: bool,
}

/// Why a replay could not be done.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// A report could not be written.
    #[error("cannot write the report")]
    Write(#[from] io::Error),
    /// The kernel side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The CPU to stay on.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The hash key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Shards that cannot be merged.
    #[error("cannot merge the shards of a window: this is a defect of weir, please report it")]
    Merge(#[from] MergeError),
}

/// Replays captures and hands the report of each window to `deliver`. Returns what was broken in the captures.
///
/// # Errors
///
/// What makes the replay impossible. A broken capture does not: what could be read of it is reported.
pub fn replay(
    config: &Config,
    options: &Options,
    deliver: &mut dyn FnMut(&Report) -> io::Result<()>,
) -> Result<Vec<Broken>, ReplayError> {
    let key = match options.seed {
        Some(seed) => Key([seed, !seed]).derive("seed"),
        None => config.hash_key.key()?,
    };
    // The first packet will tell the day.
    let mut keys = Keys::new(key, key.derive("coins"), Timestamp::UNIX_EPOCH);
    let [first, spare] = [(), ()].map(|()| keys.shard(&config.estimates));
    let seen = Arc::new(seen::filter(&config.seen_flows, keys.id()));
    let plan = Plan { interfaces: 1, ..Plan::new(config, key) };
    let run = Run {
        windows: options.windows,
        interface: interface_name(&options.files),
        open: None,
        spare: Some(spare),
        closing: Closing {
            key_id: keys.id(),
            keys,
            seen: seen.clone(),
            rotation: Rotation::new(config.seen_flows.generation, None),
            interfaces: 1,
            top: config.report.top,
            observer: Observer::of_replay(&config.observer, key.derive("run").id()),
            memory_bytes: Memory::plan(config, 1, true).resident(),
            cpu_time: clock::cpu_time(),
        },
        deliver,
    };
    if options.kernel {
        let cpu = online_cpus()?.first().copied().unwrap_or(0);
        pin(cpu)?;
        let mut kernel = Kernel::load(&plan)?;
        kernel.load_replay()?;
        let ring = kernel.ring(cpu)?;
        run.all(&options.files, options.progress, KernelDatapath::new(kernel.parts()?, ring, seen, first)?)
    } else {
        run.all(&options.files, options.progress, UserspaceCollector::new(&plan, seen, first))
    }
}

/// One file gives the interface its name. Several files are one interface, too.
fn interface_name(files: &[PathBuf]) -> String {
    match files {
        [file] => file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned(),
        _ => "replay".to_owned(),
    }
}

struct Run<'a> {
    windows: Windows,
    interface: String,
    open: Option<Open>,
    spare: Option<Box<Shard>>,
    closing: Closing,
    deliver: &'a mut dyn FnMut(&Report) -> io::Result<()>,
}

/// The open window, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
struct Open {
    start_ns: u64,
    /// The first nanosecond after it; for one window over everything, after the latest packet so far.
    end_ns: u64,
}

impl Run<'_> {
    fn all(
        mut self,
        files: &[PathBuf],
        progress: bool,
        mut datapath: impl Datapath,
    ) -> Result<Vec<Broken>, ReplayError> {
        let bar = progress_bar(files, progress);
        let mut broken = Vec::new();
        let mut done = 0;
        for file in files {
            if let Err(error) = self.file(file, &mut datapath, |read| bar.set_position(done + read))? {
                broken.push(error);
            }
            done += size_of_file(file);
        }
        self.close(None, &mut datapath)?;
        bar.finish_and_clear();
        Ok(broken)
    }

    fn file(
        &mut self,
        file: &Path,
        datapath: &mut impl Datapath,
        progress: impl Fn(u64),
    ) -> Result<Result<(), Broken>, ReplayError> {
        /// Progress for every single packet would cost more than the packet.
        const PACKETS_PER_TICK: u64 = 1 << 14;
        let mut capture = match Capture::open(file) {
            Ok(capture) => capture,
            Err(broken) => return Ok(Err(broken)),
        };
        for count in 1_u64.. {
            match capture.next_packet() {
                Ok(Some(packet)) => {
                    self.time(packet.time_ns, datapath)?;
                    datapath.measure(&packet)?;
                }
                Ok(None) => break,
                Err(broken) => return Ok(Err(broken)),
            }
            if count.is_multiple_of(PACKETS_PER_TICK) {
                progress(capture.bytes_read());
            }
        }
        Ok(Ok(()))
    }

    /// Advances the time to that of a packet: closes the open window if it is over, and opens the packet's window.
    ///
    /// Captures are not always sorted: a packet from up to one interval before the open window is counted in it. An
    /// older one begins a new window: it is from another capture, or the clock was set back.
    fn time(&mut self, time_ns: u64, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let interval_ns = match (self.windows, &mut self.open) {
            (Windows::All, Some(open)) => {
                open.start_ns = open.start_ns.min(time_ns);
                open.end_ns = open.end_ns.max(time_ns.saturating_add(1));
                return Ok(());
            }
            (Windows::All, None) => 1,
            (Windows::Every(interval), _) => u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1),
        };
        let start_ns = time_ns - time_ns % interval_ns;
        let next = Open { start_ns, end_ns: start_ns.saturating_add(interval_ns) };
        match self.open {
            None => self.begin(next, datapath),
            Some(open) if time_ns < open.end_ns && time_ns >= open.start_ns.saturating_sub(interval_ns) => Ok(()),
            Some(_) => self.close(Some(next), datapath),
        }
    }

    /// Opens the first window. Its day is known only now, so a window of nothing is closed: the datapath gets a shard
    /// with the key of that day.
    fn begin(&mut self, first: Open, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let Closing { keys, seen, .. } = &mut self.closing;
        keys.restart(time(first.start_ns), seen);
        let mut spare = self.spare.take().expect("the shard comes back at the end of each call");
        keys.equip(&mut spare);
        self.spare = Some(datapath.close(spare)?.shard);
        self.open = Some(first);
        Ok(())
    }

    /// Closes and reports the open window, if there is one, and opens the next, if there is one.
    fn close(&mut self, next: Option<Open>, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let Some(open) = std::mem::replace(&mut self.open, next) else { return Ok(()) };
        let mut spare = self.spare.take().expect("the shard comes back at the end of each call");
        self.closing.advance(time(next.map_or(open.end_ns, |next| next.start_ns)));
        self.closing.keys.equip(&mut spare);
        let mut window = [datapath.close(spare)?];
        let times = Times {
            span: span(open),
            begin: Duration::from_nanos(open.start_ns),
            end: Duration::from_nanos(open.end_ns),
        };
        let capture = MeasuredInterface {
            slot: 0,
            name: self.interface.clone(),
            mode: "replay",
            counts: Counts::Packets,
            direction: None,
            feeds: Feeds::All,
            coverage: None,
        };
        let report = self.closing.report(&mut window, times.span, None, |_| vec![capture], Vec::new())?;
        self.closing.rotate(times);
        let [Closed { mut shard, .. }] = window;
        shard.clear();
        self.spare = Some(shard);
        Ok((self.deliver)(&report)?)
    }
}

fn time(ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(ns)).unwrap_or(Timestamp::MAX)
}

fn span(open: Open) -> Span {
    Span {
        start: time(open.start_ns),
        end: time(open.end_ns),
        length: Duration::from_nanos(open.end_ns.saturating_sub(open.start_ns)),
    }
}

fn progress_bar(files: &[PathBuf], wanted: bool) -> ProgressBar {
    if !wanted {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} left")
        .expect("the template is constant, and valid");
    ProgressBar::new(files.iter().map(|file| size_of_file(file)).sum()).with_style(style)
}

fn size_of_file(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// Writes a report as one line of JSON.
///
/// # Errors
///
/// The output cannot be written to.
pub fn write_json(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    out.write_all(b"\n")
}
