//! weir's eBPF object in the kernel. Test-run sends it one packet at a time, on one CPU.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use anyhow::{Context, Result, bail, ensure};
use aya::programs::{ProgramError, TestRun, TestRunOptions, Xdp};
use weir_common::{
    control::{Feeds, Flush, FlushOrder, Flushed, ReplayHeader, egress},
    cpu::Cpu,
    ledger::{Ledger, Tally},
    packet::{Link, TunnelPorts, Tunnels},
    record::Record,
};
use weir_config::{Packets, interface::Way};
use weir_datapath::{Blocks, Edge, EdgeReader, Features, Kernel, LoadedProgram, Parts, Plan, Ring, online_cpus, pin};
use weir_sketch::hash::Key;
use zerocopy::IntoBytes;

/// The return value by which XDP passes a packet on.
const XDP_PASS: u32 = 2;
/// Test-run's packets come in on the loopback interface, which has this index in every network namespace.
pub const LOOPBACK: u32 = 1;
/// Test-run wants at least an Ethernet header.
pub const FRAME_MIN: usize = 14;
/// The longest packet for a test run: one piece of a page minus headroom and tail, and the rest in 17 pages of
/// fragments.
const FRAME_MAX: usize = 64 << 10;
/// The longest packet for a test run in one piece, rounded down: a page without headroom and tail.
const PIECE_MAX: usize = 3500;

/// The cache and the ring that weir has by default, for one interface.
pub const PLAN: Plan = Plan {
    slot_key: Key([7, 11]),
    cache_flows: 16384,
    ring_bytes: 1 << 20,
    sampling: Packets::OneIn(1),
    interfaces: 1,
    tunnels: Tunnels::Outer,
    tunnel_ports: TunnelPorts::USUAL,
};

/// The object, loaded for one test.
pub struct Object<'a> {
    parts: Parts<'a>,
    ring: Ring,
    edges: EdgeReader,
    epoch: u32,
    blocks: Blocks,
    features: Features,
    out: Vec<u8>,
}

/// A window that was closed.
pub struct Window {
    /// The records from the ring, in order.
    pub records: Vec<Record>,
    /// The exact counters.
    pub edge: Edge,
}

impl Window {
    /// The first interface's account.
    pub fn ledger(&self) -> Ledger {
        Ledger { counters: self.edge.counters[0], attributed: self.records.iter().map(Record::tally).sum::<Tally>() }
    }
}

/// Loads every program that this kernel should accept; returns how many instructions its verifier processed for each.
///
/// # Errors
///
/// The kernel refused one.
pub fn load_all(plan: &Plan) -> Result<Vec<LoadedProgram>> {
    let features = Features::of_this_kernel();
    let mut kernel = Kernel::load_with(plan, features)?;
    if features.fragments {
        kernel.load_replay()?;
    }
    load_tc(&mut kernel)?;
    kernel.parts()?.xdp.generic()?;
    Ok(kernel.loaded())
}

/// Every kernel takes the programs for the tc hook, with TCX or without.
fn load_tc(kernel: &mut Kernel) -> Result<()> {
    /// Only the end of the verifier's log is shown, which names the problem; the whole log would fill pages.
    const LOG_END: usize = 2_000;
    let mut parts = kernel.parts()?;
    for (link, way) in [Link::Ethernet, Link::RawIp].into_iter().flat_map(|link| Way::ALL.map(|way| (link, way))) {
        match parts.tc.get(link, way) {
            Ok(_) => {}
            Err(ProgramError::LoadError { io_error, verifier_log }) => {
                let log = verifier_log.to_string();
                let end = log.char_indices().rev().nth(LOG_END).map_or(0, |(at, _)| at);
                bail!("{link:?} {}: {io_error}: {}", way.name(), &log[end..]);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Object<'_> {
    /// Loads the object and tests it, in a thread that is pinned to one CPU; tests take the CPUs in turn.
    ///
    /// # Errors
    ///
    /// As [`Object::load_on`].
    pub fn load(plan: Plan, test: impl FnOnce(&mut Object<'_>) -> Result<()> + Send) -> Result<()> {
        Self::load_with(Features::of_this_kernel(), plan, test)
    }

    /// As [`Object::load`], for a kernel that can do no more than `features`.
    ///
    /// # Errors
    ///
    /// As [`Object::load_on`].
    pub fn load_with(
        features: Features,
        plan: Plan,
        test: impl FnOnce(&mut Object<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let cpus = online_cpus()?;
        let cpu = cpus[NEXT.fetch_add(1, Ordering::Relaxed) % cpus.len()];
        Self::pinned(cpu, features, plan, test)
    }

    /// Loads the object and tests it, in a thread that is pinned to this CPU.
    ///
    /// # Errors
    ///
    /// The kernel did not accept the object, or the error of `test`.
    pub fn load_on<T: Send>(cpu: u32, plan: Plan, test: impl FnOnce(&mut Object<'_>) -> Result<T> + Send) -> Result<T> {
        Self::pinned(cpu, Features::of_this_kernel(), plan, test)
    }

    fn pinned<T: Send>(
        cpu: u32,
        features: Features,
        plan: Plan,
        test: impl FnOnce(&mut Object<'_>) -> Result<T> + Send,
    ) -> Result<T> {
        let run = || {
            pin(cpu)?;
            let mut kernel = Kernel::load_with(&plan, features)?;
            if features.fragments {
                kernel.load_replay()?;
            }
            let ring = kernel.ring(cpu)?;
            let parts = kernel.parts()?;
            parts.interfaces.insert(LOOPBACK, 0, Feeds::All)?;
            let [cpus, handed_over] = parts.flush.blocks().descriptors();
            let blocks = Blocks::from_descriptors([cpus.try_clone()?, handed_over.try_clone()?])?;
            let edges = EdgeReader::new(plan.interfaces as usize);
            test(&mut Object { parts, ring, edges, epoch: 0, blocks, features, out: vec![0; FRAME_MAX] })
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Returns true if test-run can hand a frame of this length to the program that measures interfaces.
    pub const fn takes(&self, bytes: usize) -> bool {
        self.features.fragments || bytes <= PIECE_MAX
    }

    /// Runs `weir` on a frame, and returns the outcome.
    ///
    /// # Errors
    ///
    /// The kernel refused to run the program.
    pub fn run(&mut self, frame: &[u8]) -> Result<Outcome> {
        outcome(self.parts.xdp.native, frame, None, &mut self.out)
    }

    /// Gives this interface a slot for one direction, as weir does for one that it measures.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn give_slot(&mut self, key: u32, slot: u32) -> Result<()> {
        Ok(self.parts.interfaces.insert(key, slot, Feeds::All)?)
    }

    /// Takes the interface's slot away.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn take_slot(&mut self, key: u32) -> Result<()> {
        Ok(self.parts.interfaces.remove(key)?)
    }

    /// Runs `weir_ingress` or `weir_egress` on a frame of the loopback interface.
    ///
    /// # Errors
    ///
    /// The kernel refused to load the program or to run it.
    pub fn pass_at_tc(&mut self, way: Way, frame: &[u8]) -> Result<()> {
        let program = self.parts.tc.get(Link::Ethernet, way)?.context("there is no such program")?;
        program.test_run(TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() }).context("test-run")?;
        Ok(())
    }

    /// Runs the program for generic mode on a frame.
    ///
    /// # Errors
    ///
    /// The kernel refused the program, or the frame did not pass, or was changed.
    pub fn pass_generic(&mut self, frame: &[u8]) -> Result<()> {
        passes(self.parts.xdp.generic()?, frame, None, &mut self.out)
    }

    /// Runs `weir` on a frame.
    ///
    /// # Errors
    ///
    /// The packet did not pass, or was changed.
    pub fn pass(&mut self, frame: &[u8]) -> Result<()> {
        passes(self.parts.xdp.native, frame, None, &mut self.out)
    }

    /// Runs `replay` on a captured packet that was `wire_bytes` long.
    ///
    /// # Errors
    ///
    /// The packet did not pass, or was changed.
    pub fn pass_captured(&mut self, link: Link, wire_bytes: u32, captured: &[u8]) -> Result<()> {
        self.pass_captured_at(0, link, wire_bytes, captured)
    }

    /// The same for a packet that was captured at this tick: milliseconds modulo 2^32.
    ///
    /// # Errors
    ///
    /// The packet did not pass, or was changed.
    pub fn pass_captured_at(&mut self, tick: u32, link: Link, wire_bytes: u32, captured: &[u8]) -> Result<()> {
        let header = ReplayHeader { wire_bytes, captured: captured.len() as u32, link: link as u32, tick };
        let mut input = [header.as_bytes(), captured].concat();
        let data = size_of::<ReplayHeader>();
        input.resize(input.len().max(data + FRAME_MIN), 0);
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let context = [data as u32, input.len() as u32, 0, 0, 0, 0];
        passes(self.parts.replay, &input, Some(context.as_bytes()), &mut self.out)
    }

    /// Runs the program of the tc hook on a buffer in which an offload merged packets: `segments` of them, or an
    /// unknown number if that is 0, with `segment` bytes of payload each.
    ///
    /// # Errors
    ///
    /// The kernel refused to load the program or to run it.
    pub fn pass_merged(&mut self, way: Way, buffer: &[u8], [segment, segments]: [u32; 2]) -> Result<()> {
        /// Places in `struct __sk_buff`, and its length.
        const SEGMENTS_AT: usize = 164;
        const SEGMENT_AT: usize = 176;
        const CONTEXT_BYTES: usize = 192;
        self.give_slot(if way == Way::Egress { egress(LOOPBACK) } else { LOOPBACK }, 0)?;
        let mut context = [0; CONTEXT_BYTES];
        context[SEGMENTS_AT..][..4].copy_from_slice(&segments.to_ne_bytes());
        context[SEGMENT_AT..][..4].copy_from_slice(&segment.to_ne_bytes());
        let program = self.parts.tc.get(Link::Ethernet, way)?.context("there is no such program")?;
        let options = TestRunOptions { data_in: Some(buffer), ctx_in: Some(&context), ..TestRunOptions::new() };
        program.test_run(options).context("test-run")?;
        Ok(())
    }

    /// The records in the ring.
    ///
    /// # Errors
    ///
    /// There was more than a ring can hold.
    pub fn records(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        self.take_records(&mut records)?;
        Ok(records)
    }

    /// Takes the records in the ring. This is faster than [`Object::records`], because it reuses the memory of
    /// `records`.
    ///
    /// # Errors
    ///
    /// There was more than a ring can hold.
    pub fn take_records(&mut self, records: &mut Vec<Record>) -> Result<()> {
        records.clear();
        let drained = self.ring.drain(|some| records.extend_from_slice(some));
        ensure!(!drained.more, "there is more than a whole ring");
        Ok(())
    }

    /// Calls `flush` once, without reading the ring; returns the records from the cache.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn flush(&mut self) -> Result<(Flush, Vec<Record>)> {
        let flushed = self.parts.flush.close(self.ring.cpu())?.context("this thread's CPU is offline")?;
        self.handed_over(flushed)
    }

    /// The same, as for an offline CPU.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn flush_elsewhere(&mut self, order: FlushOrder) -> Result<(Flush, Vec<Record>)> {
        let flushed = self.parts.flush.elsewhere(self.ring.cpu(), order)?;
        self.handed_over(flushed)
    }

    fn handed_over(&self, flushed: Flushed) -> Result<(Flush, Vec<Record>)> {
        let mut records = Vec::new();
        self.blocks.take(self.ring.cpu(), flushed, |some| records.extend_from_slice(some))?;
        Ok((flushed.state, records))
    }

    /// Closes the window, or continues to close it. Returns the records from cache and ring, and how many calls it
    /// took.
    ///
    /// # Errors
    ///
    /// The kernel refused, or a packet was half counted.
    pub fn close(&mut self) -> Result<(Window, u32)> {
        let mut records = Vec::new();
        for calls in 1.. {
            let (flushed, of_cache) = self.flush()?;
            records.extend(self.records()?);
            records.extend(of_cache);
            match flushed {
                Flush::Again => {}
                Flush::Done => return Ok((Window { records, edge: self.edge()? }, calls)),
                Flush::Busy | Flush::NoBlock => anyhow::bail!("flush said {flushed:?}"),
            }
        }
        unreachable!("2^32 calls")
    }

    /// The counters of the window that was closed last.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn edge(&mut self) -> Result<Edge> {
        let Self { blocks, edges, epoch, ring, .. } = self;
        let mut edge = Edge::empty(edges.interfaces());
        blocks.read(ring.cpu(), |cpu| edges.read(*epoch, cpu, &mut edge))?;
        *epoch += 1;
        Ok(edge)
    }

    /// All packets ever counted in this slot, as the daemon reads them while a window is open.
    pub fn seen(&self, slot: usize) -> Tally {
        self.blocks.live().seen(slot)
    }

    /// Changes the kernel's state for this CPU, on which no packet is being measured.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn change(&mut self, change: impl FnOnce(&mut Cpu)) -> Result<()> {
        Ok(self.blocks.change(self.ring.cpu(), change)?)
    }
}

/// The outcome of a program for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// True if the return value was `XDP_PASS`.
    pub passed: bool,
    /// The packet came back unchanged.
    pub unchanged: bool,
}

/// Runs a program once; the packet must come back as it was.
fn passes(program: &Xdp, packet: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<()> {
    let Outcome { passed, unchanged } = outcome(program, packet, context, out)?;
    ensure!(passed, "it did not return XDP_PASS for {packet:02x?}");
    ensure!(unchanged, "it made {:02x?}\nout of {packet:02x?}", &out[..packet.len()]);
    Ok(())
}

/// Runs a program once. What comes back, into `out`, begins with the metadata.
fn outcome(program: &Xdp, packet: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<Outcome> {
    out[..packet.len()].fill(0xee);
    let options =
        TestRunOptions { data_in: Some(packet), data_out: Some(&mut *out), ctx_in: context, ..TestRunOptions::new() };
    let result = program.test_run(options).context("test-run")?;
    let unchanged = out.get(..result.data_size_out as usize) == Some(packet);
    Ok(Outcome { passed: result.return_value == XDP_PASS, unchanged })
}
