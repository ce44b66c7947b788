//! Replay: the same measurement over capture files, offline, with time from the capture.

pub mod capture;
mod datapath;
mod kernel;
mod timeline;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;
use weir_common::control::Feeds;
use weir_sketch::{MergeError, hash::Key};

use self::{
    capture::{Broken, Capture},
    datapath::Datapath,
    kernel::KernelDatapath,
    timeline::{Stretch, Timeline, Turn},
};
use crate::{
    alert::Alerts,
    clock,
    closing::{Closing, Times},
    config::{Config, KeyError},
    datapath::{
        Kernel, KernelError, Plan,
        cpu::{Cpus, PinError, online_cpus, pin},
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
    names::GeoError,
    observer::Observer,
    question::{Ask, Views},
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

impl Windows {
    /// How long a window is at least, for alerts to judge it: of less than a second no rate is told.
    const fn least(self) -> Duration {
        match self {
            Self::All => Duration::from_secs(1),
            Self::Every(interval) => interval,
        }
    }
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
    /// Keys that each report tells of, as [`Ask::parse`] reads them.
    pub asks: Vec<String>,
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
    /// A question that nothing answers.
    #[error("--ask {text}: {why}")]
    Ask {
        /// The question.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A database of addresses.
    #[error(transparent)]
    Geo(#[from] GeoError),
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
    let views = Views::new(config, 1)?;
    let interface = interface_name(&options.files);
    let asks = options.asks.iter().map(|text| {
        Ask::parse(text, &views, &[&interface]).map_err(|why| ReplayError::Ask { text: text.clone(), why })
    });
    let asks = asks.collect::<Result<Vec<_>, _>>()?.concat();
    views.directory.assign(0, &interface, None);
    // The first packet will tell the day.
    let mut keys = Keys::new(key, key.derive("coins"), Timestamp::UNIX_EPOCH);
    let [first, spare] = [(), ()].map(|()| keys.shard(&config.estimates, &views));
    let seen = Arc::new(seen::filter(&config.seen_flows, keys.id()));
    // One thread measures, as on a machine with one CPU.
    let cpus = Cpus::of(1);
    let plan = Plan { interfaces: 1, ..Plan::new(config, key, &cpus) };
    let memory_bytes = Memory::plan(config, &views, &cpus, true).resident();
    let run = Run {
        timeline: Timeline::new(options.windows),
        captures: 0,
        interface,
        spare: Some(spare),
        closing: Closing {
            key_id: keys.id(),
            keys,
            seen: seen.clone(),
            rotation: Rotation::new(config.seen_flows.generation, None),
            interfaces: 1,
            views,
            asks,
            observer: Observer::of_replay(&config.observer, key.derive("run").id()),
            memory_bytes,
            cpu_time: clock::cpu_time(),
            last: None,
            alerts: Alerts::new(&config.alerts.rules, options.windows.least()),
        },
        deliver,
    };
    if options.kernel {
        let cpu = online_cpus()?.first().copied().unwrap_or(0);
        pin(cpu)?;
        let mut kernel = Kernel::for_replay(&plan)?;
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
    timeline: Timeline,
    /// How many files are captures.
    captures: usize,
    interface: String,
    spare: Option<Box<Shard>>,
    closing: Closing,
    deliver: &'a mut dyn FnMut(&Report) -> io::Result<()>,
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
        // A file that is no capture is no measurement; a capture without packets is one of nothing.
        if self.captures > 0 {
            let last = self.timeline.end();
            self.close(last, last.end_ns, &mut datapath)?;
        }
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
        self.captures += 1;
        self.timeline.next_capture();
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

    /// Goes on to the time of a packet: closes the open window if it is over, and opens the packet's.
    fn time(&mut self, time_ns: u64, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        match self.timeline.turn(time_ns) {
            Turn::Stay => Ok(()),
            Turn::Begin(start_ns) => self.begin(start_ns, datapath),
            Turn::Next(over, start_ns) => self.close(over, start_ns, datapath),
        }
    }

    /// Opens the first window. Its day is known only now, so a window of nothing is closed: the datapath gets a shard
    /// with the key of that day.
    fn begin(&mut self, start_ns: u64, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let Closing { keys, seen, .. } = &mut self.closing;
        keys.restart(time(start_ns), seen);
        let mut spare = self.spare.take().expect("the shard comes back at the end of each call");
        keys.equip(&mut spare);
        self.spare = Some(datapath.close(spare)?.shard);
        Ok(())
    }

    /// Closes and reports a window. The next one begins at `next_ns`.
    fn close(&mut self, over: Stretch, next_ns: u64, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let mut spare = self.spare.take().expect("the shard comes back at the end of each call");
        self.closing.advance(time(next_ns));
        self.closing.keys.equip(&mut spare);
        let mut window = [datapath.close(spare)?];
        let times = Times {
            span: span(over),
            begin: Duration::from_nanos(over.start_ns),
            end: Duration::from_nanos(over.end_ns),
        };
        let capture = MeasuredInterface {
            slot: 0,
            name: self.interface.clone(),
            index: None,
            alias: None,
            mode: "replay",
            counts: Counts::Packets,
            direction: None,
            feeds: Feeds::All.name(),
            coverage: None,
        };
        let report = self.closing.report(&mut window, times.span, Vec::new(), None, |_| vec![capture], Vec::new())?;
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

fn span(over: Stretch) -> Span {
    let Stretch { start_ns, end_ns, late, set_back_ns } = over;
    let back = |ns| -SignedDuration::try_from(Duration::from_nanos(ns)).unwrap_or(SignedDuration::MAX);
    Span {
        start: time(start_ns),
        end: time(end_ns),
        length: Duration::from_nanos(end_ns.saturating_sub(start_ns)),
        clock_step: set_back_ns.map(back),
        late_packets: Some(late),
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
