//! Somebody else's XDP program, four instructions long.

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    programs::{Xdp, xdp::XdpMode},
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

/// An XDP program in an interface's driver; detached on drop.
#[derive(Debug)]
pub struct Foreign {
    _loaded: Ebpf,
}

impl Foreign {
    /// Attaches it.
    ///
    /// # Errors
    ///
    /// The kernel does not take it, or there is no such interface.
    pub fn attach(namespace: &Namespace, interface: &str, does: Does) -> Result<Self> {
        let loaded = namespace.enter(|| -> Result<Ebpf> {
            let mut loaded = Ebpf::load(&elf(does)?)?;
            let program: &mut Xdp = loaded.program_mut(NAME).context("the program is not in its object")?.try_into()?;
            program.load()?;
            program.attach(interface, XdpMode::Driver)?;
            Ok(loaded)
        })?;
        Ok(Self { _loaded: loaded.with_context(|| format!("{does:?} on {interface}"))? })
    }
}

const NAME: &str = "foreign";

/// An object with the program, as a compiler would write it.
fn elf(does: Does) -> Result<Vec<u8>> {
    // One instruction each: operation, registers, offset (2 bytes), immediate (4 bytes).
    const RANDOM: [u8; 8] = [0x85, 0, 0, 0, 7, 0, 0, 0];
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    let set = |value| [0xb7, 0, 0, 0, value, 0, 0, 0];
    let and = |value| [0x57, 0, 0, 0, value, 0, 0, 0];
    let add = |value| [0x07, 0, 0, 0, value, 0, 0, 0];
    // XDP_DROP is 1, XDP_PASS is 2.
    let code = match does {
        Does::Pass => [set(2), set(2), set(2), EXIT],
        Does::DropHalf => [RANDOM, and(1), add(1), EXIT],
        Does::DropAll => [set(1), set(1), set(1), EXIT],
    }
    .concat();
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = object.add_section(Vec::new(), b"xdp".to_vec(), SectionKind::Text);
    object.append_section_data(text, &code, 8);
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
