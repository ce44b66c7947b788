//! A sketch under test, ours or a peer's, as the measurement sees it.

/// A sketch that takes keys in batches. Each family of rows has a trait for its answers.
pub trait Subject<K> {
    /// Clears it, so that it is empty but its pages are resident.
    fn clear(&mut self);

    /// Inserts, adds or counts each key.
    fn put(&mut self, keys: &[K]);

    /// The sum of the answers about these keys: how many were found, or the sum of their counts.
    fn ask(&self, keys: &[K]) -> u64;

    /// Removes each key, if the structure can.
    fn remove(&mut self, _keys: &[K]) {}

    /// The memory that it occupies.
    fn memory_bytes(&self) -> usize;
}

/// A competitor in a row.
pub struct Contender<K> {
    /// The type or the crate.
    pub name: &'static str,
    /// True if it is weir's.
    pub ours: bool,
    /// The sketch that is measured.
    pub subject: Box<dyn Subject<K>>,
}

impl<K> Contender<K> {
    /// A sketch of weir's.
    pub fn ours(name: &'static str, subject: impl Subject<K> + 'static) -> Self {
        Self { name, ours: true, subject: Box::new(subject) }
    }

    /// A sketch of a crate.
    pub fn peer(name: &'static str, subject: impl Subject<K> + 'static) -> Self {
        Self { name, ours: false, subject: Box::new(subject) }
    }
}
