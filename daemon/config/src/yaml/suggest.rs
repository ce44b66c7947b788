//! Finds the known name nearest to a misspelt one, for "did you mean".

use strsim::osa_distance;

/// The most bytes of a misspelt name. Longer names resemble no known name, and would be slow to compare.
const NAME_BYTES_MAX: usize = 64;

/// How many names are suggested at most if several are equally near.
const NAMES_MAX: usize = 3;

/// The nearest of `known` to `name`, if it is near enough: up to a third of the letters may be wrong.
pub(crate) fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    near(name, known).min_by_key(|(slips, _)| *slips).map(|(_, candidate)| candidate)
}

/// The nearest names, if there are several: those that are near enough, and have at most one more edit than the nearest
/// one.
pub(super) fn nearest_few<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let mut all: Vec<_> = near(name, known).collect();
    all.sort_by_key(|(slips, _)| *slips);
    let least = all.first().map_or(0, |(slips, _)| *slips);
    all.into_iter().take_while(|(slips, _)| *slips <= least + 1).take(NAMES_MAX).map(|(_, known)| known).collect()
}

/// The names that are near enough, each with its number of edits.
fn near<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> impl Iterator<Item = (usize, &'k str)> {
    let is_short = name.len() <= NAME_BYTES_MAX;
    let name = if is_short { name.to_lowercase().replace(['-', ' '], "_") } else { String::new() };
    known
        .into_iter()
        .take_while(move |_| is_short)
        // An edit inserts, drops or replaces a letter, or swaps two adjacent letters.
        .map(move |candidate| (osa_distance(&name, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= (candidate.len() / 3).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest_name() {
        let known = ["interval", "top", "unique_error"];
        assert_eq!(nearest("intervall", known), Some("interval"));
        assert_eq!(nearest("Interval", known), Some("interval"));
        assert_eq!(nearest("tpo", known), Some("top"), "swapping two letters is one edit");
        assert_eq!(nearest("inter", known), None, "three letters of eight are missing");
        assert_eq!(
            nearest("interva", ["intervals", "interval"]),
            Some("interval"),
            "the nearest one, not the first one"
        );
        assert_eq!(nearest("unique-error", known), Some("unique_error"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("interfaces", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(1000), known), None);
    }

    #[test]
    fn suggests_several_names_if_they_are_equally_near() {
        let known = ["sources.bytes", "sources.packets", "source.byte", "top.sources.bytes", "coverage"];
        assert_eq!(nearest_few("source.bytes", known), ["sources.bytes", "source.byte"]);
        assert_eq!(nearest_few("sources.bytes", known), ["sources.bytes"]);
        assert_eq!(nearest_few("covrage", known), ["coverage"]);
        assert!(nearest_few("colour", known).is_empty());
        assert!(nearest_few(&"x".repeat(1000), known).is_empty());
    }
}
