//! The resources of the machine that this process uses.

use crate::bounded;

/// The resident set of this process in bytes. `None` if `/proc` is not readable, for example at the limit of open
/// files.
pub fn resident_bytes() -> Option<u64> {
    resident_of(&bounded::read_to_string("/proc/self/statm").ok()?)
}

/// Parses `/proc/self/statm`: sizes in pages, the second of which is the resident set.
fn resident_of(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_resident_set_is_not_zero() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 0));
        let page = rustix::param::page_size() as u64;
        assert_eq!(resident_of("4096 512 300 10 0 200 0\n"), Some(512 * page));
        for unreadable in ["", "4096", "4096 many", "4096 18446744073709551615 0"] {
            assert_eq!(resident_of(unreadable), None, "{unreadable:?}");
        }
    }
}
