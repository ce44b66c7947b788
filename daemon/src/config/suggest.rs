//! "Did you mean": the known name that a misspelt one is nearest to.

use strsim::osa_distance;

/// Bytes of a misspelt name: longer ones are near to nothing here, and would be slow to compare.
const NAME_BYTES_MAX: usize = 64;

/// The nearest of `known` to `name`, if it is near enough to be meant: a third of the letters may be wrong.
pub(super) fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let name = name.to_lowercase().replace(['-', ' '], "_");
    known
        .into_iter()
        // Letters to insert, drop, replace, or swap with a neighbour.
        .map(|candidate| (osa_distance(&name, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= (candidate.len() / 3).max(1))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_is_near() {
        let known = ["interval", "top", "unique_error"];
        assert_eq!(nearest("intervall", known), Some("interval"));
        assert_eq!(nearest("Interval", known), Some("interval"));
        assert_eq!(nearest("tpo", known), Some("top"), "two letters swapped are one slip");
        assert_eq!(nearest("inter", known), None, "three letters of eight are missing");
        assert_eq!(nearest("interva", ["intervals", "interval"]), Some("interval"), "the nearest, not the first");
        assert_eq!(nearest("unique-error", known), Some("unique_error"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("interfaces", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(1000), known), None);
    }
}
