//! Which interface, and which of its packets: a name, a pattern of names or the default route, and a direction.
//!
//! A pattern has `*` (any characters, or none) and `?` (any one character), as shells have them.

use std::{
    array,
    sync::atomic::{AtomicU8, Ordering},
};

use serde::{Deserialize, Serialize};
use weir_common::control::SLOTS_MAX;

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub enum Way {
    /// Received.
    Ingress,
    /// Sent.
    Egress,
}

impl Way {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The direction of this number, as [`Directions`] has it; 0 is for none.
    pub const fn of_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Ingress),
            2 => Some(Self::Egress),
            _ => None,
        }
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// The direction of each interface's slot, as interfaces come and go.
#[derive(Debug)]
pub struct Directions([AtomicU8; SLOTS_MAX as usize]);

impl Default for Directions {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU8::new(0)))
    }
}

impl Directions {
    /// The number of a slot's direction; 0 if it has none, as a capture.
    #[inline]
    pub fn number(&self, slot: u8) -> u8 {
        self.0[usize::from(slot)].load(Ordering::Relaxed)
    }

    /// A slot has this direction from now on.
    pub fn set(&self, slot: u8, way: Option<Way>) {
        let number = Way::ALL.iter().position(|one| Some(*one) == way).map_or(0, |nth| nth as u8 + 1);
        self.0[usize::from(slot)].store(number, Ordering::Relaxed);
    }
}

/// What stands in the place of a name for all interfaces that a default route leaves by. No interface has such a name,
/// for white space is in it.
pub const DEFAULT_ROUTE: &str = "default route";

/// Whether a name is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Whether `name` is `pattern`, or fits it. Takes at most the product of their lengths in steps.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut next) = (0, 0);
    // Where the latest `*` stands, and where in the name what follows it was last tried.
    let mut star = None;
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[next] => (at, next) = (at + 1, next + 1),
            _ => match &mut star {
                // The `*` takes one byte more.
                Some((star, tried)) => {
                    *tried += 1;
                    (at, next) = (*star + 1, *tried);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_in_a_shell() {
        let fitting =
            [("eth*", "eth0"), ("eth*", "eth"), ("*", "x"), ("e?h0", "eth0"), ("*.1?", "wan0.10"), ("a*b*c", "abbbxc")];
        for (pattern, name) in fitting {
            assert!(fits(pattern, name), "{pattern} fits {name}");
        }
        let unfitting =
            [("eth*", "wan0"), ("eth?", "eth"), ("eth?", "eth10"), ("*.1", "wan0.10"), ("a*b*c", "abbbx"), ("", "x")];
        for (pattern, name) in unfitting {
            assert!(!fits(pattern, name), "{pattern} does not fit {name}");
        }
        assert!(is_pattern("ppp*") && is_pattern("eth?") && !is_pattern("eth0"));
    }
}
