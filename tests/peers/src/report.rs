//! The measurements: one group for each structure and memory level, printed as one table and drawn as one line.

/// The place of a structure in the memory hierarchy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MemoryLevel {
    /// The structure is in a core's own second-level cache.
    Near,
    /// In main memory, or a last-level cache that is as slow.
    Far,
}

/// A structure at one memory level.
pub struct Group {
    /// The structure, and how it was built.
    pub structure: &'static str,
    /// The memory level at which it was measured.
    pub place: MemoryLevel,
    /// The timed operations, in the order of [`Line::nanoseconds`].
    pub operations: &'static [&'static str],
    /// The meaning of [`Line::error`].
    pub error: &'static str,
    /// True if errors differ between items, and each is printed.
    pub error_by_item: bool,
    /// The kinds of items, in the order of [`Line::nanoseconds`].
    pub items: Vec<&'static str>,
    /// The contenders, ours first.
    pub lines: Vec<Line>,
}

/// A contender in a group.
pub struct Line {
    /// The type or the crate.
    pub name: &'static str,
    /// True if it is weir's.
    pub ours: bool,
    /// Nanoseconds by item and operation; none for an item that it does not take.
    pub nanoseconds: Vec<Option<Vec<f64>>>,
    /// The memory that it occupies.
    pub memory_bytes: usize,
    /// The measured error, as text: of the last item, or of each, if [`Group::error_by_item`].
    pub error: String,
}

/// A contender with one kind of item.
pub struct Outcome {
    /// The type or the crate.
    pub name: &'static str,
    /// True if it is weir's.
    pub ours: bool,
    /// Nanoseconds by operation.
    pub nanoseconds: Vec<f64>,
    /// The memory that it occupies.
    pub memory_bytes: usize,
    /// The measured error, as text.
    pub error: String,
}

impl Group {
    /// A group without contenders yet.
    pub const fn new(
        structure: &'static str,
        place: MemoryLevel,
        operations: &'static [&'static str],
        error: &'static str,
    ) -> Self {
        Self { structure, place, operations, error, error_by_item: false, items: Vec::new(), lines: Vec::new() }
    }

    /// Adds the outcomes with one more kind of item.
    pub fn add(&mut self, item: &'static str, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            let Outcome { name, ours, nanoseconds, memory_bytes, error } = outcome;
            let line = match self.lines.iter().position(|line| line.name == name) {
                Some(at) => &mut self.lines[at],
                None => {
                    self.lines.push(Line { name, ours, nanoseconds: Vec::new(), memory_bytes, error: String::new() });
                    self.lines.last_mut().expect("just pushed")
                }
            };
            line.nanoseconds.resize(self.items.len(), None);
            line.nanoseconds.push(Some(nanoseconds));
            if self.error_by_item && !line.error.is_empty() {
                line.error += " / ";
                line.error += &error;
            } else {
                line.error = error;
            }
        }
        self.items.push(item);
        for line in self.lines.iter_mut() {
            line.nanoseconds.resize(self.items.len(), None);
        }
    }

    /// The least time of ours, or of the peers, for an item and an operation.
    pub fn best(&self, ours: bool, item: usize, operation: usize) -> Option<f64> {
        let lines = self.lines.iter().filter(|line| line.ours == ours);
        lines.filter_map(|line| Some(line.nanoseconds[item].as_ref()?[operation])).min_by(f64::total_cmp)
    }

    /// How many times faster the best of ours is than the best peer.
    pub fn ratio(&self, item: usize, operation: usize) -> Option<f64> {
        Some(self.best(false, item, operation)? / self.best(true, item, operation)?)
    }
}
