//! Constructors that build each structure together with its key: `with_key` and, where the operating system has random
//! numbers, `new`.

use super::{
    BlockedBloom, BlockedCountMin, Bloom, CandidateBuckets, CompactHyperLogLog, CountMin, CountingBloom, Cuckoo,
    HeavyLight, HyperLogLog, Keyed, Quotient, SampleAndHold, ScalableBloom, Seen, SettingError, SharedBloom, Spread,
    TopK, UltraLogLog, Weight, hash::Key,
};
#[cfg(feature = "std")]
use crate::setting::BuildError;

/// Both constructors of each structure. They take the settings of the structure's constructor for hashes.
macro_rules! constructors {
    ($([$($parameters:tt)*] $sketch:ty, $build:ident($($setting:ident: $type:ty),+) $text:literal)+) => {
        $(impl<$($parameters)*> $sketch {
            #[doc = $text]
            #[doc = concat!("With a random key, and the settings of [`Self::", stringify!($build), "`].")]
            ///
            /// # Errors
            ///
            /// A setting is not allowed: see [`Self::check`]. Or the operating system provides no random numbers.
            #[cfg(feature = "std")]
            pub fn new($($setting: $type),+) -> Result<Keyed<Self>, BuildError> {
                let key = Key::random().map_err(BuildError::NoRandom)?;
                Self::with_key(key, $($setting),+).map_err(BuildError::Setting)
            }

            #[doc = $text]
            #[doc = concat!("With this key, and the settings of [`Self::", stringify!($build), "`].")]
            ///
            /// # Errors
            ///
            /// A setting is not allowed: see [`Self::check`].
            pub fn with_key(key: Key, $($setting: $type),+) -> Result<Keyed<Self>, SettingError> {
                Keyed::build(key, |key_id| Self::$build($($setting,)+ key_id))
            }
        })+
    };
}

constructors! {
    [] BlockedBloom, with_capacity(items: u64, false_positive_rate: f64) "A filter for this many items."
    [] Bloom, with_capacity(items: u64, false_positive_rate: f64) "A filter for this many items."
    [] CountingBloom, with_capacity(items: u64, false_positive_rate: f64) "A filter for this many items."
    [] ScalableBloom, with_capacity(items: u64, false_positive_rate: f64) "A filter that is first built for this many items."
    [] SharedBloom, with_capacity(items: u64, false_positive_rate: f64) "A filter for this many items."
    [] Seen, with_capacity(items: u64, false_positive_rate: f64) "Two generations of this many items."
    [] Cuckoo, with_capacity(items: u64) "A filter for this many items."
    [] Quotient, with_capacity(items: u64) "A filter for this many items."
    [W: Weight] CountMin<W>, with_error(error: f64, probability_of_more: f64) "A sketch with this error."
    [W: Weight] BlockedCountMin<W>, with_error(error: f64) "A sketch with this error."
    [W: Weight] HeavyLight<W>, with_error(error: f64) "A sketch with this error."
    [K: Clone + Eq + Default, W: Weight] TopK<K, W>, with_capacity(entries: usize) "A table of this many candidates."
    [K: Copy + Default, W: Weight] CandidateBuckets<K, W>, with_capacity(candidates: usize) "Room for this many candidates."
    [] HyperLogLog, with_error(relative_error: f64) "A count with this error."
    [] CompactHyperLogLog, with_error(relative_error: f64) "A count with this error."
    [] UltraLogLog, with_error(relative_error: f64) "A count with this error."
    [K: Copy] Spread<K>, with_resolution(pairs: u64, smallest: u64, relative_error: f64) "Counts with this error."
    [K: Copy] SampleAndHold<K>, with_room(keys: usize, relative_error: f64) "Room for this many keys."
}
