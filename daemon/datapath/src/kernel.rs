//! The kernel side: loads the object, creates its maps, and hands out its parts.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{ArrayOfMaps, Map, MapData, MapError},
    programs::{Program, RawTracePoint, Xdp},
    sys::SyscallError,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Serialize;
use tracing::debug;
use weir_config::interface::Way;
use weir_system::sandbox;

use super::{
    constants::Constants,
    cpu::Cpus,
    error::KernelError,
    features::Features,
    maps::{Blocks, INTERFACES, InterfaceTable, Valves},
    object::object,
    plan::Plan,
    preemption::Preemption,
    programs::{FlushProgram, TcPrograms, XdpPrograms},
    ring::Ring,
};

/// The programs that [`Kernel::loaded`] reports.
const PROGRAMS: [&str; 8] =
    ["weir", "weir_linear", "weir_generic", "weir_gen_linear", "weir_ingress", "weir_egress", "flush", "replay"];

/// A program that the kernel accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadedProgram {
    /// The name of the program in the object.
    pub name: &'static str,
    /// How many instructions the verifier processed, out of at most a million. Linux reports this since 5.16.
    pub verified_instructions: Option<u32>,
}

/// The eBPF programs and maps, once the kernel has accepted them.
pub struct Kernel {
    ebpf: Ebpf,
    rings: Rings,
    valves: MapData,
    blocks: Blocks,
    interfaces: InterfaceTable,
    features: Features,
}

/// The rings of all CPUs.
pub struct Rings {
    map: ArrayOfMaps<MapData>,
    /// The ring size of each CPU.
    bytes: Vec<u32>,
    /// Rings that have no reader yet.
    made: BTreeMap<u32, MapData>,
}

/// The loaded object's parts, borrowed while weir measures.
pub struct Parts<'a> {
    /// The programs to attach to interfaces as XDP. They do not use fragments if the kernel does not support them.
    pub xdp: XdpPrograms<'a>,
    /// The programs to attach to interfaces at the tc hook.
    pub tc: TcPrograms<'a>,
    /// The program that closes a CPU's window.
    pub flush: FlushProgram<'a>,
    /// The rings of all CPUs.
    pub rings: &'a mut Rings,
    /// The program that measures one captured packet; [`Kernel::load_replay`] loads it.
    pub replay: &'a Xdp,
    /// XDP programs that are not in weir's own object, by name; [`Kernel::load_other`] loads them.
    pub others: Vec<(&'a str, &'a Xdp)>,
    /// The table that maps interface indexes to slots.
    pub interfaces: &'a mut InterfaceTable,
}

impl Parts<'_> {
    /// The ids of the loaded programs that are meant to be attached.
    pub fn attached(&self) -> Vec<u32> {
        self.xdp.loaded().chain(self.tc.loaded()).map(|program| program.id()).collect()
    }
}

impl Kernel {
    /// Loads the maps, and the programs that this kernel supports. Attaches nothing, and creates no rings yet.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn load(plan: &Plan) -> Result<Self, KernelError> {
        let preemption = Preemption::of_this_kernel();
        if !preemption.is_safe() {
            return Err(KernelError::Preemptible(preemption.words()));
        }
        Self::load_with(plan, Features::of_this_kernel())
    }

    /// Like [`Kernel::load`], for a kernel that supports at most `features`.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn load_with(plan: &Plan, features: Features) -> Result<Self, KernelError> {
        Self::load_from(object, plan, features)
    }

    /// Like [`Kernel::load_with`], from another object with the same programs and maps, and possibly more programs.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn load_object(object: &[u8], plan: &Plan, features: Features) -> Result<Self, KernelError> {
        Self::load_from(|| object.to_vec(), plan, features)
    }

    /// The same. There is only one copy of the object at a time: it is large.
    fn load_from(object: impl Fn() -> Vec<u8>, plan: &Plan, features: Features) -> Result<Self, KernelError> {
        if let Some(flags) = features.packet_flags {
            match Self::load_as_it_is(&flags.put_into(object()), plan, features) {
                Ok(kernel) => return Ok(kernel),
                Err(error) => debug!("the program that reads a packet's flags is not loaded: {error}"),
            }
        }
        Self::load_as_it_is(&object(), plan, Features { packet_flags: None, ..features })
    }

    fn load_as_it_is(object: &[u8], plan: &Plan, features: Features) -> Result<Self, KernelError> {
        let mut kernel = Self::with_maps(object, plan, features)?;
        load_programs(&mut kernel.ebpf, &[features.program()])?;
        Ok(kernel)
    }

    /// Like [`Kernel::load`], with the replay program instead of those that measure interfaces.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn for_replay(plan: &Plan) -> Result<Self, KernelError> {
        let mut kernel = Self::with_maps(&object(), plan, Features::of_this_kernel())?;
        kernel.load_replay()?;
        Ok(kernel)
    }

    /// Loads the maps, and the program that closes windows.
    fn with_maps(object: &[u8], plan: &Plan, features: Features) -> Result<Self, KernelError> {
        // Kernels before 5.11 charge maps to this limit. Later ones do not use it, so a refusal does not matter.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
        let layout = Cpus::of_this_machine()?.layout(plan.cache_flows, plan.ring_bytes)?;
        let cpus = layout.blocks.len() as u32;
        let constants = Constants::of(plan);
        let mut loader = sandbox::without_files(EbpfLoader::new);
        for (name, value) in constants.named() {
            loader.override_global(name, value, true);
        }
        // Otherwise aya would read and parse the types of the kernel, which weir's programs do not refer to: 9 MiB.
        let mut ebpf = loader
            .btf(None)
            .map_max_entries("CPUS", cpus)
            .map_max_entries("VALVES", cpus)
            .map_max_entries("HANDED_OVER", cpus)
            .map_max_entries("CACHE", layout.slots)
            .load(object)
            .map_err(load_error)?;
        let mut blocks = Blocks::new(take(&mut ebpf, "CPUS")?, take(&mut ebpf, "HANDED_OVER")?)?;
        for (cpu, part) in (0..).zip(&layout.blocks) {
            blocks.change(cpu, |block| {
                block.first_slot = part.first_slot;
                block.place_shift = u64::BITS - part.bits;
                block.ring_bytes = part.ring_bytes;
            })?;
        }
        let rings = Rings {
            map: ArrayOfMaps::try_from(take(&mut ebpf, "RINGS")?)?,
            bytes: layout.blocks.iter().map(|part| part.ring_bytes).collect(),
            made: BTreeMap::new(),
        };
        let interfaces = InterfaceTable::new(take(&mut ebpf, INTERFACES)?, take(&mut ebpf, "PASSING")?)?;
        let Map::Array(valves) = take(&mut ebpf, "VALVES")? else { return Err(KernelError::Missing("VALVES")) };
        let mut hold = Valves::of(&valves)?;
        for cpu in 0..cpus {
            hold.set(cpu, plan.sampling.first_rate())?;
        }
        let flush = ebpf.program_mut("flush").ok_or(KernelError::Missing("flush"))?;
        <&mut RawTracePoint>::try_from(flush)
            .and_then(RawTracePoint::load)
            .map_err(|source| KernelError::Program { program: "flush", source })?;
        Ok(Self { ebpf, rings, valves, blocks, interfaces, features })
    }

    /// Loads the replay program.
    ///
    /// # Errors
    ///
    /// The kernel refused it.
    pub fn load_replay(&mut self) -> Result<(), KernelError> {
        load_programs(&mut self.ebpf, &["replay"])
    }

    /// Loads an XDP program that is not in weir's own object.
    ///
    /// # Errors
    ///
    /// There is no such program, or the kernel refused it.
    pub fn load_other(&mut self, program: &'static str) -> Result<(), KernelError> {
        load_programs(&mut self.ebpf, &[program])
    }

    /// Creates the ring of `cpu`.
    ///
    /// # Errors
    ///
    /// The map could not be created, or its reader could not be set up.
    pub fn ring(&mut self, cpu: u32) -> Result<Ring, KernelError> {
        self.rings.take(cpu)
    }

    /// The programs that the kernel has accepted so far.
    pub fn loaded(&self) -> Vec<LoadedProgram> {
        PROGRAMS
            .into_iter()
            .filter_map(|name| {
                let info = self.ebpf.program(name)?.info().ok()?;
                Some(LoadedProgram { name, verified_instructions: info.verified_instruction_count() })
            })
            .collect()
    }

    /// Access to the valves for another thread.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn valves(&self) -> Result<Valves, KernelError> {
        Valves::of(&self.valves)
    }

    /// Splits this value into parts that can be used independently.
    ///
    /// # Errors
    ///
    /// A program is missing from the object.
    pub fn parts(&mut self) -> Result<Parts<'_>, KernelError> {
        let (mut native, mut generic, mut flush, mut replay) = (None, None, None, None);
        let mut others = Vec::new();
        let (mut ethernet, mut ip) = ([None, None], [None, None]);
        for (name, program) in self.ebpf.programs_mut() {
            match (name, program) {
                ("flush", Program::RawTracePoint(program)) => flush = program.fd().ok().map(|fd| fd.as_fd()),
                ("weir_ingress", Program::SchedClassifier(program)) => ethernet[Way::Ingress as usize] = Some(program),
                ("weir_egress", Program::SchedClassifier(program)) => ethernet[Way::Egress as usize] = Some(program),
                ("weir_ingress_ip", Program::SchedClassifier(program)) => ip[Way::Ingress as usize] = Some(program),
                ("weir_egress_ip", Program::SchedClassifier(program)) => ip[Way::Egress as usize] = Some(program),
                (name, Program::Xdp(program)) => match name {
                    _ if name == self.features.program() => native = Some(program),
                    _ if name == self.features.generic_program() => generic = Some(program),
                    "replay" => replay = Some(&*program),
                    // These programs are for kernels with other features.
                    _ if name.starts_with("weir") => {}
                    _ => others.push((name, &*program)),
                },
                _ => {}
            }
        }
        let ([Some(ingress), Some(egress)], [Some(ingress_ip), Some(egress_ip)]) = (ethernet, ip) else {
            return Err(KernelError::Missing("weir_ingress"));
        };
        Ok(Parts {
            xdp: XdpPrograms {
                native: native.ok_or(KernelError::Missing(self.features.program()))?,
                generic: generic.ok_or(KernelError::Missing(self.features.generic_program()))?,
            },
            tc: TcPrograms { ethernet: [ingress, egress], ip: [ingress_ip, egress_ip] },
            flush: FlushProgram::new(flush.ok_or(KernelError::Missing("flush"))?, &self.blocks),
            rings: &mut self.rings,
            replay: replay.ok_or(KernelError::Missing("replay"))?,
            others,
            interfaces: &mut self.interfaces,
        })
    }
}

impl Rings {
    /// Creates the rings of all CPUs, including those that may be added: later the daemon may lack the privilege. A
    /// CPU's records stay in its ring until it has a reader.
    ///
    /// # Errors
    ///
    /// A map could not be created.
    pub fn make_all(&mut self) -> Result<(), KernelError> {
        for cpu in 0..self.bytes.len() as u32 {
            let map = self.map_of(cpu)?;
            self.made.insert(cpu, map);
        }
        Ok(())
    }

    /// The rings that exist and have no reader yet, with their CPUs.
    pub fn made(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.made.iter().map(|(cpu, map)| (*cpu, map.fd().as_fd()))
    }

    /// The ring of `cpu`. Creates it if needed.
    ///
    /// # Errors
    ///
    /// There is no room for this CPU, the map could not be created, or its reader could not be set up.
    pub fn take(&mut self, cpu: u32) -> Result<Ring, KernelError> {
        let map = self.made.remove(&cpu).map_or_else(|| self.map_of(cpu), Ok)?;
        Ring::new(cpu, map, self.bytes_of(cpu)?)
    }

    fn bytes_of(&self, cpu: u32) -> Result<u32, KernelError> {
        self.bytes.get(cpu as usize).copied().ok_or(KernelError::NoPlace(cpu))
    }

    /// Creates a ring that `cpu` writes to from now on.
    fn map_of(&mut self, cpu: u32) -> Result<MapData, KernelError> {
        let kind = aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32;
        let definition = aya_obj::Map::new_from_params(kind, 0, 0, self.bytes_of(cpu)?, 0);
        let map = MapData::create(definition, "weir_ring", None)?;
        self.map.set(cpu, &map, 0)?;
        Ok(map)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_what_weir_runs_and_nothing_else() {
        let object = aya_obj::Object::parse(&object()).unwrap();
        let mut programs: Vec<_> = object.programs.keys().map(String::as_str).collect();
        programs.sort_unstable();
        let expected = [
            "flush",
            "replay",
            "weir",
            "weir_egress",
            "weir_egress_ip",
            "weir_gen_linear",
            "weir_generic",
            "weir_ingress",
            "weir_ingress_ip",
            "weir_linear",
        ];
        assert_eq!(programs, expected);
        let mut maps: Vec<_> = object.maps.keys().map(String::as_str).collect();
        maps.sort_unstable();
        // `.rodata` has the constants that the loader sets.
        assert_eq!(
            maps,
            [INTERFACES, ".rodata", "CACHE", "CPUS", "HANDED_OVER", "PASSING", "RINGS", "SCRATCH", "VALVES"]
        );
    }
}
