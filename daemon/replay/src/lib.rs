//! Replay: the same measurement on capture files, offline, with time taken from the capture. All stages run on one
//! thread.

#![forbid(unsafe_code)]

mod datapath;
mod kernel;
mod notes;
mod progress;
mod timeline;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;
use weir_common::{control::Feeds, ledger::Tally};
use weir_config::{Config, KeyError, names::GeoError, rule::Rule};
use weir_datapath::{
    Kernel, KernelError, Plan,
    capture::{
        Broken, Packet,
        buffers::Buffers,
        input,
        merge::Merge,
        packet_buffer::PacketBuffer,
        span::{Covered, Stretch},
    },
    cpu::{Cpus, PinError, online_cpus, pin},
    interface::MeasuredInterface,
    rates::{Then, WindowSeconds},
};
use weir_measure::{
    keys::Keys,
    local::Local,
    order::Closed,
    question::{KeyQuery, Views},
    seen::{self, Rotation},
    shard::Shard,
    userspace::UserspaceAggregator,
    window::Span,
};
use weir_report::{
    SketchExporter,
    closing::{Closing, Times},
    observer::Observer,
    questions,
};
use weir_schema::{Remembered, Report, Strays, alerting::Alerts};
use weir_sketch::{MergeError, hash::Key};
use weir_system::clock;

use self::{
    datapath::Datapath,
    kernel::KernelDatapath,
    notes::Notes,
    progress::Progress,
    timeline::{HOLD_NS, ReplayWindow, Timeline, WindowChange},
};

/// How capture time is divided into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// One report for everything.
    All,
    /// One report for each interval that has packets.
    Every(Duration),
}

impl Windows {
    /// The alert rules for such windows.
    fn alerts(self, rules: &[Rule], views: &Views) -> Alerts {
        match self {
            Self::All => Alerts::of_any_length(rules, &questions(views)),
            Self::Every(interval) => Alerts::new(rules, &questions(views), interval),
        }
    }
}

/// The options of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The captures: files, or `-` for standard input. Their packets are processed in time order.
    pub files: Vec<PathBuf>,
    /// How capture time is divided into windows.
    pub windows: Windows,
    /// Use the kernel program instead of its userspace counterpart.
    pub kernel: bool,
    /// Keys to look up in each report, as [`KeyQuery::parse`] reads them.
    pub asks: Vec<String>,
    /// Fixes the hash keys and the run ID.
    pub seed: Option<u64>,
    /// True to show the progress on standard error.
    pub progress: bool,
}

/// Why a replay failed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// A report could not be written.
    #[error("cannot write the report")]
    Write(#[from] io::Error),
    /// A query that cannot be answered.
    #[error("--ask {text}: {why}")]
    Ask {
        /// The text of the query.
        text: String,
        /// The mistake in it.
        why: String,
    },
    /// A database of addresses failed.
    #[error(transparent)]
    Geo(#[from] GeoError),
    /// The kernel side failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Pinning to a CPU failed.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The hash key is not available.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Shards that cannot be merged.
    #[error("cannot merge the shards of a window: this is a bug in weir, please report it")]
    Merge(#[from] MergeError),
}

/// How many bytes weir would plan for this configuration, these views and CPUs.
pub type PlannedMemory = fn(&Config, &Arc<Views>, &Cpus) -> u64;

/// Receives the seconds and reports of a replay while it runs.
pub trait Listener {
    /// Called when this second since 1970 is over, that is, when a packet of a later second was read. Packets out of
    /// order count in the second in which they are read.
    ///
    /// # Errors
    ///
    /// The replay has to end.
    fn second(&mut self, second: u64, counted: Tally) -> io::Result<()>;

    /// The report of a window.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    fn report(&mut self, report: &Report) -> io::Result<()>;

    /// The same report, with the longer lists that a history keeps if the configuration has one. It comes before the
    /// report itself.
    ///
    /// # Errors
    ///
    /// It cannot be kept.
    fn remember(&mut self, _report: &Report, _longer: Option<Remembered>) -> io::Result<()> {
        Ok(())
    }
}

/// A listener that only passes on the reports.
struct Reports<'a>(&'a mut dyn FnMut(&Report) -> io::Result<()>);

impl Listener for Reports<'_> {
    fn second(&mut self, _: u64, _: Tally) -> io::Result<()> {
        Ok(())
    }

    fn report(&mut self, report: &Report) -> io::Result<()> {
        (self.0)(report)
    }
}

/// Replays captures and passes the report of each window to `deliver`. Returns the broken captures.
///
/// # Errors
///
/// The replay is impossible. A broken capture is not an error: its readable part is reported.
pub fn replay(
    config: &Config,
    options: &Options,
    planned_memory: PlannedMemory,
    deliver: &mut dyn FnMut(&Report) -> io::Result<()>,
) -> Result<Vec<Broken>, ReplayError> {
    replay_to(config, options, planned_memory, &mut Reports(deliver))
}

/// As [`replay`], but the listener also learns of each second.
///
/// # Errors
///
/// As those of [`replay`].
pub fn replay_to(
    config: &Config,
    options: &Options,
    planned_memory: PlannedMemory,
    listener: &mut dyn Listener,
) -> Result<Vec<Broken>, ReplayError> {
    let secret = match options.seed {
        Some(seed) => Key([seed, !seed]).derive("seed").into(),
        None => config.hash_key.secret()?,
    };
    let key = secret.first();
    let views = Views::new(config, 1)?;
    let interface = interface_name(&options.files);
    let asks = options.asks.iter().map(|text| {
        KeyQuery::parse(text, &views, &[&interface]).map_err(|why| ReplayError::Ask { text: text.clone(), why })
    });
    let asks = asks.collect::<Result<Vec<_>, _>>()?.concat();
    views.directory.assign(0, &[&interface], None);
    // The first packet determines the day.
    let mut keys = Keys::new(secret, key.derive("coins"), Timestamp::UNIX_EPOCH);
    let local = Local::new(config, key.derive("local"));
    keys.add_local(local.as_ref());
    let [first, spare] = [(), ()].map(|()| keys.shard(&config.estimates, &views));
    let seen = Arc::new(seen::filter(&config.seen_flows, keys.id()));
    // One thread measures, as on a machine with one CPU.
    let cpus = Cpus::of(1);
    let plan = Plan { interfaces: 1, ..Plan::new(config, key.derive("flow cache"), &cpus) };
    let memory_bytes = planned_memory(config, &views, &cpus);
    let alerts = options.windows.alerts(&config.alerts.rules, &views);
    let run = Run {
        windows: options.windows,
        timeline: Timeline::new(options.windows),
        buffer: PacketBuffer::default(),
        strays: PacketBuffer::default(),
        outside: None,
        offloads: Buffers::default(),
        notes: Notes::default(),
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
            local,
            alerts,
            exporter: SketchExporter::new(config.export.clone()),
            remembered: None,
            networks: Arc::default(),
        },
        listener,
        progress: options.progress.then(|| Progress::new(input::size(&options.files))),
        second: None,
    };
    if options.kernel {
        let cpu = online_cpus()?.first().copied().unwrap_or(0);
        pin(cpu)?;
        let mut kernel = Kernel::for_replay(&plan)?;
        let ring = kernel.ring(cpu)?;
        run.all(&options.files, KernelDatapath::new(kernel.parts()?, ring, seen, first)?)
    } else {
        run.all(&options.files, UserspaceAggregator::new(&plan, seen, first))
    }
}

/// The interface name: that of the file. Several files count as one interface, too.
pub fn interface_name(files: &[PathBuf]) -> String {
    match files {
        [file] if input::is_stdin(file) => "stdin".to_owned(),
        [file] => file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned(),
        _ => "replay".to_owned(),
    }
}

struct Run<'a> {
    windows: Windows,
    timeline: Timeline,
    /// Packets of later windows, while the open window may still get packets. Also packets without a time that come
    /// before the first packet with a time.
    buffer: PacketBuffer,
    /// Strays whose windows have not been open.
    strays: PacketBuffer,
    /// Strays of one window over everything.
    outside: Option<Stretch>,
    /// Tells which captured packets were several on the wire.
    offloads: Buffers,
    notes: Notes,
    interface: String,
    spare: Option<Box<Shard>>,
    closing: Closing,
    listener: &'a mut dyn Listener,
    /// The progress on standard error, if it is shown.
    progress: Option<Progress>,
    /// The second that is being read, and its packets so far.
    second: Option<(u64, Tally)>,
}

impl Run<'_> {
    fn all(mut self, files: &[PathBuf], mut datapath: impl Datapath) -> Result<Vec<Broken>, ReplayError> {
        /// The clock is read only once in this many packets, because reading it costs more than a packet.
        const PACKETS_PER_TICK: u64 = 1 << 14;
        let mut merge = Merge::new(files);
        let mut count = 0_u64;
        while let Some(packet) = merge.next_packet() {
            let packet = Packet { split: self.offloads.look(&packet), ..packet };
            self.count(&packet)?;
            self.take(&packet, &mut datapath)?;
            count += 1;
            if let Some(progress) = &mut self.progress
                && count.is_multiple_of(PACKETS_PER_TICK)
            {
                progress.update(merge.bytes_read(), count);
            }
        }
        if let Some((second, counted)) = self.second.take() {
            self.listener.second(second, counted)?;
        }
        // Without any capture there is no report. An empty capture gets an empty report.
        if merge.captures() > 0 {
            self.end(merge.covered(), &mut datapath)?;
        }
        Ok(merge.into_broken())
    }

    /// Counts a packet in the second of its time.
    fn count(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        const NS: u64 = 1_000_000_000;
        let one = packet.tally();
        let second = packet.time_ns.filter(|_| !packet.stray).map(|time_ns| time_ns / NS);
        let (current, counted) = self.second.get_or_insert((second.unwrap_or(0), Tally::default()));
        match second.filter(|second| second > current) {
            None => counted.add(one),
            Some(next) => {
                let (over, came) = (std::mem::replace(current, next), std::mem::replace(counted, one));
                self.listener.second(over, came)?;
            }
        }
        Ok(())
    }

    /// Measures a packet, or holds it until its window opens.
    fn take(&mut self, packet: &Packet<'_>, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        if packet.stray {
            return self.take_stray(packet, datapath);
        }
        if self.timeline.has(packet.time_ns) {
            return self.measure(packet, datapath);
        }
        self.buffer.push(packet);
        while self.buffer.is_full() || packet.time_ns.is_some_and(|time_ns| self.is_next_complete(time_ns)) {
            if !self.let_go(datapath)? {
                break;
            }
        }
        Ok(())
    }

    /// Measures a stray, or holds it until its window opens. In one window over everything, it belongs to no second.
    fn take_stray(&mut self, packet: &Packet<'_>, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        if self.windows == Windows::All {
            let untimed = Packet { time_ns: None, ..*packet };
            match self.timeline.open_ns() {
                Some(_) => self.feed(&untimed, datapath)?,
                None => self.strays.push(&untimed),
            }
            return Ok(());
        }
        if packet.time_ns.is_some_and(|time_ns| self.timeline.contains(time_ns)) {
            return self.feed(packet, datapath);
        }
        self.strays.push(packet);
        if self.strays.is_full() {
            let home = self.timeline.open_ns();
            self.visit_strays(datapath)?;
            if let Some(home) = home {
                self.visit(home.start, datapath)?;
            }
        }
        Ok(())
    }

    /// Measures all strays that are held, in windows of their own.
    fn visit_strays(&mut self, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        while let Some(stray) = self.strays.pop() {
            if let Some(time_ns) = stray.packet().time_ns {
                self.visit(time_ns, datapath)?;
            }
            self.feed(&stray.packet(), datapath)?;
        }
        Ok(())
    }

    /// Opens the window of this time, even out of order, with the other strays that belong to it.
    fn visit(&mut self, time_ns: u64, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let turn = self.timeline.visit(time_ns);
        self.turn(turn, datapath)
    }

    /// Returns true if a packet of this time lets the window of the earliest held packet start: the open window is
    /// over, and all packets of any earlier window should have arrived.
    fn is_next_complete(&self, time_ns: u64) -> bool {
        let is_first_settled =
            self.buffer.first_ns().is_some_and(|first_ns| time_ns.saturating_sub(first_ns) >= HOLD_NS);
        is_first_settled && self.timeline.is_over(time_ns)
    }

    /// Measures the earliest held packet and all others of its window. Returns whether there was one.
    fn let_go(&mut self, datapath: &mut impl Datapath) -> Result<bool, ReplayError> {
        let Some(first) = self.buffer.pop() else { return Ok(false) };
        self.measure(&first.packet(), datapath)?;
        while self.buffer.first_ns().is_some_and(|time_ns| !self.timeline.is_beyond(time_ns)) {
            if let Some(next) = self.buffer.pop() {
                self.measure(&next.packet(), datapath)?;
            }
        }
        Ok(true)
    }

    /// Measures a packet in the open window, or in the next one, which then starts.
    fn measure(&mut self, packet: &Packet<'_>, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let turn = match packet.time_ns {
            Some(time_ns) => self.timeline.turn(time_ns),
            None => self.timeline.untimed().map_or(WindowChange::Stay, WindowChange::Begin),
        };
        self.turn(turn, datapath)?;
        self.feed(packet, datapath)
    }

    /// Measures a packet in the open window, as the packets that it was on the wire.
    fn feed(&mut self, packet: &Packet<'_>, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let mut uncertain = packet.uncertain();
        packet.each(|one| datapath.measure(one, uncertain.take()))?;
        self.notes.add(packet);
        Ok(())
    }

    /// Opens the next window if it is time. Packets that wait for it and cannot open it themselves are in it.
    fn turn(&mut self, turn: WindowChange, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        match turn {
            WindowChange::Stay => return Ok(()),
            WindowChange::Begin(start_ns) => {
                self.begin(start_ns, datapath)?;
                while let Some(untimed) = self.buffer.pop_untimed() {
                    self.timeline.untimed();
                    self.feed(&untimed.packet(), datapath)?;
                }
                while let Some(stray) = self.strays.pop_untimed() {
                    self.feed(&stray.packet(), datapath)?;
                }
            }
            WindowChange::Next(over, start_ns) => self.close(over, start_ns, datapath)?,
        }
        let Some(open_ns) = self.timeline.open_ns() else { return Ok(()) };
        while let Some(stray) = self.strays.pop_within(open_ns.clone()) {
            self.feed(&stray.packet(), datapath)?;
        }
        Ok(())
    }

    /// Closes the last window. `covered` is the time of all captures.
    fn end(&mut self, covered: Covered, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        while self.let_go(datapath)? {}
        self.visit_strays(datapath)?;
        let last = self.timeline.end(covered.span);
        self.outside = covered.strays.filter(|_| self.windows == Windows::All);
        self.closing.exporter.end();
        self.close(last, last.end_ns, datapath)
    }

    /// Opens the first window. Its day is only known now, so an empty window is closed first: that gives the datapath a
    /// shard with the key of the day.
    fn begin(&mut self, start_ns: u64, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let Closing { keys, seen, .. } = &mut self.closing;
        keys.restart(time(start_ns), seen);
        let mut spare = self.spare.take().expect("the shard comes back at the end of each call");
        keys.equip(&mut spare);
        self.spare = Some(datapath.close(spare, &self.cut(ReplayWindow::default(), start_ns))?.shard);
        Ok(())
    }

    /// Closes and reports a window. The next one starts at `next_ns`.
    fn close(&mut self, over: ReplayWindow, next_ns: u64, datapath: &mut impl Datapath) -> Result<(), ReplayError> {
        let mut spare = self.spare.take().expect("the shard comes back at the end of each call");
        self.closing.advance(time(next_ns), false);
        self.closing.keys.equip(&mut spare);
        let mut window = [datapath.close(spare, &self.cut(over, next_ns))?];
        let times = Times {
            span: span(over),
            begin: Duration::from_nanos(over.start_ns),
            end: Duration::from_nanos(over.end_ns),
        };
        self.closing.end_window(times.span);
        let notes = std::mem::take(&mut self.notes);
        let capture = MeasuredInterface {
            slot: Some(0),
            name: self.interface.clone(),
            earlier_name: None,
            index: None,
            alias: None,
            vrf: None,
            mode: "replay",
            counts: notes.counts(),
            direction: None,
            feeds: Feeds::All.name(),
            coverage: None,
            coverage_bytes: None,
            unseen: None,
            blind: None,
            trouble: notes.trouble(),
        };
        let mut report =
            self.closing.report(&mut window, times.span, Vec::new(), None, |_| vec![capture], Vec::new())?;
        self.closing.judge(&mut report);
        report.window.strays = self.outside.map(strays);
        if let Some(capture) = report.interfaces.first_mut() {
            capture.unread_link_types = notes.unread();
        }
        self.closing.rotate(times);
        if let Windows::Every(interval) = self.windows {
            self.closing.pass(times.end, Duration::from_nanos(next_ns), interval);
        }
        let [Closed { mut shard, .. }] = window;
        shard.clear();
        self.spare = Some(shard);
        if let Some(progress) = &mut self.progress {
            progress.hide();
        }
        self.listener.remember(&report, self.closing.remembered.take())?;
        Ok(self.listener.report(&report)?)
    }

    /// The seconds of a window, if the next one starts at `next_ns`.
    const fn cut(&self, over: ReplayWindow, next_ns: u64) -> WindowSeconds {
        let then = match self.windows {
            Windows::All => Then::Nothing,
            Windows::Every(_) => Then::Window(next_ns),
        };
        WindowSeconds::of(over.start_ns, over.end_ns, then)
    }
}

fn time(ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(ns)).unwrap_or(Timestamp::MAX)
}

fn strays(outside: Stretch) -> Strays {
    let Stretch { packets, first_ns, last_ns } = outside;
    Strays { packets, earliest: time(first_ns), latest: time(last_ns) }
}

/// Reports have microseconds: the window ends after the microsecond of the last packet, and so after its start.
fn span(over: ReplayWindow) -> Span {
    let ReplayWindow { start_ns, end_ns, length, late, untimed, set_back_ns } = over;
    let back = |ns| -SignedDuration::try_from(Duration::from_nanos(ns)).unwrap_or(SignedDuration::MAX);
    Span {
        start: time(start_ns),
        end: time(end_ns.div_ceil(1_000).saturating_mul(1_000)),
        length,
        clock_step: set_back_ns.map(back),
        late_packets: Some(late),
        untimed_packets: (untimed > 0).then_some(untimed),
    }
}

/// Writes a report as one line of JSON.
///
/// # Errors
///
/// Writing failed.
pub fn write_json(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    out.write_all(b"\n")
}
