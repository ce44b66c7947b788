//! "Did you mean": the known name that a misspelt one is nearest to.

/// Bytes of a misspelt name: longer ones are near to nothing here, and would be slow to compare.
const NAME_BYTES_MAX: usize = 64;

/// The nearest of `known` to `name`, if it is near enough to be meant: a third of the letters may be wrong.
pub(super) fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let name: Vec<char> = name.to_lowercase().replace(['-', ' '], "_").chars().collect();
    known
        .into_iter()
        .map(|candidate| (slips(&name, &candidate.chars().collect::<Vec<_>>()), candidate))
        .filter(|(slips, candidate)| *slips <= (candidate.len() / 3).max(1))
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// The fewest letters to insert, drop, replace or swap with a neighbour that make one name of the other (optimal
/// string alignment; Damerau, 1964).
fn slips(from: &[char], to: &[char]) -> usize {
    let mut before_last = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i; to.len() + 1];
        for j in 1..=to.len() {
            let replaced = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_slips() {
        for (from, to, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("acb", "abc", 1), ("kitten", "sitting", 3), ("ab", "", 2)]
        {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(slips(&chars(from), &chars(to)), expected, "{from} {to}");
            assert_eq!(slips(&chars(to), &chars(from)), expected, "{to} {from}");
        }
    }

    #[test]
    fn suggests_what_is_near() {
        let known = ["interval", "top", "unique_error"];
        assert_eq!(nearest("intervall", known), Some("interval"));
        assert_eq!(nearest("Interval", known), Some("interval"));
        assert_eq!(nearest("tpo", known), Some("top"));
        assert_eq!(nearest("unique-error", known), Some("unique_error"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("interfaces", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(1000), known), None);
    }
}
