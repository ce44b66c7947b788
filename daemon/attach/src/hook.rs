//! The classic tc hook, which weir uses on kernels without TCX (before Linux 6.6), or if it is configured.
//!
//! A filter at this hook stays when its process ends. So weir removes its filters: when it stops, when it starts (those
//! of an earlier weir), and on `weir detach`. weir recognizes its filters by their *program*, because any process can
//! use any filter name. It leaves all other filters alone.
//!
//! Filters need a queueing discipline, `clsact`. weir adds one if there is none, and leaves it there: without filters
//! it does nothing. When one is added or removed, the kernel stops the interface's sending for a moment and drops
//! packets (`dev_deactivate()` in `qdisc_graft()`). So weir adds it once per interface, and not at each start and stop.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::fd::AsFd as _,
};

use aya::{maps::loaded_maps, programs::SchedClassifier, programs::loaded_programs};
use rustix::io::Errno;
use tracing::{debug, warn};
use weir_config::interface::Way;
use weir_datapath::{Chains, syscall::Hook};
use weir_system::bounded;

use super::{
    error::AttachError,
    netlink::{Device, Devices, Discipline, Filter, Traffic},
    sign::{self, named},
    watch::Position,
};

/// The name of weir's filters.
const NAME: &str = "weir";
/// Handles of weir's filters are this number plus the program's id, so that two daemons use different ones.
const HANDLES: u32 = 0x7765_0000;
/// Maps that every version of weir's programs uses. The name of a program alone may not be unique.
const MAPS: [&str; 2] = ["CPUS", "RINGS"];

/// A filter of this process. It is removed on drop.
pub struct Hooked {
    name: String,
    ifindex: u32,
    way: Way,
    program: u32,
}

impl Drop for Hooked {
    fn drop(&mut self) {
        match Traffic::open().and_then(|mut traffic| remove(&mut traffic, self.ifindex, self.way, self.program)) {
            Ok(()) => {}
            // The interface is gone, and so are its filters.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => {}
            Err(error) => warn!(
                interface = %self.name, direction = self.way.name(),
                "weir's filter stays at the tc hook: {error}. `weir detach {}` removes it", self.name
            ),
        }
    }
}

impl Hooked {
    /// Finds where the filter is now. Another process may have removed it, removed the queueing discipline with all its
    /// filters, or added a filter before it.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn position(&self, traffic: &mut Traffic, chains: &Chains) -> io::Result<Position> {
        let Self { ifindex, way, program, .. } = *self;
        if !ways(traffic.discipline(ifindex)?).contains(&way) {
            return Ok(Position::Removed);
        }
        let mut filters = traffic.filters(ifindex, way)?;
        let Some(at) = filters.iter().position(|filter| filter.program == Some(program)) else {
            return Ok(Position::Removed);
        };
        let first = filters.remove(at).priority;
        let is_weir = |filter: &Filter| filter.program.is_some_and(sign::is_weir);
        let before = filters.iter().take(at).filter(|filter| filter.chain == 0 && !is_weir(filter));
        let mut who: Vec<_> = before.map(name_of).collect();
        let has_room = priority(&filters) < first || filters.first().is_some_and(Filter::is_for_every_packet);
        let can_move = has_room && !who.is_empty();
        who.extend(before_filters(chains, ifindex, way));
        Ok(if who.is_empty() { Position::First } else { Position::Behind { who, can_move } })
    }
}

/// TCX programs of other processes, which the kernel runs before all filters. Before Linux 6.6 there is no TCX.
fn before_filters(chains: &Chains, ifindex: u32, way: Way) -> impl Iterator<Item = String> {
    let hook = match way {
        Way::Ingress => Hook::TcxIngress,
        Way::Egress => Hook::TcxEgress,
    };
    let chain = chains.of(ifindex, hook).unwrap_or_default();
    chain.into_iter().filter(|one| !sign::is_weir(one.program)).map(|one| named(one.program))
}

/// The name of a filter for messages.
fn name_of(filter: &Filter) -> String {
    let Filter { kind, priority, program, .. } = filter;
    let program = program.map_or_else(String::new, |program| format!(" ({})", named(program)));
    format!("a {kind} filter of priority {priority}{program}")
}

/// Attaches a program to the packets that an interface receives, or to those that it sends.
///
/// # Errors
///
/// There is no room for it, or the kernel refused.
pub fn attach(device: &Device, way: Way, program: &SchedClassifier) -> Result<Hooked, AttachError> {
    let Device { ifindex, ref name, .. } = *device;
    let (id, fd) = match (program.info(), program.fd()) {
        (Ok(info), Ok(fd)) => (info.id(), fd),
        (Err(source), _) | (_, Err(source)) => {
            return Err(AttachError::Refused { name: name.clone(), mode: "tc", source });
        }
    };
    let attach = || -> io::Result<Result<(), AttachError>> {
        let mut traffic = Traffic::open()?;
        match traffic.discipline(ifindex)? {
            Some(Discipline::Ingress) if way == Way::Egress => {
                return Ok(Err(AttachError::OnlyIngress(name.clone())));
            }
            Some(_) => {}
            None => traffic.add_clsact(ifindex)?,
        }
        let filters = traffic.filters(ifindex, way)?;
        let priority = priority(&filters);
        if let Some(first) = filters.first().filter(|first| first.priority < priority) {
            warn!(
                interface = %name, direction = way.name(),
                "a {} filter of priority {} runs before weir's at the tc hook: weir sees only what it passes on",
                first.kind, first.priority
            );
        }
        let handle = HANDLES.wrapping_add(id);
        traffic.add_filter(ifindex, way, priority, handle, fd.as_fd(), NAME).map(Ok)
    };
    match attach() {
        Ok(Ok(())) => Ok(Hooked { name: name.clone(), ifindex, way, program: id }),
        Ok(Err(error)) => Err(error),
        Err(source) => Err(refused(name, source)),
    }
}

fn refused(name: &str, source: io::Error) -> AttachError {
    let name = name.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::PERM | Errno::ACCESS) => AttachError::NotPermitted(name),
        Some(Errno::NODEV) => AttachError::Vanished(name),
        _ => AttachError::NoFilter { name, source },
    }
}

/// The smallest priority number that a `bpf` filter for all packets can have beside these filters: filters of the same
/// priority must agree on the protocol. Within a priority the kernel runs the newest filter first.
fn priority(filters: &[Filter]) -> u16 {
    let taken: HashSet<u16> =
        filters.iter().filter(|filter| !filter.is_for_every_packet()).map(|filter| filter.priority).collect();
    (1..u16::MAX).find(|priority| !taken.contains(priority)).unwrap_or(u16::MAX)
}

/// All filters of an interface.
fn of_interface(traffic: &mut Traffic, ifindex: u32) -> io::Result<Vec<(Way, Filter)>> {
    let mut all = Vec::new();
    for &way in ways(traffic.discipline(ifindex)?) {
        all.extend(traffic.filters(ifindex, way)?.into_iter().map(|filter| (way, filter)));
    }
    Ok(all)
}

/// The directions that may have filters.
const fn ways(discipline: Option<Discipline>) -> &'static [Way] {
    match discipline {
        Some(Discipline::Clsact) => &[Way::Ingress, Way::Egress],
        Some(Discipline::Ingress) => &[Way::Ingress],
        None => &[],
    }
}

fn find(traffic: &mut Traffic, ifindex: u32, way: Way, program: u32) -> io::Result<Option<Filter>> {
    if !ways(traffic.discipline(ifindex)?).contains(&way) {
        return Ok(None);
    }
    Ok(traffic.filters(ifindex, way)?.into_iter().find(|filter| filter.program == Some(program)))
}

/// Removes the filter with this program.
fn remove(traffic: &mut Traffic, ifindex: u32, way: Way, program: u32) -> io::Result<()> {
    let Some(filter) = find(traffic, ifindex, way, program)? else { return Ok(()) };
    traffic.remove_filter(ifindex, way, &filter)
}

/// A filter of weir at a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The name of the interface.
    pub interface: String,
    /// The index of the interface.
    ifindex: u32,
    /// The direction in which the filter sees packets.
    pub way: Way,
    /// The id of its program.
    pub program: u32,
    /// True if a running weir uses it. If so, it is not left over.
    pub is_used: bool,
    /// The process id of that weir, if visible.
    pub owner: Option<u32>,
}

impl Leftover {
    /// Removes it, unless its weir still runs.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn remove_if_left(&self) -> io::Result<()> {
        if self.is_used {
            return Ok(());
        }
        match Traffic::open().and_then(|mut traffic| remove(&mut traffic, self.ifindex, self.way, self.program)) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(()),
            removed => removed,
        }
    }
}

/// The filters found at the classic tc hooks of a network namespace.
#[derive(Debug, Default)]
pub struct FoundFilters {
    /// The filters of weir.
    pub filters: Vec<Leftover>,
    /// The first interface whose filters the kernel did not list, if any, and why.
    pub unread: Option<(String, io::Error)>,
}

/// All filters of weir at the classic tc hooks of this network namespace.
///
/// # Errors
///
/// The kernel did not answer. [`io::ErrorKind::PermissionDenied`] means that there are filters with programs, and that
/// only root can find out whose programs they are.
pub fn leftovers() -> io::Result<FoundFilters> {
    let mut traffic = Traffic::open()?;
    let (mut found, mut unread) = (Vec::new(), None);
    for device in Devices::open()?.list()? {
        match of_interface(&mut traffic, device.ifindex) {
            Ok(filters) => found.extend(filters.into_iter().filter_map(|(way, filter)| {
                let (interface, ifindex) = (device.name.clone(), device.ifindex);
                Some(Leftover { interface, ifindex, way, program: filter.program?, is_used: false, owner: None })
            })),
            // The interface has vanished meanwhile, and so have its filters.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => {}
            Err(error) => unread = unread.or(Some((device.name, error))),
        }
    }
    if found.is_empty() {
        return Ok(FoundFilters { filters: found, unread });
    }
    let ours = programs_of_weir()?;
    found.retain(|filter| ours.contains(&filter.program));
    let owners = if found.is_empty() { HashMap::new() } else { owners()? };
    for filter in &mut found {
        filter.owner = owners.get(&filter.program).copied();
        filter.is_used = filter.owner.is_some() || sign::is_weir(filter.program);
    }
    Ok(FoundFilters { filters: found, unread })
}

/// The ids of all loaded programs of weir, in any process.
fn programs_of_weir() -> io::Result<HashSet<u32>> {
    let forbidden = |error: &dyn std::error::Error| {
        debug!("cannot find out which programs are weir's: {error}");
        io::Error::from(io::ErrorKind::PermissionDenied)
    };
    let mut names = HashMap::new();
    for map in loaded_maps() {
        match map {
            Ok(map) => drop(names.insert(map.id(), map.name_as_str().unwrap_or_default().to_owned())),
            Err(error) if names.is_empty() => return Err(forbidden(&error)),
            // The program has vanished meanwhile.
            Err(_) => {}
        }
    }
    let is_ours = |program: &aya::programs::ProgramInfo| {
        let maps = program.map_ids().ok().flatten().unwrap_or_default();
        let uses = |name: &str| maps.iter().any(|map| names.get(map).is_some_and(|its_name| its_name == name));
        program.name_as_str().is_some_and(|name| name.starts_with("weir_")) && MAPS.iter().all(|map| uses(map))
    };
    Ok(loaded_programs().filter_map(Result::ok).filter(is_ours).map(|program| program.id()).collect())
}

/// Maps each program to a process that has it open, as far as processes are visible.
fn owners() -> io::Result<HashMap<u32, u32>> {
    let mut owners = HashMap::new();
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end during the scan, and so may each of its descriptors.
        let Ok(descriptors) = fs::read_dir(process.path().join("fdinfo")) else { continue };
        for descriptor in descriptors.filter_map(Result::ok) {
            let Ok(info) = bounded::read_to_string(descriptor.path()) else { continue };
            let program = info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
            if let Some(program) = program {
                owners.insert(program, pid);
            }
        }
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(priority: u16, kind: &str) -> Filter {
        let protocol = 3_u16.to_be();
        Filter { priority, handle: 1, protocol, kind: kind.to_owned(), chain: 0, program: None }
    }

    #[test]
    fn weir_runs_first_unless_the_priority_cannot_be_shared() {
        assert_eq!(priority(&[]), 1);
        assert_eq!(priority(&[filter(49_152, "flower")]), 1);
        assert_eq!(priority(&[filter(1, "bpf")]), 1, "beside other programs");
        assert_eq!(priority(&[filter(1, "u32"), filter(1, "u32"), filter(3, "u32")]), 2);
        let of_ipv4 = Filter { protocol: 0x0800_u16.to_be(), ..filter(1, "bpf") };
        assert_eq!(priority(&[of_ipv4, filter(2, "bpf")]), 2);
    }

    #[test]
    fn refusals_of_the_kernel_are_distinguished() {
        for (errno, expected) in [
            (Errno::PERM, "NotPermitted"),
            (Errno::ACCESS, "NotPermitted"),
            (Errno::NODEV, "Vanished"),
            (Errno::OPNOTSUPP, "NoFilter"),
        ] {
            let error = refused("eth0", io::Error::from_raw_os_error(errno.raw_os_error()));
            assert!(format!("{error:?}").starts_with(expected), "{errno}: {error:?}");
        }
    }
}
