//! Examines an interface without attaching to it.

use std::{collections::HashMap, io, slice};

use weir_attach::{
    GenericXdp, NO_DEFAULT_ROUTE, NONE_FITS, Obtained, attach_methods, covers, link_layer, list,
    netlink::{self, Device, Devices, Discipline, Flowtable, Traffic, XDP_BASIC, XDP_FRAGMENTS, XdpProgram},
};
use weir_common::packet;
use weir_config::{Direction, Interface, Mode, interface::Way};
use weir_datapath::{Features, online_cpus, probe_tcx, tap::PacketSocket};
use weir_system::numbers::grouped;

use super::{
    Answer, Finding, InterfaceFindings, bypass,
    hooks::{self, Hooks},
    restart,
    sysfs::{self, Queues},
};

/// The largest MTU whose frames fit into one page next to the kernel's own data. It differs a little between drivers.
const PIECE_MTU_MAX: u32 = 3498;
/// Drivers that have native XDP in every kernel that weir runs on. The list is for kernels that do not report what a
/// driver can do.
const NATIVE: [&str; 20] = [
    "bnxt_en",
    "cpsw",
    "ena",
    "fsl_dpaa2_eth",
    "hv_netvsc",
    "i40e",
    "ice",
    "ixgbe",
    "ixgbevf",
    "mlx4_en",
    "mlx5_core",
    "mvneta",
    "mvpp2",
    "nfp",
    "qede",
    "sfc",
    "thunder-nicvf",
    "tun",
    "veth",
    "virtio_net",
];

/// Examines an interface of the configuration, or all that match its pattern or carry the default route.
pub fn examine(rule: &Interface, has_programs: bool) -> Vec<InterfaceFindings> {
    let examine_one = |name: &str| examine_one(rule, name, has_programs);
    if rule.is_named() {
        return vec![examine_one(&rule.name)];
    }
    let devices = match Devices::open().and_then(|mut devices| list(&mut devices, slice::from_ref(rule))) {
        Ok(devices) => devices,
        Err(error) => return vec![InterfaceFindings { name: rule.name.clone(), findings: vec![no_answer(&error)] }],
    };
    let fitting = devices.iter().filter(|device| covers(rule, device));
    let fitting: Vec<_> = fitting.map(|device| examine_one(&device.name)).collect();
    if fitting.is_empty() {
        let none = if rule.is_default_route() { NO_DEFAULT_ROUTE } else { NONE_FITS };
        let findings = vec![Finding::new("there", Answer::Note, none)];
        return vec![InterfaceFindings { name: rule.name.clone(), findings }];
    }
    fitting
}

/// The names of all interfaces.
fn names() -> io::Result<Vec<String>> {
    Ok(Devices::open()?.list()?.into_iter().map(|device| device.name).collect())
}

fn examine_one(rule: &Interface, name: &str, has_programs: bool) -> InterfaceFindings {
    let findings = match Devices::open().and_then(|mut devices| devices.find(name)) {
        Ok(Some(device)) => {
            let discipline = Traffic::open().and_then(|mut traffic| traffic.discipline(device.ifindex)).ok().flatten();
            let devices = Devices::open().and_then(|mut devices| devices.list()).unwrap_or_default();
            let facts = Facts {
                generic: GenericXdp::before(&device, &devices),
                driver: sysfs::driver(&device),
                xdp_features: netlink::xdp_features(device.ifindex),
                fragments: Features::of_this_kernel().fragments,
                tcx: probe_tcx().ok(),
                discipline,
                has_programs,
                packet_sockets: PacketSocket::is_permitted(),
                offloads: netlink::offloads(device.ifindex),
                flowtables: bypass::flowtables(),
                hooks: Way::ALL.map(|way| hooks::examine(&device, way, discipline)),
                programs: hooks::names(),
                queues: sysfs::queues(&device),
                cpus: online_cpus().map_or(0, |cpus| cpus.len()),
                losses: netlink::losses(device.ifindex).ok(),
                device,
            };
            let mut findings = judge(&facts, rule.mode, rule.direction);
            if facts.device.name != name {
                let detail = format!("an alternative name of {}, which reports name", facts.device.name);
                findings.insert(1, Finding::new("name", Answer::Note, detail));
            }
            findings
        }
        Ok(None) => {
            let have = names().unwrap_or_default().join(", ");
            vec![Finding::needed("there", Answer::No, format!("interface \"{name}\" not found (have: {have})"))]
        }
        Err(error) => vec![no_answer(&error)],
    };
    InterfaceFindings { name: name.to_owned(), findings }
}

fn no_answer(error: &io::Error) -> Finding {
    Finding::needed("there", Answer::Unknown, format!("the kernel gives no answer: {error}"))
}

/// The facts about an interface.
#[derive(Clone, Debug, Default)]
struct Facts {
    device: Device,
    /// The generic XDP program that packets pass before the tc hook.
    generic: Option<GenericXdp>,
    driver: Option<String>,
    xdp_features: Option<u64>,
    fragments: bool,
    tcx: Option<bool>,
    discipline: Option<Discipline>,
    has_programs: bool,
    packet_sockets: bool,
    /// The offloads that are on; `None` if the kernel does not report them.
    offloads: Option<Vec<String>>,
    /// The flowtables of the machine; `None` if this process may not list them.
    flowtables: Option<Vec<Flowtable>>,
    /// The programs at the hooks for received packets, and for sent ones.
    hooks: [Hooks; 2],
    /// The names of loaded programs.
    programs: HashMap<u32, String>,
    queues: Option<Queues>,
    /// The number of online CPUs.
    cpus: usize,
    /// The interface's own non-zero counters of lost packets; `None` if the kernel does not report them.
    losses: Option<Vec<(&'static str, u64)>>,
}

fn judge(facts: &Facts, mode: Mode, direction: Direction) -> Vec<Finding> {
    let Facts { device, driver, .. } = facts;
    let driver = driver.as_deref().unwrap_or("not known");
    let mut findings = vec![
        Finding::needed("there", Answer::Yes, format!("index {}, driver {driver}, MTU {}", device.ifindex, device.mtu)),
        if device.up {
            Finding::new("up", Answer::Yes, "set up")
        } else {
            Finding::new("up", Answer::No, format!("it receives no packets: ip link set {} up", device.name))
        },
        native(facts),
        free(device, facts.owner()),
    ];
    findings.extend(facts.generic.as_ref().map(|found| Finding::new("generic XDP", Answer::Note, found.to_string())));
    let has_tcx = facts.tcx == Some(true);
    for (way, hooks) in Way::ALL.into_iter().zip(&facts.hooks) {
        findings.extend(hooks::judge(hooks, way, has_tcx, &facts.programs));
    }
    findings.extend(direction.ways().iter().map(|&way| measured(facts, mode, way)));
    let likely: Vec<_> = direction.ways().iter().filter_map(|&way| Some((way, likely(facts, mode, way)?))).collect();
    findings.extend(restart::of_interface(&likely, mode, has_tcx));
    findings.extend(hints(facts));
    findings.extend(bypass::of_interface(&device.name, facts.flowtables.as_deref()));
    findings.extend(facts.queues.as_ref().map(|queues| spread(queues, facts)));
    findings.extend(lost(facts.losses.as_deref()));
    findings
}

impl Facts {
    /// The name of the XDP program on it.
    fn owner(&self) -> Option<&str> {
        self.programs.get(&self.device.xdp?.id?).map(String::as_str)
    }
}

/// How `weir run` is likely to see the packets of this direction: the first method that is not known to fail.
fn likely(facts: &Facts, mode: Mode, way: Way) -> Option<Obtained> {
    // If weir's own XDP program is already attached, native XDP is still possible.
    let ours = facts.owner().is_some_and(hooks::is_ours) && way == Way::Ingress;
    let fails = |method| holds(facts, way, method) == Answer::No && !(ours && method == Obtained::Native);
    attach_methods(&facts.device, mode, way, facts.has_programs).iter().copied().find(|&method| !fails(method))
}

/// How `weir run` would see the packets of this direction: the first method that works.
fn measured(facts: &Facts, mode: Mode, way: Way) -> Finding {
    let name = match way {
        Way::Ingress => "what it receives",
        Way::Egress => "what it sends",
    };
    if link_layer(&facts.device) == packet::Link::Other {
        let detail = format!("weir cannot read its packets (hardware type {})", facts.device.hardware);
        return Finding::needed(name, Answer::No, detail);
    }
    let (mut perhaps, mut lacks) = (Vec::new(), Vec::new());
    for &method in attach_methods(&facts.device, mode, way, facts.has_programs) {
        match holds(facts, way, method) {
            Answer::Yes => {
                let detail = match perhaps.first() {
                    Some(first) => format!("by {first}, or else by {}", method.name()),
                    None => format!("by {}", method.name()),
                };
                return Finding::needed(name, Answer::Yes, detail);
            }
            Answer::No => lacks.push(method.name()),
            _ => perhaps.push(method.name()),
        }
    }
    match perhaps.first() {
        Some(first) => Finding::needed(name, Answer::Unknown, format!("by {first}, if the kernel accepts it")),
        None => Finding::needed(name, Answer::No, format!("not possible by {} (see above)", lacks.join(", "))),
    }
}

/// Answers if this method works.
fn holds(facts: &Facts, way: Way, method: Obtained) -> Answer {
    let for_xdp = link_layer(&facts.device) == packet::Link::Ethernet && facts.device.xdp.is_none();
    match method {
        Obtained::Native if for_xdp => native(facts).answer,
        Obtained::Generic if for_xdp => Answer::Yes,
        Obtained::Tcx => facts.tcx.map_or(Answer::Unknown, |has| if has { Answer::Yes } else { Answer::No }),
        // `ingress` is in the place of `clsact`, and has no hook for sent packets.
        Obtained::Tc if way == Way::Egress && facts.discipline == Some(Discipline::Ingress) => Answer::No,
        // Only attaching shows whether the kernel has the modules.
        Obtained::Tc => {
            if facts.discipline.is_some() {
                Answer::Yes
            } else {
                Answer::Unknown
            }
        }
        Obtained::AfPacket if facts.packet_sockets => Answer::Yes,
        _ => Answer::No,
    }
}

/// Finds out if the driver can run XDP programs.
fn native(facts: &Facts) -> Finding {
    let Facts { device, driver, xdp_features, fragments, .. } = facts;
    let name = "native XDP";
    let driver = driver.as_deref().unwrap_or("its driver");
    let jumbo = device.mtu > PIECE_MTU_MAX;
    match *xdp_features {
        Some(features) if features & XDP_BASIC == 0 => {
            Finding::new(name, Answer::No, format!("{driver} does not support it as configured"))
        }
        Some(features) if jumbo && (!fragments || features & XDP_FRAGMENTS == 0) => {
            let detail = format!(
                "{driver} has it, but not for packets in several pieces, which an MTU of {} needs and {} does not \
                 support: lower the MTU to about {PIECE_MTU_MAX}",
                device.mtu,
                if *fragments { driver } else { "this kernel" }
            );
            Finding::new(name, Answer::No, detail)
        }
        Some(_) => Finding::new(name, Answer::Yes, format!("{driver} reports it")),
        None if device.loopback => Finding::new(name, Answer::No, "the loopback interface does not support it"),
        None if NATIVE.contains(&driver) => Finding::new(
            name,
            Answer::Unknown,
            format!("{driver} usually has it; the log of `weir run` says what was attached"),
        ),
        None => {
            let detail = "only attaching will show it (from Linux 6.3 on the kernel reports it)";
            Finding::new(name, Answer::Unknown, detail)
        }
    }
}

/// Finds out if the interface has no XDP program yet.
fn free(device: &Device, owner: Option<&str>) -> Finding {
    let name = "free for XDP";
    let Some(XdpProgram { id, place }) = device.xdp else {
        return Finding::new(name, Answer::Yes, "it has no XDP program");
    };
    let id = id.map_or_else(String::new, |id| format!(" {id}"));
    let detail = match owner {
        Some(owner) if hooks::is_ours(owner) => format!("weir is attached already: program{id}, {place}"),
        owner => format!(
            "program{id} \"{}\", which is not weir's, is there ({place}), and weir never replaces it. To remove it, end \
             the program that has attached it, or: ip link set dev {} xdp off. At other hooks weir sees only what it \
             passes on",
            owner.unwrap_or("(name not known)"),
            device.name
        ),
    };
    Finding::new(name, Answer::No, detail)
}

/// Findings about offloads that change which packets weir sees.
fn hints(Facts { device, offloads, .. }: &Facts) -> Vec<Finding> {
    let Some(offloads) = offloads else {
        let detail = format!("the kernel does not report which are on (before Linux 5.7): ethtool -k {}", device.name);
        return vec![Finding::new("offloads", Answer::Unknown, detail)];
    };
    let on = |name: &str| offloads.iter().any(|offload| offload == name);
    let mut hints = Vec::new();
    let mut hint = |name, detail: String| hints.push(Finding::new(name, Answer::Note, detail));
    if on("rx-lro") {
        let detail = format!("on: some drivers refuse native XDP while it is on (ethtool -K {} lro off)", device.name);
        hint("LRO", detail);
    }
    if on("rx-gro-hw") {
        hint(
            "hardware GRO",
            format!("on: weir may count merged packets as one (ethtool -K {} rx-gro-hw off)", device.name),
        );
    }
    if on("rx-gro") {
        hint(
            "GRO",
            "on: generic XDP counts merged packets as one. Native XDP sees packets before they are merged; TCX, tc and \
             packet sockets count each of them"
                .to_owned(),
        );
    }
    if on("rx-gro-list") {
        hint(
            "GRO by lists",
            "on: generic XDP may count packets of one flow as one (ethtool -K DEVICE rx-gro-list off)"
                .replace("DEVICE", &device.name),
        );
    }
    if on("hw-tc-offload") && !device.is_virtual() {
        let detail = "on: no program sees packets that the hardware forwards. Reports say how many it counted and weir \
                      did not see (`unseen`): docs/OFFLOAD.md";
        hint("hw-tc-offload", detail.to_owned());
    }
    hints
}

/// Finds out which CPUs handle received packets.
fn spread(Queues { receive, rps, interrupts }: &Queues, Facts { device, cpus, .. }: &Facts) -> Finding {
    let several = if *receive == 1 { "1 receive queue".to_owned() } else { format!("{receive} receive queues") };
    let interrupted = match interrupts {
        Some(cpus) => format!("; the interrupts of its card go to CPU {}", sysfs::listed(cpus)),
        None => String::new(),
    };
    let handed_on = match rps.is_empty() {
        true => String::new(),
        false => format!("; RPS hands packets on to CPU {} (native XDP runs before that)", sysfs::listed(rps)),
    };
    // True if the packets of a card arrive at a single CPU.
    let is_alone = interrupts.as_ref().is_some_and(|cpus| *receive == 1 || cpus.len() == 1);
    let consequence = if is_alone && rps.is_empty() && *cpus > 1 {
        format!(
            ". One CPU at a time handles all that it receives, of {cpus}: more queues (ethtool -L {} combined {cpus}), \
             interrupts on more CPUs (/proc/irq/*/smp_affinity_list), or RPS change that",
            device.name
        )
    } else {
        String::new()
    };
    Finding::new("queues", Answer::Note, format!("{several}{interrupted}{handed_on}{consequence}"))
}

/// The packets that the interface itself lost.
fn lost(losses: Option<&[(&'static str, u64)]>) -> Option<Finding> {
    let Some(losses) = losses else {
        return Some(Finding::new("dropped", Answer::Unknown, "the kernel does not report the interface's counters"));
    };
    if losses.is_empty() {
        return None;
    }
    let all: Vec<_> = losses.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
    let any = |names: &[&str]| losses.iter().any(|(name, _)| names.contains(name));
    let mut detail = format!("by the interface's own count: {}", all.join(", "));
    if any(&["rx_missed_errors", "rx_over_errors", "rx_fifo_errors"]) {
        detail +=
            ". Missed packets found no room in the card or its ring: weir cannot see them (ethtool -G makes it larger)";
    }
    if any(&["rx_dropped", "rx_nohandler"]) {
        detail += ". Dropped packets may be those that no protocol of this machine wanted: weir has seen those";
    }
    Some(Finding::new("dropped", Answer::Note, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(driver: &str, mtu: u32, xdp_features: Option<u64>) -> Facts {
        let device = Device { ifindex: 2, name: "eth0".into(), hardware: 1, mtu, up: true, ..Device::default() };
        Facts {
            device,
            driver: Some(driver.into()),
            xdp_features,
            fragments: true,
            tcx: Some(true),
            has_programs: true,
            packet_sockets: true,
            offloads: Some(Vec::new()),
            flowtables: Some(Vec::new()),
            losses: Some(Vec::new()),
            ..Facts::default()
        }
    }

    fn answer(findings: &[Finding], name: &str) -> Answer {
        findings.iter().find(|finding| finding.name == name).unwrap().answer
    }

    #[test]
    fn native_mode_is_as_the_driver_reports_or_unknown() {
        for (facts, expected) in [
            (facts("mlx5_core", 1500, Some(XDP_BASIC)), Answer::Yes),
            (facts("mlx5_core", 9000, Some(XDP_BASIC | XDP_FRAGMENTS)), Answer::Yes),
            (facts("mlx5_core", 9000, Some(XDP_BASIC)), Answer::No),
            (Facts { fragments: false, ..facts("mlx5_core", 9000, Some(XDP_BASIC | XDP_FRAGMENTS)) }, Answer::No),
            (facts("bridge", 1500, Some(0)), Answer::No),
            (facts("ice", 1500, None), Answer::Unknown),
            (facts("something", 1500, None), Answer::Unknown),
        ] {
            assert_eq!(native(&facts).answer, expected, "{facts:?}");
        }
    }

    #[test]
    fn generic_xdp_before_the_tc_hook_is_reported() {
        let of = |generic| Facts { generic, ..facts("veth", 1500, Some(XDP_BASIC)) };
        let said = |facts: &Facts| {
            judge(facts, Mode::Auto, Direction::Ingress).into_iter().find(|one| one.name == "generic XDP")
        };
        assert!(said(&of(None)).is_none());
        let found = said(&of(Some(GenericXdp { interface: "eth9".into() }))).unwrap();
        assert!(found.answer == Answer::Note && found.detail.contains("on eth9. Behind it"), "{}", found.detail);
    }

    #[test]
    fn the_first_method_that_works_is_reported() {
        use Direction::{Both, Egress, Ingress};
        let card = facts("mlx5_core", 1500, Some(XDP_BASIC));
        let unsure = facts("something", 1500, None);
        let old = Facts { tcx: Some(false), ..facts("something", 1500, Some(0)) };
        let hooked = Facts { discipline: Some(Discipline::Clsact), ..old.clone() };
        let half = Facts { discipline: Some(Discipline::Ingress), ..old.clone() };
        let alone = Facts { has_programs: false, ..card.clone() };
        let mut taken = old.clone();
        taken.device.xdp = Some(XdpProgram { id: Some(9), place: "native" });
        for (facts, mode, direction, expected) in [
            (&card, Mode::Auto, Ingress, vec![(Answer::Yes, "by xdp-native")]),
            (&card, Mode::Auto, Both, vec![(Answer::Yes, "by xdp-native"), (Answer::Yes, "by tcx")]),
            (&unsure, Mode::Auto, Ingress, vec![(Answer::Yes, "by xdp-native, or else by tcx")]),
            (&unsure, Mode::Native, Ingress, vec![(Answer::Unknown, "by xdp-native, if the kernel accepts it")]),
            (&old, Mode::Auto, Ingress, vec![(Answer::Yes, "by tc, or else by xdp-generic")]),
            (&old, Mode::Auto, Egress, vec![(Answer::Unknown, "by tc, if the kernel accepts it")]),
            (&hooked, Mode::Auto, Both, vec![(Answer::Yes, "by tc"), (Answer::Yes, "by tc")]),
            (&half, Mode::Tc, Both, vec![(Answer::Yes, "by tc"), (Answer::No, "not possible by tc (see above)")]),
            (&old, Mode::Native, Ingress, vec![(Answer::No, "not possible by xdp-native (see above)")]),
            (&card, Mode::AfPacket, Both, vec![(Answer::Yes, "by afpacket"), (Answer::Yes, "by afpacket")]),
            (&alone, Mode::Auto, Ingress, vec![(Answer::Yes, "by afpacket")]),
            (&taken, Mode::Generic, Ingress, vec![(Answer::No, "not possible by xdp-generic (see above)")]),
        ] {
            let found: Vec<_> = direction.ways().iter().map(|&way| measured(facts, mode, way)).collect();
            let found: Vec<_> = found.iter().map(|finding| (finding.answer, finding.detail.as_str())).collect();
            assert_eq!(found, expected, "{mode:?} {direction:?} {facts:?}");
        }
    }

    #[test]
    fn an_attached_program_is_named() {
        let mut taken = facts("veth", 1500, Some(XDP_BASIC));
        taken.device.xdp = Some(XdpProgram { id: Some(9), place: "native" });
        let detail = free(&taken.device, Some("other")).detail;
        assert!(detail.contains("program 9 \"other\", which is not weir's"), "{detail}");
        assert!(free(&taken.device, None).detail.contains("(name not known)"));
        assert!(free(&taken.device, Some("weir")).detail.contains("weir is attached already"));
        taken.device.xdp = None;
        assert_eq!(free(&taken.device, None).answer, Answer::Yes);
    }

    #[test]
    fn an_unknown_link_type_forbids() {
        let mut odd = facts("something", 1500, None);
        odd.device.hardware = 9999;
        assert!(judge(&odd, Mode::Auto, Direction::Ingress).iter().any(Finding::forbids));
    }

    #[test]
    fn an_interface_that_is_down_is_reported() {
        let mut down = facts("veth", 1500, None);
        down.device.up = false;
        assert_eq!(answer(&judge(&down, Mode::Auto, Direction::Ingress), "up"), Answer::No);
    }

    #[test]
    fn offloads_that_change_what_weir_sees_are_reported() {
        let mut quiet = facts("ixgbe", 1500, None);
        assert!(hints(&quiet).is_empty());
        let on = ["rx-lro", "tx-checksum-ipv4", "rx-gro-list", "hw-tc-offload"].map(String::from);
        quiet.offloads = Some(on.into());
        let names: Vec<_> = hints(&quiet).iter().map(|finding| finding.name).collect();
        assert_eq!(names, ["LRO", "GRO by lists", "hw-tc-offload"]);
        let kind = Some("veth".to_owned());
        let veth = Facts { device: Device { kind, ..quiet.device.clone() }, ..quiet.clone() };
        let names: Vec<_> = hints(&veth).iter().map(|finding| finding.name).collect();
        assert_eq!(names, ["LRO", "GRO by lists"], "a virtual interface has no hardware");
        let silent = Facts { offloads: None, ..quiet };
        assert_eq!(answer(&hints(&silent), "offloads"), Answer::Unknown);
    }

    #[test]
    fn queues_are_reported_and_a_single_cpu_is_pointed_out() {
        let of = |receive, rps: &[u32], interrupts: Option<&[u32]>| {
            let set = |cpus: &[u32]| cpus.iter().copied().collect();
            let queues = Queues { receive, rps: set(rps), interrupts: interrupts.map(set) };
            spread(&queues, &Facts { cpus: 4, ..facts("ixgbe", 1500, None) }).detail
        };
        assert_eq!(of(4, &[], Some(&[0, 1, 2, 3])), "4 receive queues; the interrupts of its card go to CPU 0-3");
        assert_eq!(of(1, &[], None), "1 receive queue", "it is not known which CPU handles it");
        for (receive, cpus) in [(1, &[0, 1][..]), (4, &[2])] {
            let alone = of(receive, &[], Some(cpus));
            assert!(alone.contains("One CPU at a time") && alone.contains("ethtool -L eth0 combined 4"), "{alone}");
        }
        let handed_on = of(1, &[0, 1], Some(&[0]));
        assert!(handed_on.contains("RPS hands packets on to CPU 0-1") && !handed_on.contains("One CPU"), "{handed_on}");
    }

    #[test]
    fn losses_are_reported_in_one_line_and_only_if_there_are_any() {
        assert_eq!(lost(Some(&[])), None);
        assert_eq!(lost(None).unwrap().answer, Answer::Unknown, "unknown is not zero");
        let missed = lost(Some(&[("rx_missed_errors", 12_345)])).unwrap().detail;
        assert!(missed.contains("rx_missed_errors 12,345. Missed packets"), "{missed}");
        let dropped = lost(Some(&[("rx_dropped", 3), ("tx_errors", 1)])).unwrap().detail;
        assert!(dropped.contains("rx_dropped 3, tx_errors 1. Dropped packets"), "{dropped}");
    }

    #[test]
    fn an_interface_that_is_not_measured_during_a_restart_is_reported() {
        let card = facts("mlx5_core", 1500, Some(XDP_BASIC));
        let tells =
            |facts: &Facts, mode| judge(facts, mode, Direction::Both).iter().any(|finding| finding.name == "restart");
        assert!(!tells(&card, Mode::Auto));
        assert!(tells(&card, Mode::Tc) && tells(&card, Mode::AfPacket));
        assert!(tells(&Facts { tcx: Some(false), ..card.clone() }, Mode::Auto), "sent packets need the tc hook");
        assert!(tells(&Facts { has_programs: false, ..card.clone() }, Mode::Auto));
        let mut running = Facts { tcx: Some(false), programs: HashMap::from([(9, "weir".to_owned())]), ..card };
        running.device.xdp = Some(XdpProgram { id: Some(9), place: "native" });
        let received = judge(&running, Mode::Auto, Direction::Ingress);
        assert!(
            received.iter().all(|finding| finding.name != "restart"),
            "received packets are seen by XDP: {received:?}"
        );
    }
}
