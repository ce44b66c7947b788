//! The plan of weir's memory: each crate says its own parts, and the program adds them up.

/// A part of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part of weir that takes the memory, in words.
    pub what: &'static str,
    /// How much it takes at most.
    pub bytes: u64,
    /// The computation of the bytes, or their purpose.
    pub how: String,
    /// Tables have a line for it only if it takes at least this much.
    shown_from: u64,
}

impl Part {
    /// A part that tables always show.
    pub fn new(what: &'static str, bytes: u64, how: impl Into<String>) -> Self {
        Self { what, bytes, how: how.into(), shown_from: 0 }
    }

    /// Lets tables show it only if it takes at least this much.
    pub fn shown_from(self, bytes: u64) -> Self {
        Self { shown_from: bytes, ..self }
    }

    /// Lets tables show it only if it takes anything.
    pub fn if_any(self) -> Self {
        self.shown_from(1)
    }

    /// Returns true if tables show it.
    pub const fn is_shown(&self) -> bool {
        self.bytes >= self.shown_from
    }
}

/// The sum of these parts.
pub fn total(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_whether_or_not_it_is_shown() {
        let parts = [Part::new("a", 0, ""), Part::new("b", 0, "").if_any(), Part::new("c", 7, "").shown_from(8)];
        assert_eq!(parts.each_ref().map(Part::is_shown), [true, false, false]);
        assert!(Part::new("d", 8, "").shown_from(8).is_shown());
        assert_eq!(total(&parts), 7);
    }
}
