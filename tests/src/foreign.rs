//! Small programs that are not weir's, and what their owners may do to weir's links.

use std::{
    fs,
    os::fd::{AsFd as _, OwnedFd},
};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    programs::{
        LinkOrder, SchedClassifier, TcAttachType, Xdp,
        tc::{NlOptions, TcAttachOptions},
        xdp::XdpMode,
    },
};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    write::{Object, Symbol, SymbolSection},
};
use weir_datapath::syscall;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::netns::Namespace;

/// The effect of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Passes every packet.
    Pass,
    /// Drops every other packet, at random.
    DropHalf,
    /// Drops every packet.
    DropAll,
}

/// A program on an interface; detached on drop.
#[derive(Debug)]
pub struct Foreign {
    loaded: Ebpf,
}

impl Foreign {
    /// Attaches it by XDP in the driver.
    ///
    /// # Errors
    ///
    /// The kernel does not accept it, or there is no such interface.
    pub fn attach(namespace: &Namespace, interface: &str, does: Does) -> Result<Self> {
        Self::attach_xdp(namespace, interface, (b"xdp", does), XdpMode::Driver)
    }

    /// Attaches a program by XDP in generic mode that passes every packet, including those in several pieces (from
    /// Linux 5.18 on).
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_generic(namespace: &Namespace, interface: &str) -> Result<Self> {
        Self::attach_xdp(namespace, interface, (b"xdp.frags", Does::Pass), XdpMode::Skb)
    }

    fn attach_xdp(
        namespace: &Namespace,
        interface: &str,
        (section, does): (&[u8], Does),
        mode: XdpMode,
    ) -> Result<Self> {
        let loaded = namespace.enter(|| -> Result<Ebpf> {
            let mut loaded = Ebpf::load(&elf(section, &xdp(does))?)?;
            let program: &mut Xdp = loaded.program_mut(NAME).context("the program is not in its object")?.try_into()?;
            program.load()?;
            program.attach(interface, mode)?;
            Ok(loaded)
        })?;
        Ok(Self { loaded: loaded.with_context(|| format!("{does:?} on {interface}"))? })
    }

    /// Attaches a program that does nothing to the ingress tc hook, by TCX.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_tcx(namespace: &Namespace, interface: &str) -> Result<Self> {
        Self::attach_by(namespace, interface, TcAttachOptions::TcxOrder(LinkOrder::default()))
    }

    /// The same by a classic filter; its queueing discipline must exist.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_tc(namespace: &Namespace, interface: &str) -> Result<Self> {
        Self::attach_by(namespace, interface, TcAttachOptions::Netlink(NlOptions::default()))
    }

    /// Attaches a program by TCX before all others, which returns this value for every packet.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn stand_first(namespace: &Namespace, interface: &str, way: TcAttachType, returns: i32) -> Result<Self> {
        let options = TcAttachOptions::TcxOrder(LinkOrder::first());
        Self::classify(namespace, interface, (way, returns), options)
    }

    /// The same by a classic filter with the first priority; the newest of these filters runs first.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn filter_first(namespace: &Namespace, interface: &str, way: TcAttachType, returns: i32) -> Result<Self> {
        let options = TcAttachOptions::Netlink(NlOptions { priority: 1, ..NlOptions::default() });
        Self::classify(namespace, interface, (way, returns), options)
    }

    fn attach_by(namespace: &Namespace, interface: &str, options: TcAttachOptions) -> Result<Self> {
        Self::classify(namespace, interface, (TcAttachType::Ingress, NEXT), options)
    }

    fn classify(
        namespace: &Namespace,
        interface: &str,
        (way, returns): (TcAttachType, i32),
        options: TcAttachOptions,
    ) -> Result<Self> {
        let [a, b, c, d] = returns.to_le_bytes();
        let code = [[0xb7, 0, 0, 0, a, b, c, d], EXIT].concat();
        let loaded = namespace.enter(|| -> Result<Ebpf> {
            let mut loaded = Ebpf::load(&elf(b"classifier", &code)?)?;
            let program: &mut SchedClassifier =
                loaded.program_mut(NAME).context("the program is not in its object")?.try_into()?;
            program.load()?;
            program.attach_with_options(interface, way, options)?;
            Ok(loaded)
        })?;
        Ok(Self { loaded: loaded.with_context(|| format!("the tc hook of {interface}"))? })
    }

    /// The program's number.
    ///
    /// # Errors
    ///
    /// The program is not loaded.
    pub fn number(&self) -> Result<u32> {
        Ok(self.loaded.program(NAME).context("no program")?.info()?.id())
    }

    /// Makes weir's link run this program instead.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn replace(&self, link: &OwnedFd) -> Result<()> {
        let fd = self.loaded.program(NAME).context("no program")?.fd()?;
        Ok(syscall::replace(link.as_fd(), fd.as_fd())?)
    }
}

/// The links with which a process runs programs on interfaces. Any process with the permission can get them.
///
/// # Errors
///
/// The process is gone, or may not be inspected.
pub fn links_of(pid: u32) -> Result<Vec<OwnedFd>> {
    let process = pidfd_open(Pid::from_raw(pid as i32).context("no process")?, PidfdFlags::empty())?;
    let mut links = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        // A descriptor may be closed meanwhile.
        let Ok(info) = fs::read_to_string(&path) else { continue };
        if let Some(number) = number.filter(|_| info.contains("link_id:") && info.contains("ifindex:")) {
            links.push(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
        }
    }
    Ok(links)
}

/// `TCX_NEXT`, which is `TC_ACT_UNSPEC`: the next program decides.
pub const NEXT: i32 = -1;
/// `TC_ACT_OK`: the packet passes, and no further program sees it.
pub const PASS: i32 = 0;

const NAME: &str = "foreign";

// An instruction (RFC 9669): operation, registers, offset (2 bytes), immediate (4 bytes).
const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// The instructions of an XDP program.
fn xdp(does: Does) -> Vec<u8> {
    const RANDOM: [u8; 8] = [0x85, 0, 0, 0, 7, 0, 0, 0];
    let set = |value| [0xb7, 0, 0, 0, value, 0, 0, 0];
    let and = |value| [0x57, 0, 0, 0, value, 0, 0, 0];
    let add = |value| [0x07, 0, 0, 0, value, 0, 0, 0];
    // XDP_DROP is 1, XDP_PASS is 2.
    match does {
        Does::Pass => [set(2), EXIT].concat(),
        Does::DropHalf => [RANDOM, and(1), add(1), EXIT].concat(),
        Does::DropAll => [set(1), EXIT].concat(),
    }
}

/// An object with the program, as a compiler would write it.
fn elf(section: &[u8], code: &[u8]) -> Result<Vec<u8>> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = object.add_section(Vec::new(), section.to_vec(), SectionKind::Text);
    object.append_section_data(text, code, 8);
    let licence = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(licence, b"GPL\0", 1);
    object.add_symbol(Symbol {
        name: NAME.into(),
        value: 0,
        size: code.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(text),
        flags: SymbolFlags::None,
    });
    Ok(object.write()?)
}
