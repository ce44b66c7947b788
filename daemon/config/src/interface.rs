//! Selects interfaces by a name, a pattern of names or the default route, and packets by their direction.
//!
//! A pattern may contain `*` (any characters, or none) and `?` (any one character), as in a shell.

use std::{
    array,
    sync::atomic::{AtomicU8, Ordering},
};

use serde::{Deserialize, Serialize};
use weir_common::control::SLOTS_MAX;

/// A direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub enum Way {
    /// Received packets.
    Ingress,
    /// Sent packets.
    Egress,
}

impl Way {
    /// Both directions, received first.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The direction with this number, as in [`Directions`]; 0 is no direction.
    pub const fn of_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Ingress),
            2 => Some(Self::Egress),
            _ => None,
        }
    }

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// The direction of each interface slot. It can change while weir runs, because interfaces come and go.
#[derive(Debug)]
pub struct Directions([AtomicU8; SLOTS_MAX as usize]);

impl Default for Directions {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU8::new(0)))
    }
}

impl Directions {
    /// The number of a slot's direction; 0 if it has none, as for a capture.
    #[inline]
    pub fn number(&self, slot: u8) -> u8 {
        self.0[usize::from(slot)].load(Ordering::Relaxed)
    }

    /// Sets the direction of a slot.
    pub fn set(&self, slot: u8, way: Option<Way>) {
        let number = Way::ALL.iter().position(|one| Some(*one) == way).map_or(0, |nth| nth as u8 + 1);
        self.0[usize::from(slot)].store(number, Ordering::Relaxed);
    }
}

/// Used in place of a name, for all interfaces that carry a default route. No interface can have this name, because it
/// contains a space.
pub const DEFAULT_ROUTE: &str = "default route";
/// The mode in reports of an interface that is measured only while a default route uses it, and none does.
pub const NO_ROUTE: &str = "no-default-route";

/// Returns true if a name is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Returns true if `name` equals or matches `pattern`. The number of steps is at most the product of their lengths.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut next) = (0, 0);
    // The position of the latest `*`, and the position in the name where the text after it was last tried.
    let mut star = None;
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[next] => (at, next) = (at + 1, next + 1),
            _ => match &mut star {
                // Let the `*` match one more byte.
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
