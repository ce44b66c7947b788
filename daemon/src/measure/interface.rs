//! What is known of a measured interface beside its ledger.

/// What a packet of the ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// A packet as it was on the wire.
    Packets,
    /// A buffer of the kernel: one packet, or several that an offload merged.
    Buffers,
}

impl Counts {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Buffers => "buffers",
        }
    }
}

/// The mode of an interface that is measured only while a default route leaves by it, and none does.
pub const NO_ROUTE: &str = "no-default-route";

/// One direction of an interface, as a window's report names it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredInterface {
    /// Which of the summary's ledgers is its own.
    pub slot: usize,
    /// Its name.
    pub name: String,
    /// Its number in the kernel (ifIndex), if it has one now.
    pub index: Option<u32>,
    /// What the operator calls it, if anything.
    pub alias: Option<String>,
    /// How its packets were seen.
    pub mode: &'static str,
    /// What counts as a packet.
    pub counts: Counts,
    /// Which of its packets; `None` for a capture.
    pub direction: Option<&'static str>,
    /// Which of them feed totals and lists.
    pub feeds: &'static str,
    /// The packets seen for each one that the interface itself counted, if known.
    pub coverage: Option<f64>,
}
