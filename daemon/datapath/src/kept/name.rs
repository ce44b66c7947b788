//! The names of the descriptors that systemd keeps.

use std::{fmt, str::FromStr};

use crate::syscall::Hook;

/// A descriptor that outlives the weir that made it. All except links belong to one generation of the datapath: each
/// weir loads its own datapath at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A link: a program on an interface.
    Link {
        /// The hook of the program.
        hook: Hook,
        /// The index of the interface.
        ifindex: u32,
        /// The inode of its network namespace.
        network: u64,
    },
    /// The counters that a generation has reported so far.
    HandoverState(u32),
    /// The flows that a generation has seen, if it ended normally.
    Seen(u32),
    /// Records that a generation had read but not reported, if it ended normally.
    Records(u32),
    /// The program `flush` of a generation.
    Flush(u32),
    /// The map `CPUS` of a generation.
    Cpus(u32),
    /// The map `HANDED_OVER` of a generation.
    HandedOver(u32),
    /// The ring of a CPU.
    Ring {
        /// The generation of weir that created it.
        generation: u32,
        /// The CPU that writes to it.
        cpu: u32,
    },
}

/// The names of the hooks.
const HOOKS: [(Hook, &str); 4] = [
    (Hook::XdpNative, "xdp-native"),
    (Hook::XdpGeneric, "xdp-generic"),
    (Hook::TcxIngress, "tcx-ingress"),
    (Hook::TcxEgress, "tcx-egress"),
];

impl Name {
    /// All names of a generation with rings for this many CPUs.
    pub fn of_generation(generation: u32, cpus: u32) -> impl Iterator<Item = Self> {
        let rings = (0..cpus).map(move |cpu| Self::Ring { generation, cpu });
        [Self::HandoverState, Self::Seen, Self::Records, Self::Flush, Self::Cpus, Self::HandedOver]
            .into_iter()
            .map(move |name| name(generation))
            .chain(rings)
    }

    /// The generation that the descriptor belongs to; `None` for a link.
    pub const fn generation(self) -> Option<u32> {
        match self {
            Self::Link { .. } => None,
            Self::HandoverState(generation)
            | Self::Seen(generation)
            | Self::Records(generation)
            | Self::Flush(generation)
            | Self::Cpus(generation)
            | Self::HandedOver(generation)
            | Self::Ring { generation, .. } => Some(generation),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { hook, ifindex, network } => {
                let word = HOOKS.iter().find(|(one, _)| one == hook).map_or("", |(_, word)| word);
                write!(f, "link.{word}.{ifindex}.{network}")
            }
            Self::HandoverState(generation) => write!(f, "book.{generation}"),
            Self::Seen(generation) => write!(f, "seen.{generation}"),
            Self::Records(generation) => write!(f, "records.{generation}"),
            Self::Flush(generation) => write!(f, "flush.{generation}"),
            Self::Cpus(generation) => write!(f, "cpus.{generation}"),
            Self::HandedOver(generation) => write!(f, "handed-over.{generation}"),
            Self::Ring { generation, cpu } => write!(f, "ring.{generation}.{cpu}"),
        }
    }
}

/// The name is not one of weir's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;

impl FromStr for Name {
    type Err = NotOurs;

    fn from_str(text: &str) -> Result<Self, NotOurs> {
        let number = |text: &str| text.parse().map_err(|_| NotOurs);
        let parts: Vec<_> = text.split('.').collect();
        Ok(match parts[..] {
            ["link", word, ifindex, network] => {
                let (hook, _) = HOOKS.into_iter().find(|(_, one)| *one == word).ok_or(NotOurs)?;
                Self::Link { hook, ifindex: number(ifindex)?, network: network.parse().map_err(|_| NotOurs)? }
            }
            ["book", generation] => Self::HandoverState(number(generation)?),
            ["seen", generation] => Self::Seen(number(generation)?),
            ["records", generation] => Self::Records(number(generation)?),
            ["flush", generation] => Self::Flush(number(generation)?),
            ["cpus", generation] => Self::Cpus(number(generation)?),
            ["handed-over", generation] => Self::HandedOver(number(generation)?),
            ["ring", generation, cpu] => Self::Ring { generation: number(generation)?, cpu: number(cpu)? },
            _ => return Err(NotOurs),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_read_as_it_was_written() {
        let links = HOOKS.map(|(hook, _)| Name::Link { hook, ifindex: 7, network: 4_026_531_840 });
        let others = [
            Name::HandoverState(1),
            Name::Seen(6),
            Name::Records(7),
            Name::Flush(2),
            Name::Cpus(3),
            Name::HandedOver(4),
            Name::Ring { generation: 5, cpu: 1023 },
        ];
        for name in links.into_iter().chain(others) {
            let text = name.to_string();
            assert_eq!(text.parse(), Ok(name), "{text}");
            // systemd accepts only such names.
            assert!(text.len() < 255 && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'), "{text}");
        }
        for wrong in ["", "link", "link.xdp.7", "book.", "book.x", "ring.1", "ring.1.2.3", "stored"] {
            assert_eq!(wrong.parse::<Name>(), Err(NotOurs), "{wrong}");
        }
    }
}
