//! Images that the official Python package wrote. The README beside them describes their content.

macro_rules! golden {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/", $name, ".sk")).as_slice()
    };
}

/// Sketches of integers from 0 on: the registers as a power of two, the number of integers, and the image.
pub const INTEGERS: &[(u32, u64, &[u8])] = &[
    (12, 0, golden!("hll-8-lgk-12-items-0-to-0-compact")),
    (12, 5, golden!("hll-8-lgk-12-items-0-to-5-compact")),
    (12, 5, golden!("hll-4-lgk-12-items-0-to-5-updatable")),
    (21, 7, golden!("hll-8-lgk-21-items-0-to-7-compact")),
    (10, 70, golden!("hll-8-lgk-10-items-0-to-70-updatable")),
    (12, 100, golden!("hll-6-lgk-12-items-0-to-100-compact")),
    (10, 2_000, golden!("hll-8-lgk-10-items-0-to-2000-compact")),
    (10, 2_000, golden!("hll-6-lgk-10-items-0-to-2000-compact")),
    (10, 2_000, golden!("hll-4-lgk-10-items-0-to-2000-compact")),
    (10, 2_000, golden!("hll-4-lgk-10-items-0-to-2000-updatable")),
    (11, 18_000, golden!("hll-4-lgk-11-items-0-to-18000-compact")),
    (10, 30_000, golden!("hll-4-lgk-10-items-0-to-30000-compact")),
    (10, 30_000, golden!("hll-4-lgk-10-items-0-to-30000-updatable")),
    (6, 1_000_000, golden!("hll-6-lgk-6-items-0-to-1000000-compact")),
    (4, 1_000_000, golden!("hll-4-lgk-4-items-0-to-1000000-compact")),
];
pub const WORDS: &[u8] = golden!("hll-8-lgk-8-words");
pub const UNION: &[u8] = golden!("hll-union");
pub const LONGS_EMPTY: &[u8] = golden!("longs-empty");
pub const LONGS_EXACT: &[u8] = golden!("longs-exact");
pub const LONGS_PURGED: &[u8] = golden!("longs-purged");
pub const STRINGS: &[u8] = golden!("strings-unicode");
