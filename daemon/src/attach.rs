//! Attaching the program to interfaces, and following interfaces that vanish and come back.

use std::{error::Error as _, iter::successors};

use aya::{
    programs::{ProgramError, Xdp, links::FdLink, xdp::XdpMode},
    sys::SyscallError,
};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketType, netdevice::name_to_index, socket},
};
use thiserror::Error;
use tracing::{info, warn};

use crate::{
    config::{Interface, Mode},
    kernel::{InterfaceTable, KernelError},
};

/// Why an interface cannot be measured.
#[derive(Debug, Error)]
pub enum AttachError {
    /// There is none of that name.
    #[error("interface \"{name}\" not found (have: {have})")]
    NotFound {
        /// The name.
        name: String,
        /// The interfaces that there are.
        have: String,
    },
    /// Another program is there, and stays.
    #[error(
        "interface \"{0}\" has an XDP program of somebody else, which weir never replaces: \
         detach it (`ip link set dev {0} xdp off`), or leave the interface out"
    )]
    Taken(String),
    /// No privilege.
    #[error("not permitted to attach to interface \"{0}\": run as root, or with the capability CAP_NET_ADMIN")]
    NotPermitted(String),
    /// The mode asked for is not to be had.
    #[error("interface \"{name}\" does not take an XDP program in {mode} mode")]
    Refused {
        /// The interface.
        name: String,
        /// The mode.
        mode: &'static str,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// The kernel attached by netlink, which outlives the daemon.
    #[error(
        "the kernel cannot attach to interface \"{0}\" by a link that ends with weir (it needs Linux 5.9 or later)"
    )]
    NoLink(String),
    /// The interface table is full or gone.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl AttachError {
    /// Whether the user, and not the configuration, is what lacks something.
    pub const fn is_not_possible_here(&self) -> bool {
        !matches!(self, Self::NotFound { .. })
    }
}

/// How an interface's packets are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obtained {
    /// In the driver, before a socket buffer exists.
    Native,
    /// In the kernel's stack, after it.
    Generic,
    /// Not at all: the interface is gone.
    Gone,
}

impl Obtained {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "xdp-native",
            Self::Generic => "xdp-generic",
            Self::Gone => "gone",
        }
    }
}

struct Attachment {
    interface: Interface,
    present: Option<Present>,
}

/// An attachment's kernel side; dropping it detaches.
struct Present {
    ifindex: u32,
    obtained: Obtained,
    _link: FdLink,
}

/// All interfaces of a configuration, by slot.
pub struct Attachments<'a> {
    program: &'a mut Xdp,
    table: &'a mut InterfaceTable,
    attachments: Vec<Attachment>,
}

impl<'a> Attachments<'a> {
    /// Attaches to every interface, or to none.
    ///
    /// # Errors
    ///
    /// The first interface that cannot be measured.
    pub fn attach(
        program: &'a mut Xdp,
        table: &'a mut InterfaceTable,
        interfaces: &[Interface],
    ) -> Result<Self, AttachError> {
        let attachments =
            interfaces.iter().map(|interface| Attachment { interface: interface.clone(), present: None }).collect();
        let mut all = Self { program, table, attachments };
        for slot in 0..all.attachments.len() {
            let name = all.attachments[slot].interface.name.clone();
            let Some(ifindex) = index_of(&name) else {
                return Err(AttachError::NotFound { name, have: interface_names().join(", ") });
            };
            all.attach_one(slot, ifindex)?;
        }
        Ok(all)
    }

    fn attach_one(&mut self, slot: usize, ifindex: u32) -> Result<(), AttachError> {
        let Interface { name, mode } = &self.attachments[slot].interface;
        let (name, mode) = (name.clone(), *mode);
        // In the table before the first packet can come.
        self.table.insert(ifindex, slot as u32)?;
        match link(self.program, &name, ifindex, mode) {
            Ok((obtained, link)) => {
                info!(interface = %name, ifindex, mode = obtained.name(), "attached");
                self.attachments[slot].present = Some(Present { ifindex, obtained, _link: link });
                Ok(())
            }
            Err(error) => {
                self.table.remove(ifindex)?;
                Err(error)
            }
        }
    }

    /// How each interface's packets are seen now, by slot.
    pub fn modes(&self) -> impl Iterator<Item = (&str, Obtained)> {
        self.attachments.iter().map(|attachment| {
            let obtained = attachment.present.as_ref().map_or(Obtained::Gone, |present| present.obtained);
            (attachment.interface.name.as_str(), obtained)
        })
    }

    /// Notices interfaces that vanished, and attaches to those that came back.
    pub fn follow(&mut self) {
        for slot in 0..self.attachments.len() {
            let Attachment { interface, present } = &mut self.attachments[slot];
            let name = interface.name.clone();
            let found = index_of(&name);
            if let Some(lost) = present.take_if(|present| Some(present.ifindex) != found) {
                warn!(interface = %name, "the interface is gone; measuring goes on without it, and with it once it is back");
                if let Err(error) = self.table.remove(lost.ifindex) {
                    warn!(interface = %name, "cannot forget the interface: {error}");
                }
            }
            if let (None, Some(ifindex)) = (&self.attachments[slot].present, found)
                && let Err(error) = self.attach_one(slot, ifindex)
            {
                warn!(interface = %name, "cannot attach yet: {error}");
            }
        }
    }

    /// Detaches from every interface; how each was seen until now stays known to the caller.
    pub fn detach(&mut self) {
        for attachment in &mut self.attachments {
            attachment.present = None;
        }
    }
}

fn link(program: &mut Xdp, name: &str, ifindex: u32, mode: Mode) -> Result<(Obtained, FdLink), AttachError> {
    let attempts: &[_] = match mode {
        Mode::Auto => &[(XdpMode::Driver, Obtained::Native, "native"), (XdpMode::Skb, Obtained::Generic, "generic")],
        Mode::Native => &[(XdpMode::Driver, Obtained::Native, "native")],
        Mode::Generic => &[(XdpMode::Skb, Obtained::Generic, "generic")],
    };
    let mut refusal = None;
    for &(xdp_mode, obtained, mode) in attempts {
        match program.attach_to_if_index(ifindex, xdp_mode) {
            Ok(id) => {
                let link = program.take_link(id).map_err(|source| refused(name, mode, source))?;
                // A netlink attachment would outlive the daemon; dropping it here detaches it.
                let link = FdLink::try_from(link).map_err(|_| AttachError::NoLink(name.to_owned()))?;
                return Ok((obtained, link));
            }
            Err(source) => {
                let error = refused(name, mode, source);
                if !matches!(error, AttachError::Refused { .. }) {
                    return Err(error);
                }
                if attempts.len() > 1 && xdp_mode == XdpMode::Driver {
                    info!(interface = %name, "native mode refused, trying generic: {}", detail(&error));
                }
                refusal = Some(error);
            }
        }
    }
    Err(refusal.unwrap_or_else(|| AttachError::NoLink(name.to_owned())))
}

fn refused(name: &str, mode: &'static str, source: ProgramError) -> AttachError {
    let name = name.to_owned();
    let errno = match &source {
        ProgramError::SyscallError(SyscallError { io_error, .. }) => io_error.raw_os_error(),
        _ => None,
    };
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::BUSY | Errno::EXIST) => AttachError::Taken(name),
        Some(Errno::PERM | Errno::ACCESS) => AttachError::NotPermitted(name),
        _ => AttachError::Refused { name, mode, source },
    }
}

/// Every cause of an error, the outermost first.
fn detail(error: &AttachError) -> String {
    let causes = successors(error.source(), |&cause| cause.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn index_of(name: &str) -> Option<u32> {
    let any = socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?;
    name_to_index(any, name).ok()
}

/// The interfaces of this network namespace, from the process's own view of `/proc`.
fn interface_names() -> Vec<String> {
    let listing = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    listing.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}
