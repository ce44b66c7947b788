//! The format of horizons and known hosts on disk.
//!
//! ```text
//! version, 1; the local key, 16 bytes; how many horizons
//!   for each horizon: its length in seconds; how many parts
//!     for each part: start and end in milliseconds; covered nanoseconds; unknown and most packets; three images
//! whether there are known hosts; if so, for each of four generations, the current one first:
//!     begun in milliseconds, or none; filled nanoseconds; an image
//! ```
//!
//! Numbers have 64 bits and are little endian. An image is that of a sketch, after its length. Any bytes give a valid
//! content or [`DamagedImage`], and never a panic. The file around it has a checksum.

use std::{array, time::Duration};

use jiff::Timestamp;
use thiserror::Error;
use weir_sketch::{HyperLogLog, Image, SharedBloom, hash::Key};

use super::{Generation, Local, horizon::Part};
use crate::{
    known_hosts::GENERATIONS,
    local_shard::{UNIQUE_BYTES, unique},
    unique::Unique,
};

const VERSION: u64 = 1;
/// A number in place of a time that is not known.
const NO_TIME: u64 = u64::MAX;
/// The largest filter of a generation, in bytes: more than the largest that can be configured.
const FILTER_MAX: usize = 16 << 20;
/// More parts and horizons than there can be.
const COUNT_MAX: u64 = 1000;

/// The bytes are not an image of this version, or a part of one is missing.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("it does not have the content that this version of weir writes")]
pub struct DamagedImage;

/// What an earlier weir has left.
pub struct Kept {
    /// The local key.
    pub key: Key,
    /// The parts of each horizon, by its length.
    pub horizons: Vec<(Duration, Vec<Part>)>,
    /// The known hosts.
    pub hosts: Option<KeptHosts>,
}

/// Known hosts that an earlier weir has left.
pub struct KeptHosts {
    /// The filter of each generation, the current one first.
    pub(super) filters: [SharedBloom; GENERATIONS],
    pub(super) generations: [Generation; GENERATIONS],
}

impl Local {
    /// Everything that the next weir needs to continue.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { key: Key(key), horizons, hosts } = self;
        let mut bytes = Vec::new();
        put(&mut bytes, [VERSION, key[0], key[1], horizons.len() as u64]);
        for horizon in horizons {
            put(&mut bytes, [horizon.length().as_secs(), horizon.parts().len() as u64]);
            for part in horizon.parts() {
                let Part { start, end, covered, unknown, most, unique, is_of_this_run: _ } = part;
                put(&mut bytes, [millis(*start), millis(*end), nanos(*covered), *unknown, *most]);
                for sketch in unique.each() {
                    put_image(&mut bytes, sketch);
                }
            }
        }
        put(&mut bytes, [hosts.is_some().into()]);
        if let Some(hosts) = hosts {
            for (filter, Generation { begun, filled }) in hosts.filter.generations().iter().zip(hosts.generations) {
                put(&mut bytes, [begun.map_or(NO_TIME, millis), nanos(filled)]);
                put_image(&mut bytes, *filter);
            }
        }
        bytes
    }
}

impl Kept {
    /// Reads what [`Local::to_bytes`] has written.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DamagedImage> {
        let mut rest = bytes;
        read(&mut rest).filter(|_| rest.is_empty()).ok_or(DamagedImage)
    }
}

fn read(bytes: &mut &[u8]) -> Option<Kept> {
    let [version, high, low, horizons] = take(bytes)?;
    if version != VERSION || horizons > COUNT_MAX {
        return None;
    }
    let key = Key([high, low]);
    let horizons = (0..horizons).map(|_| read_horizon(bytes, key.id())).collect::<Option<_>>()?;
    let hosts = match take(bytes)? {
        [0] => None,
        [1] => Some(read_hosts(bytes, key.id())?),
        _ => return None,
    };
    Some(Kept { key, horizons, hosts })
}

fn read_horizon(bytes: &mut &[u8], key_id: u64) -> Option<(Duration, Vec<Part>)> {
    let [seconds, count] = take(bytes)?;
    if count > COUNT_MAX {
        return None;
    }
    let planned = unique(key_id).sources.geometry();
    let mut parts = Vec::new();
    for _ in 0..count {
        let [start, end, covered, unknown, most] = take(bytes)?;
        let mut sketch = || {
            let sketch: HyperLogLog = take_image(bytes, UNIQUE_BYTES)?;
            ((sketch.geometry(), sketch.key_id()) == (planned, key_id)).then_some(sketch)
        };
        let unique = Unique { sources: sketch()?, destinations: sketch()?, flows: sketch()? };
        let (start, end) = (time(start)?, time(end)?);
        parts.push(Part {
            start,
            end: end.max(start),
            covered: Duration::from_nanos(covered),
            unknown,
            most,
            unique,
            is_of_this_run: false,
        });
    }
    Some((Duration::from_secs(seconds), parts))
}

fn read_hosts(bytes: &mut &[u8], key_id: u64) -> Option<KeptHosts> {
    let mut generations = [Generation::default(); GENERATIONS];
    let mut filters = Vec::new();
    for generation in &mut generations {
        let [begun, filled] = take(bytes)?;
        let begun = if begun == NO_TIME { None } else { Some(time(begun)?) };
        *generation = Generation { begun, filled: Duration::from_nanos(filled) };
        let filter: SharedBloom = take_image(bytes, FILTER_MAX)?;
        filters.push(Some(filter).filter(|filter| filter.key_id() == key_id)?);
    }
    let mut filters = filters.into_iter();
    let filters: [Option<SharedBloom>; GENERATIONS] = array::from_fn(|_| filters.next());
    let [Some(a), Some(b), Some(c), Some(d)] = filters else { return None };
    Some(KeptHosts { filters: [a, b, c, d], generations })
}

fn put<const N: usize>(bytes: &mut Vec<u8>, numbers: [u64; N]) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn put_image(bytes: &mut Vec<u8>, sketch: &impl Image) {
    let image = sketch.to_image();
    put(bytes, [image.len() as u64]);
    bytes.extend(image);
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (word, rest) = bytes.split_first_chunk()?;
        (*number, *bytes) = (u64::from_le_bytes(*word), rest);
    }
    Some(numbers)
}

fn take_image<S: Image>(bytes: &mut &[u8], memory_max: usize) -> Option<S> {
    let [length] = take(bytes)?;
    let (image, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    S::from_image(image, memory_max).ok()
}

fn millis(time: Timestamp) -> u64 {
    time.as_millisecond().cast_unsigned()
}

fn time(millis: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(millis.cast_signed()).ok()
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
