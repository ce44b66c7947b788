//! The methods of attaching to an interface. weir tries the best one first, and the next one if that fails.
//!
//! | interface | what it receives | what it sends |
//! |---|---|---|
//! | a network card | XDP native, TCX, tc, XDP generic | TCX, tc |
//! | a virtual device (it has a kind: veth, bridge, vlan, ...), the loopback | TCX, tc, XDP generic | TCX, tc |
//! | one without Ethernet headers (tun, `WireGuard`, PPP) | TCX, tc | TCX, tc |
//! | any, if this process may not load programs | a packet socket | a packet socket |
//!
//! TCX and the classic tc filter run the same programs at the same point; TCX came with Linux 6.6. XDP generic is last:
//! it counts merged buffers, not packets.
//!
//! If there are many interfaces, weir tries the classic tc hook before TCX: see [`pace`](super::pace).
//!
//! weir does not use XDP on a veth: in native mode it disables segmentation offload on the peer, which halves bulk TCP
//! throughput.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use aya::{
    programs::{ProgramError, SchedClassifier},
    sys::SyscallError,
};
use rustix::io::Errno;
use tracing::{debug, info, warn};
use weir_common::{control::Feeds, packet};
use weir_config::{Mode, interface::Way};
use weir_datapath::{
    Chains, KernelError,
    kept::link::{Link, LinkPosition, Links, Passing},
    probe_tcx,
    programs::{TcPrograms, XdpPrograms},
    syscall::Hook,
    tap::{Tap, Taps, Target},
};
use weir_system::text::with_causes;

use super::{
    error::AttachError,
    hook::{self, Hooked},
    netlink::{Device, Traffic},
    obtained::Obtained,
    sign,
    watch::Position,
};

/// Hardware types (`linux/if_arp.h`) with Ethernet headers.
const ETHERNET: [u16; 2] = [1, 772];
/// Hardware types whose packets begin with the IP header: no link layer, PPP (the kernel adds its header below the tc
/// hook), and IP tunnels.
const IP: [u16; 8] = [65_534, 512, 519, 768, 769, 776, 778, 823];

/// The header that the packets of an interface begin with.
pub fn link_layer(device: &Device) -> packet::Link {
    match device.hardware {
        hardware if ETHERNET.contains(&hardware) => packet::Link::Ethernet,
        hardware if IP.contains(&hardware) => packet::Link::RawIp,
        _ => packet::Link::Other,
    }
}

/// The methods to try, the best one first. Without programs there is only one.
pub fn attach_methods(device: &Device, mode: Mode, way: Way, has_programs: bool) -> &'static [Obtained] {
    const LOOPBACK: u16 = 772;
    let is_virtual = device.kind.is_some() || device.hardware == LOOPBACK;
    match (way, mode) {
        (_, Mode::AfPacket) => &[Obtained::AfPacket],
        (_, Mode::Auto) if !has_programs => &[Obtained::AfPacket],
        (_, Mode::Tcx) => &[Obtained::Tcx],
        (_, Mode::Tc) => &[Obtained::Tc],
        // XDP does not see sent packets.
        (Way::Egress, _) => &[Obtained::Tcx, Obtained::Tc],
        (_, Mode::Native) => &[Obtained::Native],
        (_, Mode::Generic) => &[Obtained::Generic],
        (_, Mode::Auto) if link_layer(device) == packet::Link::RawIp => &[Obtained::Tcx, Obtained::Tc],
        (_, Mode::Auto) if is_virtual => &[Obtained::Tcx, Obtained::Tc, Obtained::Generic],
        (_, Mode::Auto) => &[Obtained::Native, Obtained::Tcx, Obtained::Tc, Obtained::Generic],
    }
}

/// The methods in the order for many interfaces: tc filters come first, because attaching one holds the kernel's
/// configuration lock only for a moment.
pub const fn for_many(attach_methods: &'static [Obtained]) -> &'static [Obtained] {
    use Obtained::{Generic, Native, Tc, Tcx};
    match attach_methods {
        [Native, Tcx, Tc, Generic] => &[Native, Tc, Tcx, Generic],
        [Tcx, Tc, Generic] => &[Tc, Tcx, Generic],
        [Tcx, Tc] => &[Tc, Tcx],
        others => others,
    }
}

/// The resources that the methods need.
pub struct AttachResources<'a> {
    /// The programs, if there are any.
    pub programs: Option<Programs<'a>>,
    /// The packet sockets that are open.
    pub taps: Taps,
    /// The links that an earlier weir left on interfaces.
    pub inherited: Links,
    /// True if so many interfaces are attached that TCX is avoided.
    pub has_many: bool,
    /// The resources for being first at a hook.
    pub hook_order: HookOrder,
}

/// The resources for being first at a hook, and for recognizing other weirs there.
#[derive(Default)]
pub struct HookOrder {
    /// Programs that hold positions while links change theirs, if they could be loaded.
    passing: Option<Passing>,
    /// Sockets that show other weirs which programs are weir's.
    signs: Vec<OwnedFd>,
}

impl HookOrder {
    /// Loads the programs that require capabilities.
    pub fn load(&mut self) {
        let loaded = Passing::load();
        self.passing = loaded
            .inspect_err(|error| {
                debug!("cannot load the programs that weir needs to move to the front of a hook: {error}");
            })
            .ok();
    }

    /// Shows other weirs that these loaded programs are weir's.
    pub fn show(&mut self, programs: &[u32]) {
        for &program in programs {
            match sign::show(program) {
                Ok(sign) => self.signs.push(sign),
                Err(error) => warn!("other weirs cannot recognize program {program} as weir's: {error}"),
            }
        }
    }
}

/// The programs for the methods that use one.
pub struct Programs<'a> {
    /// The XDP programs, which see received packets.
    pub xdp: XdpPrograms<'a>,
    /// The programs for TCX and the classic tc hook.
    pub tc: TcPrograms<'a>,
}

/// Keeps an interface measured until dropped.
pub enum AttachmentGuard {
    /// An XDP or tc program that a BPF link holds in place.
    Program {
        /// The link. The kernel detaches the program when it is closed.
        link: Link,
    },
    /// A program run by a filter.
    Filter {
        /// The filter with its place at the hook.
        hooked: Hooked,
    },
    /// A packet socket, for interfaces where no program can be attached.
    Socket {
        /// The socket's place in [`Taps`].
        tap: Tap,
    },
}

impl AttachmentGuard {
    /// Returns the current position among other programs. A packet socket is always first. `traffic` is opened when
    /// needed.
    ///
    /// # Errors
    ///
    /// The kernel does not report it, for example because the interface is just vanishing.
    pub fn position(&self, traffic: &mut Option<Traffic>, chains: &Chains) -> io::Result<Position> {
        match self {
            Self::Program { link } => Ok(match link.place(chains)? {
                LinkPosition::First => Position::First,
                LinkPosition::Removed => Position::Removed,
                LinkPosition::Replaced(program) => Position::Replaced(program),
                LinkPosition::Behind(before) => {
                    let others = before.into_iter().filter(|program| !sign::is_weir(*program));
                    let who: Vec<_> = others.map(sign::named).collect();
                    if who.is_empty() { Position::First } else { Position::Behind { who, can_move: true } }
                }
            }),
            Self::Filter { hooked } => {
                let traffic = match traffic {
                    Some(traffic) => traffic,
                    None => traffic.insert(Traffic::open()?),
                };
                hooked.position(traffic, chains)
            }
            Self::Socket { .. } => Ok(Position::First),
        }
    }

    /// From now on, dropping an inherited program detaches it.
    pub const fn settle(&mut self) {
        if let Self::Program { link } = self {
            link.settle();
        }
    }

    /// Releases it. A program stays on its interface for the next weir; nothing else can.
    pub fn leave_behind(self) {
        if let Self::Program { link } = self {
            link.leave_behind();
        }
    }
}

impl AttachResources<'_> {
    /// Attaches with the best method that the interface supports, with a slot. Only a packet socket uses `feeds`.
    ///
    /// # Errors
    ///
    /// Why the last method was refused, or why no method is possible.
    pub fn attach(
        &mut self,
        device: &Device,
        mode: Mode,
        way: Way,
        slot: usize,
        feeds: Feeds,
    ) -> Result<(Obtained, AttachmentGuard), AttachError> {
        if link_layer(device) == packet::Link::Other {
            return Err(AttachError::LinkLayer { name: device.name.clone(), hardware: device.hardware });
        }
        let attach_methods = attach_methods(device, mode, way, self.programs.is_some());
        let attach_methods = if self.has_many { for_many(attach_methods) } else { attach_methods };
        if let Some(programs) = &mut self.programs
            && let Some(taken_over) = programs.take_over(&mut self.inherited, device, way, attach_methods)
        {
            return Ok(taken_over);
        }
        self.make_room(device, way, attach_methods);
        let mut refusals: Vec<AttachError> = Vec::new();
        for &method in attach_methods {
            let attached = match (method, &mut self.programs) {
                (Obtained::AfPacket, _) => {
                    self.tap(device, way, slot, feeds).map(|tap| AttachmentGuard::Socket { tap })
                }
                (_, Some(programs)) => programs.attach(device, way, method),
                (_, None) => Err(KernelError::NotPermitted.into()),
            };
            match attached {
                Ok(guard) => {
                    for refusal in &refusals {
                        info!(interface = %device.name, direction = way.name(), "a better mode does not work here: {}", with_causes(refusal));
                    }
                    return Ok((method, guard));
                }
                Err(error @ AttachError::NotPermitted(_))
                    if method == Obtained::Tc && method != attach_methods[attach_methods.len() - 1] =>
                {
                    debug!(interface = %device.name, direction = way.name(), "refused: {}", with_causes(&error));
                }
                Err(error @ (AttachError::NotPermitted(_) | AttachError::Vanished(_))) => return Err(error),
                Err(error) => {
                    debug!(interface = %device.name, direction = way.name(), "refused: {}", with_causes(&error));
                    refusals.push(error);
                }
            }
        }
        Err(most_useful(refusals).unwrap_or_else(|| AttachError::NoLink(device.name.clone())))
    }

    /// Restores an attachment that, according to `position`, does not see all packets. If it cannot be restored, it is
    /// removed from `guard`.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn mend(
        &mut self,
        guard: &mut Option<AttachmentGuard>,
        device: &Device,
        way: Way,
        method: Obtained,
        position: &Position,
    ) -> Result<(), AttachError> {
        let Self { programs, hook_order, .. } = self;
        let Some(programs) = programs else { return Ok(()) };
        match guard {
            Some(AttachmentGuard::Program { link }) => {
                let program = programs.of(device, way, method)?;
                let mended = match (position, &hook_order.passing) {
                    (Position::Removed, _) => link.attach_again(program),
                    (Position::Replaced(_), _) => link.replace(program),
                    (Position::Behind { .. }, Some(passing)) => link.move_first(program, passing),
                    (Position::Behind { .. }, None) => Err(Errno::PERM.into()),
                    (Position::First, _) => Ok(()),
                };
                mended.map_err(|error| refused_link(device, method, error))
            }
            Some(AttachmentGuard::Filter { .. }) => {
                // Remove the old filter first, so that the new one comes before all others of its priority.
                *guard = None;
                *guard = Some(programs.tc(device, way)?);
                Ok(())
            }
            Some(AttachmentGuard::Socket { .. }) | None => Ok(()),
        }
    }

    /// Detaches the program that an earlier weir attached for this direction with another method. With both programs,
    /// packets would count twice, and the kernel has room for only one XDP program.
    fn make_room(&mut self, device: &Device, way: Way, attach_methods: &[Obtained]) {
        const HOOKS: [&[Hook]; 2] = [&[Hook::XdpNative, Hook::XdpGeneric, Hook::TcxIngress], &[Hook::TcxEgress]];
        if let Some(programs) = &mut self.programs {
            // Load the new program first, so that the interface is without a program only for a moment. Errors are
            // reported when it is attached.
            for method in attach_methods {
                drop(programs.of(device, way, *method));
            }
        }
        if self.inherited.detach(HOOKS[way as usize], device.ifindex) {
            let (interface, direction) = (&device.name, way.name());
            info!(%interface, direction, "detached the program of an earlier weir: the configuration now asks for another mode");
        }
    }

    fn tap(&self, device: &Device, way: Way, slot: usize, feeds: Feeds) -> Result<Tap, AttachError> {
        let Device { name, ifindex, mtu, .. } = device;
        let target = Target { name, ifindex: *ifindex, link: link_layer(device), mtu: *mtu, way };
        let opened = self.taps.open(&target, slot, feeds);
        opened.map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::NODEV | Errno::NXIO) => AttachError::Vanished(device.name.clone()),
            Some(Errno::PERM | Errno::ACCESS) => AttachError::NoPacketSocket(device.name.clone()),
            _ => AttachError::Socket { name: device.name.clone(), source },
        })
    }
}

impl Programs<'_> {
    fn attach(&mut self, device: &Device, way: Way, method: Obtained) -> Result<AttachmentGuard, AttachError> {
        let Some(hook) = hook_of(method, way) else { return self.tc(device, way) };
        if method == Obtained::Tcx && matches!(probe_tcx(), Ok(false)) {
            return Err(AttachError::NoTcx(device.name.clone()));
        }
        let link = Link::attach(self.of(device, way, method)?, device.ifindex, hook)
            .map_err(|error| refused_link(device, method, error))?;
        Ok(AttachmentGuard::Program { link })
    }

    /// Replaces the program of an earlier weir, which may be attached with any of these methods, by weir's.
    fn take_over(
        &mut self,
        inherited: &mut Links,
        device: &Device,
        way: Way,
        attach_methods: &[Obtained],
    ) -> Option<(Obtained, AttachmentGuard)> {
        attach_methods.iter().find_map(|&method| {
            let hook = hook_of(method, way)?;
            let mut link = inherited.take(hook, device.ifindex)?;
            let replaced = self.of(device, way, method).and_then(|program| {
                link.replace(program).map_err(|error| refused_link(device, method, error))
            });
            match replaced {
                Ok(()) => Some((method, AttachmentGuard::Program { link })),
                Err(error) => {
                    let (interface, direction) = (&device.name, way.name());
                    warn!(%interface, direction, "cannot replace the earlier program: {}. Attaching again", with_causes(&error));
                    inherited.note_broken(hook, device.ifindex);
                    None
                }
            }
        })
    }

    /// The loaded program for this interface and this method.
    fn of(&mut self, device: &Device, way: Way, method: Obtained) -> Result<impl AsFd, AttachError> {
        let refused = |source| refused(device, method, source);
        let program = match method {
            Obtained::Native | Obtained::Generic if link_layer(device) != packet::Link::Ethernet => {
                return Err(AttachError::NoEthernet { name: device.name.clone(), mode: method.name() });
            }
            Obtained::Native => self.xdp.native.fd(),
            Obtained::Generic => self.xdp.generic().map_err(refused)?.fd(),
            _ => self.for_tc(device, way, method)?.fd(),
        };
        program.map_err(refused)
    }

    /// The loaded program that reads this interface's packets at the tc hook.
    fn for_tc(&mut self, device: &Device, way: Way, method: Obtained) -> Result<&mut SchedClassifier, AttachError> {
        let Device { name, hardware, .. } = device;
        let found = self.tc.get(link_layer(device), way).map_err(|source| not_loaded(name, method, source))?;
        found.ok_or_else(|| AttachError::LinkLayer { name: name.clone(), hardware: *hardware })
    }

    fn tc(&mut self, device: &Device, way: Way) -> Result<AttachmentGuard, AttachError> {
        let program = self.for_tc(device, way, Obtained::Tc)?;
        Ok(AttachmentGuard::Filter { hooked: hook::attach(device, way, program)? })
    }
}

/// The hook of a method; `None` if it has no link.
const fn hook_of(method: Obtained, way: Way) -> Option<Hook> {
    match (method, way) {
        (Obtained::Native, _) => Some(Hook::XdpNative),
        (Obtained::Generic, _) => Some(Hook::XdpGeneric),
        (Obtained::Tcx, Way::Ingress) => Some(Hook::TcxIngress),
        (Obtained::Tcx, Way::Egress) => Some(Hook::TcxEgress),
        _ => None,
    }
}

/// Makes an error of a program for the tc hook that could not be loaded. The verifier's log is pages long, and goes to
/// the debug log.
fn not_loaded(name: &str, method: Obtained, source: ProgramError) -> AttachError {
    debug!(interface = %name, "the program for the tc hook is not loaded: {}", with_causes(&source));
    let name = name.to_owned();
    match &source {
        ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            AttachError::NotPermitted(name)
        }
        ProgramError::LoadError { .. } => AttachError::NoTcProgram(name),
        _ => AttachError::Refused { name, mode: method.name(), source },
    }
}

/// Chooses which of several refusals to report: one about another program, which the user can detach; otherwise the
/// last one.
fn most_useful(mut refusals: Vec<AttachError>) -> Option<AttachError> {
    let is_taken = |refusal: &AttachError| matches!(refusal, AttachError::Taken(_) | AttachError::BelowGeneric(_));
    let taken = refusals.iter().position(is_taken);
    taken.map(|at| refusals.swap_remove(at)).or_else(|| refusals.pop())
}

/// Makes an error of the kernel's refusal of a link.
fn refused_link(device: &Device, method: Obtained, io_error: io::Error) -> AttachError {
    refused(device, method, SyscallError { call: "bpf_link_create", io_error }.into())
}

/// Makes an error of the kernel's refusal.
fn refused(device: &Device, method: Obtained, source: ProgramError) -> AttachError {
    let name = device.name.clone();
    let errno = match &source {
        ProgramError::SyscallError(SyscallError { io_error, .. }) => io_error.raw_os_error(),
        _ => None,
    };
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::EXIST) if method != Obtained::Tcx && device.xdp.is_none() => AttachError::BelowGeneric(name),
        Some(Errno::BUSY | Errno::EXIST) if method != Obtained::Tcx => AttachError::Taken(name),
        Some(Errno::PERM | Errno::ACCESS) => AttachError::NotPermitted(name),
        Some(Errno::NODEV) => AttachError::Vanished(name),
        // The kernel does not know this link type. (Rejecting the program itself is an error of another call.)
        Some(Errno::INVAL) if method == Obtained::Tcx && matches!(source, ProgramError::SyscallError(_)) => {
            AttachError::NoTcx(name)
        }
        _ => AttachError::Refused { name, mode: method.name(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::{super::netlink::XdpProgram, *};

    #[test]
    fn the_kernels_refusals_are_understood() {
        use Obtained::{Generic, Native, Tcx};
        for (method, errno, expected) in [
            (Native, Errno::BUSY, "Taken"),
            (Generic, Errno::EXIST, "Taken"),
            (Tcx, Errno::BUSY, "Refused"),
            (Native, Errno::PERM, "NotPermitted"),
            (Tcx, Errno::ACCESS, "NotPermitted"),
            (Generic, Errno::NODEV, "Vanished"),
            (Tcx, Errno::INVAL, "NoTcx"),
            (Native, Errno::INVAL, "Refused"),
            (Native, Errno::OPNOTSUPP, "Refused"),
        ] {
            let io_error = io::Error::from_raw_os_error(errno.raw_os_error());
            let xdp = Some(XdpProgram { id: Some(7), place: "native" });
            let device = Device { name: "eth0".to_owned(), xdp, ..Device::default() };
            let error = refused_link(&device, method, io_error);
            assert!(format!("{error:?}").starts_with(expected), "{method:?} {errno}: {error:?}");
        }
        let device = Device { name: "eth0".to_owned(), ..Device::default() };
        let error = refused_link(&device, Generic, io::Error::from_raw_os_error(Errno::EXIST.raw_os_error()));
        assert!(matches!(error, AttachError::BelowGeneric(_)), "there is no program on it: {error:?}");
    }

    #[test]
    fn the_refusal_that_the_user_can_fix_is_reported() {
        let [taken, no_tcx] = [AttachError::Taken, AttachError::NoTcx].map(|error| error("eth0".to_owned()));
        let refusals = vec![taken, no_tcx, AttachError::Vanished("eth0".to_owned())];
        assert!(matches!(most_useful(refusals), Some(AttachError::Taken(_))));
        let refusals = ["a", "b"].map(|name| AttachError::NoTcx(name.to_owned())).into();
        assert!(matches!(most_useful(refusals), Some(AttachError::NoTcx(last)) if last == "b"));
        assert!(most_useful(Vec::new()).is_none());
    }

    #[test]
    fn many_interfaces_are_attached_without_a_grace_period() {
        use Obtained::{Generic, Native, Tc, Tcx};
        for (few, many) in [
            (&[Native, Tcx, Tc, Generic][..], &[Native, Tc, Tcx, Generic][..]),
            (&[Tcx, Tc, Generic], &[Tc, Tcx, Generic]),
            (&[Tcx, Tc], &[Tc, Tcx]),
            (&[Tcx], &[Tcx]),
            (&[Native], &[Native]),
        ] {
            assert_eq!(for_many(few), many);
        }
        let veth = Device { hardware: 1, kind: Some("veth".to_owned()), ..Device::default() };
        for (mode, way) in [(Mode::Auto, Way::Ingress), (Mode::Auto, Way::Egress), (Mode::Native, Way::Egress)] {
            assert_eq!(for_many(attach_methods(&veth, mode, way, true))[0], Tc, "{mode:?} {way:?}");
        }
    }

    #[test]
    fn the_methods_suit_the_interface() {
        let card = Device { hardware: 1, ..Device::default() };
        let veth = Device { kind: Some("veth".to_owned()), ..card.clone() };
        let tun = Device { hardware: 65_534, kind: Some("tun".to_owned()), ..card.clone() };
        let ppp = Device { hardware: 512, ..card.clone() };
        let lo = Device { hardware: 772, ..card.clone() };
        use Obtained::{AfPacket, Generic, Native, Tc, Tcx};
        let auto = |device| attach_methods(device, Mode::Auto, Way::Ingress, true);
        assert_eq!(auto(&card), [Native, Tcx, Tc, Generic]);
        assert_eq!(auto(&veth), [Tcx, Tc, Generic], "generic XDP, which counts merged buffers, comes last");
        assert_eq!(auto(&lo), [Tcx, Tc, Generic]);
        assert_eq!((auto(&tun), auto(&ppp)), (&[Tcx, Tc][..], &[Tcx, Tc][..]));
        assert_eq!(attach_methods(&veth, Mode::Native, Way::Ingress, true), [Native]);
        assert_eq!(attach_methods(&card, Mode::Native, Way::Egress, true), [Tcx, Tc], "XDP sees nothing that is sent");
        for way in [Way::Ingress, Way::Egress] {
            assert_eq!(attach_methods(&card, Mode::Tc, way, true), [Tc]);
            assert_eq!(attach_methods(&card, Mode::Tcx, way, true), [Tcx]);
        }
        for way in [Way::Ingress, Way::Egress] {
            assert_eq!(attach_methods(&card, Mode::AfPacket, way, true), [AfPacket]);
            assert_eq!(attach_methods(&tun, Mode::Auto, way, false), [AfPacket], "nothing else is possible");
        }
        assert_eq!(link_layer(&Device { hardware: 32, ..card }), packet::Link::Other, "InfiniBand");
    }
}
