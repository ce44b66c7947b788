//! A program that does nothing, attached where weir's are: what being there costs, whatever a tool does.

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    programs::{ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode},
};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    write::{Object, Symbol, SymbolSection},
};
use weir_tests::netns::Namespace;

use super::route::WAN;

const NAME: &str = "empty";

/// A hook that programs are attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// XDP in the driver.
    NativeXdp,
    /// The tc hook, by TCX.
    Tcx,
}

impl Hook {
    /// What the table calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NativeXdp => "native XDP",
            Self::Tcx => "TCX",
        }
    }

    /// Its section in an object, and what a program there returns to let a packet pass.
    const fn form(self) -> (&'static [u8], i32) {
        match self {
            Self::NativeXdp => (b"xdp", 2),   // `XDP_PASS`
            Self::Tcx => (b"classifier", -1), // `TCX_NEXT`
        }
    }
}

/// It is attached for as long as this lives.
pub struct Attached {
    _loaded: Ebpf,
}

/// Attaches it to the router's interface.
///
/// # Errors
///
/// The kernel takes no such program there.
pub fn attach(router: &Namespace, hook: Hook) -> Result<Attached> {
    let mut loaded = Ebpf::load(&elf(hook)?)?;
    let program = loaded.program_mut(NAME).context("no program in its object")?;
    router
        .enter(|| -> Result<(), ProgramError> {
            match hook {
                Hook::NativeXdp => {
                    let program: &mut Xdp = program.try_into()?;
                    program.load()?;
                    program.attach(WAN, XdpMode::Driver)?;
                }
                Hook::Tcx => {
                    let program: &mut SchedClassifier = program.try_into()?;
                    program.load()?;
                    program.attach(WAN, TcAttachType::Ingress)?;
                }
            }
            Ok(())
        })?
        .context("an empty program is not taken")?;
    Ok(Attached { _loaded: loaded })
}

/// An object with the program, as a compiler would write it: `return pass`.
fn elf(hook: Hook) -> Result<Vec<u8>> {
    /// `r0 = immediate` and `exit` (RFC 9669 section 4).
    const SET: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let (section, pass) = hook.form();
    let mut code = vec![SET, 0, 0, 0];
    code.extend(pass.to_le_bytes());
    code.extend([EXIT, 0, 0, 0, 0, 0, 0, 0]);
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = object.add_section(Vec::new(), section.to_vec(), SectionKind::Text);
    object.append_section_data(text, &code, 8);
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
