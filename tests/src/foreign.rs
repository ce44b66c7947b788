//! An XDP program that is not weir's, a few instructions long.

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

use crate::netns::Namespace;

/// What the program does.
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
    _loaded: Ebpf,
}

impl Foreign {
    /// Attaches it by XDP in the driver.
    ///
    /// # Errors
    ///
    /// The kernel does not take it, or there is no such interface.
    pub fn attach(namespace: &Namespace, interface: &str, does: Does) -> Result<Self> {
        let loaded = namespace.enter(|| -> Result<Ebpf> {
            let mut loaded = Ebpf::load(&elf(b"xdp", &xdp(does))?)?;
            let program: &mut Xdp = loaded.program_mut(NAME).context("the program is not in its object")?.try_into()?;
            program.load()?;
            program.attach(interface, XdpMode::Driver)?;
            Ok(loaded)
        })?;
        Ok(Self { _loaded: loaded.with_context(|| format!("{does:?} on {interface}"))? })
    }

    /// Attaches one that does nothing to the tc hook for what is received, by TCX.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_tcx(namespace: &Namespace, interface: &str) -> Result<Self> {
        Self::attach_by(namespace, interface, TcAttachOptions::TcxOrder(LinkOrder::default()))
    }

    /// The same, by a classic filter; there has to be a queueing discipline for it.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_tc(namespace: &Namespace, interface: &str) -> Result<Self> {
        Self::attach_by(namespace, interface, TcAttachOptions::Netlink(NlOptions::default()))
    }

    fn attach_by(namespace: &Namespace, interface: &str, options: TcAttachOptions) -> Result<Self> {
        /// `TCX_NEXT`, which is `TC_ACT_UNSPEC`.
        const SET_NEXT: [u8; 8] = [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        let loaded = namespace.enter(|| -> Result<Ebpf> {
            let mut loaded = Ebpf::load(&elf(b"classifier", &[SET_NEXT, EXIT].concat())?)?;
            let program: &mut SchedClassifier =
                loaded.program_mut(NAME).context("the program is not in its object")?.try_into()?;
            program.load()?;
            program.attach_with_options(interface, TcAttachType::Ingress, options)?;
            Ok(loaded)
        })?;
        Ok(Self { _loaded: loaded.with_context(|| format!("the tc hook of {interface}"))? })
    }
}

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
