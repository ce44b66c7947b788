//! The kernel side, loaded: programs, maps, and runs of a program on this CPU.

use std::{io, os::fd::AsFd as _};

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{Array, ArrayOfMaps, Map, MapData, MapError},
    programs::{Program, ProgramError, SchedClassifier, TestRun as _, TestRunOptions, Xdp},
    sys::SyscallError,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Serialize;
use thiserror::Error;
use weir_common::{
    control::{CPUS_MAX, Flush, INTERFACE_PROBES, InterfaceSlot, egress},
    cpu::Cpu,
    hash::SlotKey,
    packet::{Link, Tunnels},
    sampling::Valve,
};
use weir_sketch::hash::Key;

use super::{cpu::online_cpus, features::Features, ring::Ring};
use crate::config::{Packets, Way};

/// What the kernel side is built from.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Keys the flow cache's slots.
    pub slot_key: Key,
    /// Flow-cache slots per CPU: a power of two.
    pub cache_flows: u32,
    /// Ring size per CPU in bytes: a power of two and a multiple of the page size.
    pub ring_bytes: u32,
    /// How many packets are taken.
    pub sampling: Packets,
    /// Interface slots in use, at most [`weir_common::control::INTERFACES_MAX`].
    pub interfaces: u32,
    /// Whose packet a tunnelled packet is.
    pub tunnels: Tunnels,
}

/// Why the kernel side could not be loaded or run.
#[derive(Debug, Error)]
pub enum KernelError {
    /// No privilege.
    #[error(
        "not permitted to load eBPF programs: run as root, or with the capabilities CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted,
    /// Built with `AYA_BUILD_SKIP=1`.
    #[error("this weir was built without its eBPF program (AYA_BUILD_SKIP was set): build it again without")]
    NoObject,
    /// The object could not be read, or a map could not be made.
    #[error("the kernel did not take weir's eBPF maps")]
    Load(#[source] EbpfError),
    /// The verifier refused a program.
    #[error(
        "the kernel did not take weir's program `{program}` (it needs Linux {} or later, and CAP_PERFMON beside CAP_BPF)",
        floor(program)
    )]
    Program {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// A map operation failed.
    #[error("an eBPF map could not be set up")]
    Map(#[from] MapError),
    /// A map or a program is missing from the object: it belongs to another version.
    #[error("the eBPF object has no `{0}`: it is not of this version of weir")]
    Missing(&'static str),
    /// The CPUs could not be listed.
    #[error("cannot read {0}")]
    Cpus(&'static str, #[source] io::Error),
    /// More CPUs than rings.
    #[error("CPU {0} is beyond the {CPUS_MAX} CPUs that weir can serve")]
    TooManyCpus(u32),
    /// A test-run failed.
    #[error("the kernel refused to run `{program}`")]
    Run {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// Setting up a ring's reader failed.
    #[error("cannot wait for the ring of CPU {cpu}")]
    Wait {
        /// The ring's CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A map's file descriptor could not be shared.
    #[error("cannot open another file descriptor: raise the limit of open files (`ulimit -n`)")]
    Descriptor(#[source] io::Error),
    /// Two interface indexes need the same places of the table.
    #[error(
        "interface index {0} finds no place in the interface table beside {INTERFACE_PROBES} others: use fewer interfaces"
    )]
    InterfaceTable(u32),
}

impl KernelError {
    /// Whether the user, and not the kernel or weir, is what lacks something.
    pub const fn is_not_permitted(&self) -> bool {
        matches!(self, Self::NotPermitted)
    }
}

/// The programs for what weir does, and not for its benchmark.
const PROGRAMS: [&str; 6] = ["weir", "weir_linear", "weir_ingress", "weir_egress", "flush", "replay"];

/// A program that the kernel took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadedProgram {
    /// Its name.
    pub name: &'static str,
    /// How many instructions the verifier looked at, of the million that it allows; Linux 5.16 and later tell.
    pub verified_instructions: Option<u32>,
}

/// The first Linux that takes a program; of the one that measures interfaces there is a variant for each.
fn floor(program: &str) -> &'static str {
    if matches!(program, "weir" | "weir_linear" | "flush") { "5.10" } else { "5.18" }
}

/// The object that the build made out of `ebpf/`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/weir-ebpf"));

/// The loaded object.
pub struct Kernel {
    ebpf: Ebpf,
    rings: ArrayOfMaps<MapData>,
    valves: MapData,
    interfaces: InterfaceTable,
    ring_bytes: u32,
    features: Features,
}

/// The loaded object's parts, borrowed for as long as measuring lasts.
pub struct Parts<'a> {
    /// Attached to interfaces as XDP; without fragments where the kernel knows none.
    pub weir: &'a mut Xdp,
    /// Attached to interfaces by TCX.
    pub tc: TcPrograms<'a>,
    /// Closes a CPU's window.
    pub flush: FlushProgram<'a>,
    /// Measures one captured packet; to be loaded by [`Kernel::load_replay`].
    pub replay: &'a Xdp,
    /// Only for the benchmark; to be loaded by [`Kernel::load_benchmark`].
    pub benchmark: Benchmark<'a>,
    /// Which slot an interface index has.
    pub interfaces: &'a mut InterfaceTable,
}

/// The programs that only the benchmark runs.
#[derive(Clone, Copy)]
pub struct Benchmark<'a> {
    /// Does nothing.
    pub baseline: &'a Xdp,
    /// Draws one of a million flows, and nothing else.
    pub draw: &'a Xdp,
    /// Measures packets as those of two flows in turn.
    pub two_flows: &'a Xdp,
    /// Measures every packet as one of a new flow.
    pub all_miss: &'a Xdp,
    /// Measures every packet as one of the million flows that `draw` draws.
    pub zipf: &'a Xdp,
}

impl Kernel {
    /// Loads maps and programs as this kernel can take them. Nothing is attached and there are no rings yet.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn load(plan: &Plan) -> Result<Self, KernelError> {
        Self::load_with(plan, Features::of_this_kernel())
    }

    /// As [`Kernel::load`], for a kernel that can do no more than `features`.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn load_with(plan: &Plan, features: Features) -> Result<Self, KernelError> {
        if OBJECT.is_empty() {
            return Err(KernelError::NoObject);
        }
        // Kernels before 5.11 count maps against this limit; later ones ignore it, so a refusal does not matter.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
        let cpus = cpu_blocks()?;
        let bits = plan.cache_flows.ilog2();
        let tunnels = u32::from(plan.tunnels == Tunnels::Inner);
        let mut ebpf = EbpfLoader::new()
            .override_global("SLOT_KEY", &SlotKey::new(plan.slot_key).0, true)
            .override_global("CACHE_BITS", &bits, true)
            .override_global("SAMPLING", &u32::from(plan.sampling.leaves_out()), true)
            .override_global("RING_BYTES", &plan.ring_bytes, true)
            .override_global("INTERFACE_COUNT", &plan.interfaces, true)
            .override_global("LOOK_INTO_TUNNELS", &tunnels, true)
            .map_max_entries("CPUS", cpus)
            .map_max_entries("VALVES", cpus)
            .map_max_entries("CACHE", cpus << bits)
            .load(OBJECT)
            .map_err(load_error)?;
        tell_cpus(&mut ebpf, cpus, bits)?;
        let rings = ArrayOfMaps::try_from(take(&mut ebpf, "RINGS")?)?;
        let interfaces = InterfaceTable { map: Array::try_from(take(&mut ebpf, "INTERFACES")?)? };
        let Map::Array(valves) = take(&mut ebpf, "VALVES")? else { return Err(KernelError::Missing("VALVES")) };
        let mut hold = Valves::of(&valves)?;
        for cpu in 0..cpus {
            hold.set(cpu, plan.sampling.first_rate())?;
        }
        load_programs(&mut ebpf, &[features.program(), "flush"])?;
        Ok(Self { ebpf, rings, valves, interfaces, ring_bytes: plan.ring_bytes, features })
    }

    /// Loads the program that only replay runs.
    ///
    /// # Errors
    ///
    /// The kernel did not take it.
    pub fn load_replay(&mut self) -> Result<(), KernelError> {
        load_programs(&mut self.ebpf, &["replay"])
    }

    /// Loads the programs that only the benchmark runs.
    ///
    /// # Errors
    ///
    /// The kernel did not take one.
    pub fn load_benchmark(&mut self) -> Result<(), KernelError> {
        load_programs(&mut self.ebpf, &["baseline", "draw", "two_flows", "all_miss", "zipf"])
    }

    /// Makes the ring of `cpu`.
    ///
    /// # Errors
    ///
    /// The map could not be made, or its reader could not be set up.
    pub fn ring(&mut self, cpu: u32) -> Result<Ring, KernelError> {
        if cpu >= CPUS_MAX {
            return Err(KernelError::TooManyCpus(cpu));
        }
        let kind = aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32;
        let definition = aya_obj::Map::new_from_params(kind, 0, 0, self.ring_bytes, 0);
        let map = MapData::create(definition, "weir_ring", None)?;
        self.rings.set(cpu, &map, 0)?;
        Ring::new(cpu, map, self.ring_bytes)
    }

    /// The programs that the kernel took so far.
    pub fn loaded(&self) -> Vec<LoadedProgram> {
        PROGRAMS
            .into_iter()
            .filter_map(|name| {
                let info = self.ebpf.program(name)?.info().ok()?;
                Some(LoadedProgram { name, verified_instructions: info.verified_instruction_count() })
            })
            .collect()
    }

    /// A hold on the valves, for one more thread.
    ///
    /// # Errors
    ///
    /// No more file descriptors.
    pub fn valves(&self) -> Result<Valves, KernelError> {
        Valves::of(&self.valves)
    }

    /// The parts, to be used side by side.
    ///
    /// # Errors
    ///
    /// A program is missing from the object.
    pub fn parts(&mut self) -> Result<Parts<'_>, KernelError> {
        let (mut weir, mut flush, mut replay) = (None, None, None);
        let (mut baseline, mut draw, mut two_flows, mut all_miss, mut zipf) = (None, None, None, None, None);
        let mut linear = None;
        let (mut ethernet, mut ip) = ([None, None], [None, None]);
        for (name, program) in self.ebpf.programs_mut() {
            match (name, program) {
                ("weir", Program::Xdp(program)) => weir = Some(program),
                ("weir_linear", Program::Xdp(program)) => linear = Some(program),
                ("flush", Program::Xdp(program)) => flush = Some(&*program),
                ("replay", Program::Xdp(program)) => replay = Some(&*program),
                ("baseline", Program::Xdp(program)) => baseline = Some(&*program),
                ("draw", Program::Xdp(program)) => draw = Some(&*program),
                ("two_flows", Program::Xdp(program)) => two_flows = Some(&*program),
                ("all_miss", Program::Xdp(program)) => all_miss = Some(&*program),
                ("zipf", Program::Xdp(program)) => zipf = Some(&*program),
                ("weir_ingress", Program::SchedClassifier(program)) => ethernet[Way::Ingress as usize] = Some(program),
                ("weir_egress", Program::SchedClassifier(program)) => ethernet[Way::Egress as usize] = Some(program),
                ("weir_ingress_ip", Program::SchedClassifier(program)) => ip[Way::Ingress as usize] = Some(program),
                ("weir_egress_ip", Program::SchedClassifier(program)) => ip[Way::Egress as usize] = Some(program),
                _ => {}
            }
        }
        let main = if self.features.fragments { weir } else { linear };
        let ([Some(ingress), Some(egress)], [Some(ingress_ip), Some(egress_ip)]) = (ethernet, ip) else {
            return Err(KernelError::Missing("weir_ingress"));
        };
        Ok(Parts {
            weir: main.ok_or(KernelError::Missing(self.features.program()))?,
            tc: TcPrograms { ethernet: [ingress, egress], ip: [ingress_ip, egress_ip] },
            flush: FlushProgram(flush.ok_or(KernelError::Missing("flush"))?),
            replay: replay.ok_or(KernelError::Missing("replay"))?,
            benchmark: Benchmark {
                baseline: baseline.ok_or(KernelError::Missing("baseline"))?,
                draw: draw.ok_or(KernelError::Missing("draw"))?,
                two_flows: two_flows.ok_or(KernelError::Missing("two_flows"))?,
                all_miss: all_miss.ok_or(KernelError::Missing("all_miss"))?,
                zipf: zipf.ok_or(KernelError::Missing("zipf"))?,
            },
            interfaces: &mut self.interfaces,
        })
    }
}

/// How many blocks the maps of CPUs have: the numbers of the CPUs that are online are below. Not of all that there could
/// ever be, which a hypervisor may call hundreds.
fn cpu_blocks() -> Result<u32, KernelError> {
    let last = online_cpus()?.into_iter().max().unwrap_or_default();
    if last < CPUS_MAX { Ok(last + 1) } else { Err(KernelError::TooManyCpus(last)) }
}

/// Tells each CPU's block where that CPU's slots are.
fn tell_cpus(ebpf: &mut Ebpf, cpus: u32, cache_bits: u32) -> Result<(), KernelError> {
    const WORDS: usize = size_of::<Cpu>() / 8;
    let map = ebpf.map_mut("CPUS").ok_or(KernelError::Missing("CPUS"))?;
    let mut blocks = Array::<_, [u64; WORDS]>::try_from(map)?;
    let mut block = [0; WORDS];
    for cpu in 0..cpus {
        let told: &mut Cpu = zerocopy::transmute_mut!(&mut block);
        told.first_slot = cpu << cache_bits;
        told.place_shift = u64::BITS - cache_bits;
        blocks.set(cpu, block, 0)?;
    }
    Ok(())
}

fn load_programs(ebpf: &mut Ebpf, names: &[&'static str]) -> Result<(), KernelError> {
    for &program in names {
        let found = ebpf.program_mut(program).ok_or(KernelError::Missing(program))?;
        <&mut Xdp>::try_from(found).and_then(Xdp::load).map_err(|source| KernelError::Program { program, source })?;
    }
    Ok(())
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, KernelError> {
    ebpf.take_map(name).ok_or(KernelError::Missing(name))
}

fn load_error(error: EbpfError) -> KernelError {
    let refused = match &error {
        EbpfError::MapError(MapError::CreateError { io_error, .. }) => Some(io_error),
        EbpfError::MapError(MapError::SyscallError(SyscallError { io_error, .. })) => Some(io_error),
        _ => None,
    };
    if refused.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        KernelError::NotPermitted
    } else {
        KernelError::Load(error)
    }
}

/// The programs of the tc hook. Each is loaded when it is first needed: a kernel may lack what they need, and most
/// interfaces need none of them.
pub struct TcPrograms<'a> {
    ethernet: [&'a mut SchedClassifier; 2],
    ip: [&'a mut SchedClassifier; 2],
}

impl TcPrograms<'_> {
    /// The program for packets that begin with `link` and go this way; `None` for a link layer that no program reads.
    ///
    /// # Errors
    ///
    /// The kernel did not take it.
    pub fn get(&mut self, link: Link, way: Way) -> Result<Option<&mut SchedClassifier>, ProgramError> {
        let programs = match link {
            Link::Ethernet => &mut self.ethernet,
            Link::RawIp => &mut self.ip,
            _ => return Ok(None),
        };
        let program = &mut *programs[way as usize];
        if program.fd().is_err() {
            program.load()?;
        }
        Ok(Some(program))
    }
}

/// Finds an interface's slot by its index and the direction, in the kernel.
pub struct InterfaceTable {
    map: Array<MapData, [u32; 2]>,
}

impl InterfaceTable {
    /// Gives a slot to an interface index, or to its [`weir_common::control::egress`].
    ///
    /// # Errors
    ///
    /// Too many indexes share the same places, or the kernel refused.
    pub fn insert(&mut self, entry: u32, slot: u32) -> Result<(), KernelError> {
        for probe in 0..INTERFACE_PROBES {
            let place = InterfaceSlot::place(entry, probe);
            let [there, _] = self.map.get(&place, 0)?;
            if there == 0 || there == entry {
                return Ok(self.map.set(place, [entry, slot], 0)?);
            }
        }
        Err(KernelError::InterfaceTable(if entry >> 31 == 0 { entry } else { egress(entry) }))
    }

    /// Forgets such an entry.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn remove(&mut self, entry: u32) -> Result<(), KernelError> {
        for probe in 0..INTERFACE_PROBES {
            let place = InterfaceSlot::place(entry, probe);
            if self.map.get(&place, 0)?[0] == entry {
                self.map.set(place, [0, 0], 0)?;
            }
        }
        Ok(())
    }
}

/// How many packets each CPU leaves out.
pub struct Valves {
    map: Array<MapData, [u8; size_of::<Valve>()]>,
}

impl Valves {
    /// Lets `cpu` take one packet in `rate`; a draw that was made before still counts.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn set(&mut self, cpu: u32, rate: u32) -> Result<(), KernelError> {
        let valve: [u8; size_of::<Valve>()] = zerocopy::transmute!(Valve::one_in(rate));
        Ok(self.map.set(cpu, valve, 0)?)
    }

    fn of(map: &MapData) -> Result<Self, KernelError> {
        let fd = map.fd().as_fd().try_clone_to_owned().map_err(KernelError::Descriptor)?;
        Ok(Self { map: Array::try_from(Map::Array(MapData::from_fd(fd)?))? })
    }
}

/// The program that closes the window of the CPU on which it runs.
#[derive(Clone, Copy)]
pub struct FlushProgram<'a>(&'a Xdp);

impl FlushProgram<'_> {
    /// Runs it once, on this thread's CPU.
    ///
    /// # Errors
    ///
    /// The kernel refused to run it.
    pub fn run(&self) -> Result<Flush, KernelError> {
        // The program reads no packet, but the kernel wants at least an Ethernet header.
        let result = test_run(self.0, "flush", &[0; 64], None)?;
        Flush::from_code(result).ok_or(KernelError::Missing("flush"))
    }
}

/// Runs a program once on a packet, on this thread's CPU; returns the program's return value.
///
/// # Errors
///
/// The kernel refused to run it.
pub fn test_run(program: &Xdp, name: &'static str, packet: &[u8], context: Option<&[u8]>) -> Result<u32, KernelError> {
    let options = TestRunOptions { data_in: Some(packet), ctx_in: context, ..TestRunOptions::new() };
    let result = program.test_run(options).map_err(|source| KernelError::Run { program: name, source })?;
    Ok(result.return_value)
}
