//! Maps interfaces to slots. Views that match by interface, or distinguish directions, look up slots here while
//! interfaces come and go.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use weir_common::control::SLOTS_MAX;
use weir_config::interface::{Directions, Way, fits};

const WORDS: usize = SLOTS_MAX as usize / 64;

/// The slots that one condition selects.
#[derive(Debug, Default)]
pub struct Selected([AtomicU64; WORDS]);

impl Selected {
    /// Returns true if this slot is selected.
    #[inline]
    pub fn has(&self, slot: u8) -> bool {
        self.0[usize::from(slot) / 64].load(Ordering::Relaxed) >> (slot % 64) & 1 == 1
    }

    fn set(&self, slot: u8, is_selected: bool) {
        let (word, bit) = (&self.0[usize::from(slot) / 64], 1 << (slot % 64));
        if is_selected {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// A criterion that selects slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Interfaces whose names are among these, or match one of these patterns.
    Names(Vec<String>),
    /// Interfaces that are measured in this direction.
    Direction(Way),
}

impl Selector {
    fn selects(&self, names: &[&str], way: Option<Way>) -> bool {
        match self {
            Self::Names(wanted) => wanted.iter().any(|wanted| names.iter().any(|name| fits(wanted, name))),
            Self::Direction(wanted) => way == Some(*wanted),
        }
    }
}

/// All selectors of all views. The code that assigns slots to interfaces updates it.
#[derive(Debug, Default)]
pub struct Directory {
    selectors: Vec<(Selector, Arc<Selected>)>,
    /// The direction of each slot.
    pub directions: Directions,
}

impl Directory {
    /// Adds a selector. The result has the slots that it selects, now and later.
    pub fn add(&mut self, selector: Selector) -> Arc<Selected> {
        let selected = Arc::new(Selected::default());
        self.selectors.push((selector, selected.clone()));
        selected
    }

    /// Assigns a slot to this direction of the interface with these names. A capture has no direction.
    pub fn assign(&self, slot: usize, names: &[&str], way: Option<Way>) {
        let Ok(slot) = u8::try_from(slot) else { return };
        self.directions.set(slot, way);
        for (selector, selected) in &self.selectors {
            selected.set(slot, selector.selects(names, way));
        }
    }
}
