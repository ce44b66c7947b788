//! Finds other programs at the hooks of an interface: TCX, and the classic tc hook.

use std::{collections::HashMap, io};

use aya::programs::{ProgramError, ProgramInfo, loaded_programs, tc::TcAttachType};
use rustix::thread::CapabilitySet;
use weir_attach::netlink::{Device, Discipline, Filter, Traffic};
use weir_config::interface::Way;
use weir_datapath::tcx_programs;
use weir_system::privileges::way_out;

use super::{Answer, Finding};

/// The names of all loaded programs by their ids; empty without the privilege to see them.
pub fn names() -> HashMap<u32, String> {
    // A program may leave while they are listed.
    let programs = loaded_programs().filter_map(Result::ok);
    programs.filter_map(|program| Some((program.id(), program.name_as_str()?.to_owned()))).collect()
}

/// Returns true if a program with this name is weir's.
pub fn is_ours(name: &str) -> bool {
    name == "weir" || name.starts_with("weir_")
}

/// How messages name a program.
fn named(id: u32, name: Option<&str>) -> String {
    match name {
        Some(name) if is_ours(name) => format!("weir (program {id})"),
        Some(name) if !name.is_empty() => format!("\"{name}\" (program {id}, not weir's)"),
        _ => format!("program {id}"),
    }
}

/// The programs at the hooks of one direction.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// The chain of TCX, in the order in which it runs: ids and names.
    pub chain: HookPrograms<(u32, Option<String>)>,
    /// Filters of the classic tc hook, in their order.
    pub filters: HookPrograms<Filter>,
}

/// The programs at a hook, or why they cannot be seen.
pub type HookPrograms<T> = Result<Vec<T>, String>;

impl Default for Hooks {
    fn default() -> Self {
        Self { chain: Ok(Vec::new()), filters: Ok(Vec::new()) }
    }
}

/// Examines the hooks of one direction.
pub fn examine(device: &Device, way: Way, discipline: Option<Discipline>) -> Hooks {
    let place = match way {
        Way::Ingress => TcAttachType::Ingress,
        Way::Egress => TcAttachType::Egress,
    };
    let named = |program: &ProgramInfo| (program.id(), program.name_as_str().map(str::to_owned));
    let chain = match tcx_programs(&device.name, place) {
        Ok(programs) => Ok(programs.iter().map(named).collect()),
        Err(error) => Err(unseen(&error)),
    };
    let filters = || -> io::Result<Vec<Filter>> { Traffic::open()?.filters(device.ifindex, way) };
    let has_filters = match discipline {
        Some(Discipline::Clsact) => true,
        Some(Discipline::Ingress) => way == Way::Ingress,
        None => false,
    };
    let filters = if has_filters { filters() } else { Ok(Vec::new()) };
    Hooks { chain, filters: filters.map_err(|error| format!("the kernel does not list them: {error}")) }
}

/// Why the programs of a chain cannot be seen. The privileges for attaching are enough to list their ids, but not their
/// names.
fn unseen(error: &ProgramError) -> String {
    let ProgramError::SyscallError(call) = error else { return format!("the kernel gives no answer: {error}") };
    if call.io_error.kind() == io::ErrorKind::PermissionDenied {
        format!("there are programs, but weir may not see which: {}", way_out(CapabilitySet::SYS_ADMIN))
    } else {
        format!("the kernel gives no answer: {}", call.io_error)
    }
}

/// The findings for one direction. `has_tcx`: the kernel is known to support TCX.
pub fn judge(hooks: &Hooks, way: Way, has_tcx: bool, names: &HashMap<u32, String>) -> Vec<Finding> {
    let [tcx, tc] = match way {
        Way::Ingress => ["TCX, received", "tc, received"],
        Way::Egress => ["TCX, sent", "tc, sent"],
    };
    let mut findings = Vec::new();
    match &hooks.chain {
        Ok(chain) if !chain.is_empty() => findings.push(Finding::new(tcx, Answer::Note, of_chain(chain))),
        Err(why) if has_tcx => findings.push(Finding::new(tcx, Answer::Unknown, why)),
        _ => {}
    }
    match &hooks.filters {
        Ok(filters) if !filters.is_empty() => {
            findings.push(Finding::new(tc, Answer::Note, of_filters(filters, names)));
        }
        Ok(_) => {}
        Err(why) => findings.push(Finding::new(tc, Answer::Unknown, why)),
    }
    findings
}

fn of_chain(chain: &[(u32, Option<String>)]) -> String {
    let ours = chain.iter().position(|(_, name)| name.as_deref().is_some_and(is_ours));
    let all: Vec<_> = chain.iter().map(|(id, name)| named(*id, name.as_deref())).collect();
    let consequence = match ours {
        Some(0) if all.len() == 1 => "",
        Some(0) => ". The first one sees every packet",
        Some(_) => ". weir does not see packets that a program before it drops or redirects",
        None => ". weir puts its own program before these",
    };
    format!("in this order: {}{consequence}", all.join(", "))
}

fn of_filters(filters: &[Filter], names: &HashMap<u32, String>) -> String {
    let one = |Filter { priority, kind, program, .. }: &Filter| match program {
        Some(id) => format!("priority {priority}: {}", named(*id, names.get(id).map(String::as_str))),
        None => format!("priority {priority}: {kind}"),
    };
    let all: Vec<_> = filters.iter().map(one).collect();
    format!("{}. They run after XDP and TCX; of weir's modes only `tc` is among them", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(names: &[&str]) -> Hooks {
        let chain = (7..).zip(names.iter().map(|name| Some((*name).to_owned()))).collect();
        Hooks { chain: Ok(chain), ..Hooks::default() }
    }

    fn said(hooks: &Hooks, way: Way) -> Vec<(&'static str, String)> {
        let names = HashMap::from([(42, "cls_main".to_owned())]);
        judge(hooks, way, true, &names).into_iter().map(|finding| (finding.name, finding.detail)).collect()
    }

    #[test]
    fn a_chain_is_listed_in_order_with_its_consequence() {
        assert_eq!(said(&chain(&[]), Way::Ingress), []);
        for (names, expected) in [
            (&["weir_tc"][..], "in this order: weir (program 7)"),
            (
                &["weir_tc", "cil_from"],
                "in this order: weir (program 7), \"cil_from\" (program 8, not weir's). The first one sees every \
                 packet",
            ),
            (
                &["cil_from", "weir_tc"],
                "in this order: \"cil_from\" (program 7, not weir's), weir (program 8). weir does not see packets \
                 that a program before it drops or redirects",
            ),
            (&["weirdo"], "in this order: \"weirdo\" (program 7, not weir's). weir puts its own program before these"),
        ] {
            assert_eq!(said(&chain(names), Way::Egress), [("TCX, sent", expected.to_owned())]);
        }
        let hidden = Hooks { chain: Err("hidden".to_owned()), ..Hooks::default() };
        assert_eq!(judge(&hidden, Way::Ingress, true, &HashMap::new())[0].answer, Answer::Unknown);
        assert_eq!(judge(&hidden, Way::Ingress, false, &HashMap::new()), []);
        let unlisted = Hooks { filters: Err("not listed".to_owned()), ..Hooks::default() };
        assert_eq!(judge(&unlisted, Way::Egress, true, &HashMap::new())[0].answer, Answer::Unknown);
    }

    #[test]
    fn filters_are_listed_with_their_programs() {
        let filter = |priority, kind: &str, program| {
            let kind = kind.to_owned();
            Filter { priority, handle: 1, protocol: 3_u16.to_be(), kind, chain: 0, program }
        };
        let filters = vec![filter(1, "bpf", Some(42)), filter(2, "bpf", Some(43)), filter(49_152, "flower", None)];
        let hooks = Hooks { filters: Ok(filters), ..Hooks::default() };
        let [(name, detail)] = &said(&hooks, Way::Ingress)[..] else { panic!("one finding") };
        let expected =
            "priority 1: \"cls_main\" (program 42, not weir's), priority 2: program 43, priority 49152: flower.";
        assert!(*name == "tc, received" && detail.starts_with(expected), "{name}: {detail}");
    }
}
