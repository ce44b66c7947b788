//! Reads what weir has sent.
//!
//! The code that reads a report is 200 KB. A generic function would have it once for each crate and each kind of input,
//! so each type reads itself, and only from bytes.

use crate::{
    AskedFlows, Changes, Found, History, HostUsage, KeyHistory, Live, LiveAnswers, NamesAnswer, PastWindow, Report,
    Row, Second, Tombstone, Union, Usage,
};

/// A type that is read from JSON.
pub trait FromJson: Sized {
    /// Reads a value.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or a field is missing or has another type.
    fn from_json(text: &[u8]) -> serde_json::Result<Self>;
}

/// Lets types that implement `Deserialize` read themselves.
#[macro_export]
macro_rules! from_json {
    ($($name:ty),+ $(,)?) => {$(
        impl $crate::FromJson for $name {
            fn from_json(text: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(text)
            }
        }
    )+};
}

from_json!(
    AskedFlows,
    Changes,
    Found,
    History,
    HostUsage,
    KeyHistory,
    Live,
    LiveAnswers,
    NamesAnswer,
    PastWindow,
    Report,
    Row,
    Second,
    Tombstone,
    Union,
    Usage,
    Vec<Report>
);
