//! What is known of a measured interface beside its ledger.

/// One direction of an interface, as a window's report names it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredInterface {
    /// Which of the summary's ledgers is its own.
    pub slot: usize,
    /// Its name.
    pub name: String,
    /// How its packets were seen.
    pub mode: &'static str,
    /// Which of its packets; `None` for a capture.
    pub direction: Option<&'static str>,
    /// The packets seen for each one that the interface itself counted, if known.
    pub coverage: Option<f64>,
}
