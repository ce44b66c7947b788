//! The limits of everything that senders of reports choose. The collector refuses larger values, and `weir merge`
//! leaves them out. Both name them.

use jiff::Timestamp;
use weir_system::text::short;

/// The longest line, in bytes: a report with the largest sketches has less.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// The longest identity or name of an observer, a run, a site, a sketch or a field, and the longest reason, in bytes.
/// Those of weir are shorter.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest text of a report, in bytes, except for images of sketches.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// The deepest nesting of lists and objects. A report has some ten levels. JSON parsers, including those of databases,
/// have their own limits, and would then fail on every report.
pub const DEPTH_MAX: usize = 64;
/// The most observers that one reader of reports keeps apart.
pub const OBSERVERS_MAX: usize = 16_384;
/// No report has this number or a larger one: every JSON reader keeps smaller integers exact. With a report each
/// second, it is reached in 285 million years.
pub const SEQ_MAX: u64 = 1 << 53;

/// Checks the length of a name.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_name(field: &str, name: &str) -> Result<(), String> {
    if name.len() <= NAME_BYTES_MAX { Ok(()) } else { Err(format!("`{field}` is longer than {NAME_BYTES_MAX} bytes")) }
}

/// Checks the number of a report.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_seq(field: &str, seq: u64) -> Result<(), String> {
    if seq < SEQ_MAX { Ok(()) } else { Err(format!("no weir has sent {seq} reports (`{field}`)")) }
}

/// Checks that an id is that of its observer, its run, and its number or numbers.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_id(id: &str, observer: &str, boot_id: &str, numbers: &str) -> Result<(), String> {
    let expected = format!("{observer}/{boot_id}/{numbers}");
    if id == expected {
        return Ok(());
    }
    Err(format!("the id {:?} is not that of its observer, which makes {:?}", short(id), short(&expected)))
}

/// Checks the times of a window. Databases know no others, and the order of times is that of their texts.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_window(start: Timestamp, end: Timestamp) -> Result<(), String> {
    if start < Timestamp::UNIX_EPOCH || end < start {
        return Err("the window begins before 1970, or ends before it begins".to_owned());
    }
    Ok(())
}

/// Returns true if a window may have this total: see [`check_total`].
pub const fn is_total(total: u64) -> bool {
    total < SEQ_MAX
}

/// Checks a total of a window: a link of 1 Tbit/s carries fewer bytes in 19 hours. So sums of thousands of windows do
/// not overflow.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_total(field: &str, total: u64) -> Result<(), String> {
    if is_total(total) { Ok(()) } else { Err(format!("no window has {total} ({field})")) }
}
