//! What can be found out about an interface without attaching to it.

use std::{fs, io, path::Path, slice};

use aya::programs::loaded_programs;

use weir_common::packet;

use super::{Answer, Finding, InterfaceFindings};
use crate::{
    attach::{
        NO_DEFAULT_ROUTE, NONE_FITS, Obtained, link_layer, list,
        netlink::{self, Device, Devices, Discipline, Traffic, XDP_BASIC, XDP_FRAGMENTS, XdpProgram},
        rungs,
    },
    config::{Direction, Interface, Mode},
    datapath::{Features, has_tcx, tap::PacketSocket},
    interface::Way,
};

/// The longest MTU whose frames fit into one page beside what the kernel keeps there; drivers differ a little.
const PIECE_MTU_MAX: u32 = 3498;
/// Drivers that have native XDP in every kernel that weir runs on. For kernels that do not say what a driver can do.
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

/// An interface of the configuration, or all those that fit its pattern, or carry the default route.
pub fn examine(rule: &Interface, has_programs: bool) -> Vec<InterfaceFindings> {
    let examine_one = |name: &str| examine_one(rule, name, has_programs);
    if rule.is_named() {
        return vec![examine_one(&rule.name)];
    }
    let devices = match Devices::open().and_then(|mut devices| list(&mut devices, slice::from_ref(rule))) {
        Ok(devices) => devices,
        Err(error) => return vec![InterfaceFindings { name: rule.name.clone(), findings: vec![no_answer(&error)] }],
    };
    let fitting = devices.iter().filter(|device| rule.covers(&device.name, device.carries_default));
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
            let facts = Facts {
                driver: driver(&device),
                xdp_features: netlink::xdp_features(device.ifindex),
                fragments: Features::of_this_kernel().fragments,
                tcx: has_tcx().ok(),
                discipline: Traffic::open().and_then(|mut traffic| traffic.discipline(device.ifindex)).ok().flatten(),
                has_programs,
                packet_sockets: PacketSocket::is_permitted(),
                offloads: netlink::offloads(device.ifindex).unwrap_or_default(),
                owner: device.xdp.and_then(|program| name_of(program.id?)),
                device,
            };
            judge(&facts, rule.mode, rule.direction)
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

/// What was found out.
#[derive(Clone, Debug, Default)]
struct Facts {
    device: Device,
    driver: Option<String>,
    xdp_features: Option<u64>,
    fragments: bool,
    tcx: Option<bool>,
    discipline: Option<Discipline>,
    has_programs: bool,
    packet_sockets: bool,
    offloads: Vec<String>,
    /// The name of the XDP program on it.
    owner: Option<String>,
}

/// The driver's name; a virtual interface's kind is that of its driver.
fn driver(device: &Device) -> Option<String> {
    let directory = Path::new("/sys/class/net").join(&device.name);
    // `/sys` may be that of another network namespace.
    let index = fs::read_to_string(directory.join("ifindex")).ok()?.trim().parse().ok();
    let bound = (index == Some(device.ifindex)).then(|| fs::read_link(directory.join("device/driver")).ok()).flatten();
    let bound = bound.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    bound.or_else(|| device.kind.clone()).or_else(|| device.loopback.then(|| "loopback".to_owned()))
}

/// A program's name, which needs more privilege than weir has as a service.
fn name_of(id: u32) -> Option<String> {
    let program = loaded_programs().map_while(Result::ok).find(|program| program.id() == id)?;
    program.name_as_str().map(str::to_owned)
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
        free(device, facts.owner.as_deref()),
    ];
    findings.extend(direction.ways().iter().map(|&way| measured(facts, mode, way)));
    findings.extend(hints(facts));
    findings
}

/// How `weir run` would see the packets of this direction: the first of its ways that works.
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
    for &rung in rungs(&facts.device, mode, way, facts.has_programs) {
        match holds(facts, way, rung) {
            Answer::Yes => {
                let detail = match perhaps.first() {
                    Some(first) => format!("by {first}, or else by {}", rung.name()),
                    None => format!("by {}", rung.name()),
                };
                return Finding::needed(name, Answer::Yes, detail);
            }
            Answer::No => lacks.push(rung.name()),
            _ => perhaps.push(rung.name()),
        }
    }
    match perhaps.first() {
        Some(first) => Finding::needed(name, Answer::Unknown, format!("by {first}, if the kernel accepts it")),
        None => Finding::needed(name, Answer::No, format!("not possible by {} (see above)", lacks.join(", "))),
    }
}

/// Whether weir could see packets in this way.
fn holds(facts: &Facts, way: Way, rung: Obtained) -> Answer {
    let for_xdp = link_layer(&facts.device) == packet::Link::Ethernet && facts.device.xdp.is_none();
    match rung {
        Obtained::Native if for_xdp => native(facts).answer,
        Obtained::Generic if for_xdp => Answer::Yes,
        Obtained::Tcx => facts.tcx.map_or(Answer::Unknown, |has| if has { Answer::Yes } else { Answer::No }),
        // `ingress` is in the place of `clsact`, and has no room for what is sent.
        Obtained::Tc if way == Way::Egress && facts.discipline == Some(Discipline::Ingress) => Answer::No,
        // Whether the kernel has the modules, only attaching shows.
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

/// Whether the driver can run XDP programs.
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

/// Whether the interface has no XDP program yet.
fn free(device: &Device, owner: Option<&str>) -> Finding {
    let name = "free for XDP";
    let Some(XdpProgram { id, place }) = device.xdp else {
        return Finding::new(name, Answer::Yes, "it has no XDP program");
    };
    let id = id.map_or_else(String::new, |id| format!(" {id}"));
    let detail = match owner {
        Some("weir" | "weir_linear") => format!("weir is there already: program{id}, {place}"),
        owner => format!(
            "program{id} \"{}\" of somebody else is there ({place}), and weir never replaces it: ip link set dev {} xdp off",
            owner.unwrap_or("(name not known)"),
            device.name
        ),
    };
    Finding::new(name, Answer::No, detail)
}

/// Offloads that change which packets weir sees.
fn hints(Facts { device, offloads, .. }: &Facts) -> Vec<Finding> {
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
    if on("hw-tc-offload") {
        hint("hw-tc-offload", "on: no program sees packets that the hardware forwards".to_owned());
    }
    hints
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
            ..Facts::default()
        }
    }

    fn answer(findings: &[Finding], name: &str) -> Answer {
        findings.iter().find(|finding| finding.name == name).unwrap().answer
    }

    #[test]
    fn native_mode_is_what_the_driver_says_or_unknown() {
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
    fn the_first_rung_that_holds_is_told() {
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
    fn a_program_that_is_there_is_named() {
        let mut taken = facts("veth", 1500, Some(XDP_BASIC));
        taken.device.xdp = Some(XdpProgram { id: Some(9), place: "native" });
        let detail = free(&taken.device, Some("other")).detail;
        assert!(detail.contains("program 9 \"other\" of somebody else"), "{detail}");
        assert!(free(&taken.device, None).detail.contains("(name not known)"));
        assert!(free(&taken.device, Some("weir")).detail.contains("weir is there already"));
        taken.device.xdp = None;
        assert_eq!(free(&taken.device, None).answer, Answer::Yes);
    }

    #[test]
    fn packets_of_no_known_kind_forbid() {
        let mut odd = facts("something", 1500, None);
        odd.device.hardware = 9999;
        assert!(judge(&odd, Mode::Auto, Direction::Ingress).iter().any(Finding::forbids));
    }

    #[test]
    fn an_interface_that_is_down_is_worth_a_word() {
        let mut down = facts("veth", 1500, None);
        down.device.up = false;
        assert_eq!(answer(&judge(&down, Mode::Auto, Direction::Ingress), "up"), Answer::No);
    }

    #[test]
    fn offloads_that_change_what_is_seen_are_told() {
        let mut quiet = facts("ixgbe", 1500, None);
        assert!(hints(&quiet).is_empty());
        quiet.offloads = ["rx-lro", "tx-checksum-ipv4", "hw-tc-offload"].map(String::from).into();
        let names: Vec<_> = hints(&quiet).iter().map(|finding| finding.name).collect();
        assert_eq!(names, ["LRO", "hw-tc-offload"]);
    }
}
