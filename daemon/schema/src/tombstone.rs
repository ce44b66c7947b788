//! Tombstones. weir delivers them in place of lost reports. They say which reports are lost, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::Ids;

/// The schema of a tombstone.
pub const TOMBSTONE_SCHEMA: &str = "weir.tombstone/1";

/// Why reports are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The spool or its disk was full.
    SpoolFull,
    /// The queue in memory was full: there is no spool, or it cannot be written.
    QueueFull,
    /// They waited longer than the spool keeps reports.
    TooOld,
    /// The file in the spool is damaged.
    Damaged,
    /// The collector refuses them for good.
    Refused,
    /// A user removed them from the spool.
    Removed,
}

impl Reason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 6] =
        [Self::SpoolFull, Self::QueueFull, Self::TooOld, Self::Damaged, Self::Refused, Self::Removed];

    /// Returns the name in tombstones and in names of files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpoolFull => "spool_full",
            Self::QueueFull => "queue_full",
            Self::TooOld => "too_old",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
            Self::Removed => "removed",
        }
    }

    /// The reason with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// A message about reports that will never come: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Tombstone {
    /// The format of this document: `weir.tombstone/1`.
    pub schema: String,
    /// Observer, run, and the numbers of the first and the last report: `7f3c9a52/b41d0c11/40-42`.
    pub id: String,
    /// The observer of the reports.
    pub observer: Whose,
    /// The number of the first report.
    pub first_seq: u64,
    /// The number of the last report.
    pub last_seq: u64,
    /// The number of reports.
    pub reports: u64,
    /// The reason why they are lost.
    pub reason: Reason,
}

/// The observer of a tombstone's reports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Whose {
    /// The observer's id, as in its reports.
    pub id: String,
    /// The id of its run, as in its reports.
    pub boot_id: String,
}

impl Tombstone {
    /// The tombstone of these reports.
    pub fn new(ids: &Ids, reason: Reason) -> Self {
        Self {
            schema: TOMBSTONE_SCHEMA.to_owned(),
            // Even for a single report this differs from the report's own id.
            id: format!("{}/{}/{}-{}", ids.observer(), ids.run(), ids.first(), ids.last()),
            observer: Whose { id: ids.observer(), boot_id: ids.run() },
            first_seq: ids.first(),
            last_seq: ids.last(),
            reports: ids.count(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_is_one_line_that_names_its_reports() {
        let ids = Ids::read("7f3c9a52", "b41d0c11", "40", "42").unwrap();
        let text = serde_json::to_string(&Tombstone::new(&ids, Reason::SpoolFull)).unwrap();
        let expected = r#"{"schema":"weir.tombstone/1","id":"7f3c9a52/b41d0c11/40-42","observer":{"id":"7f3c9a52","boot_id":"b41d0c11"},"first_seq":40,"last_seq":42,"reports":3,"reason":"spool_full"}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn a_reason_has_the_same_name_everywhere() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
            assert_eq!(Reason::named(reason.name()), Some(reason));
        }
        assert_eq!(Reason::named("lost"), None);
    }
}
