//! A number as a bar, with its bounds.
//!
//! ```text
//! ━━━━━━━━━━━━━━━━●            exact
//! ━━━━━━━━━━━━━━━┃             bounds too close to be drawn
//! ━━━━━━━━━━├────┿──┤          from the lower bound over the estimate to the upper bound
//! ```

use weir_schema::Estimate;

/// The bar of a number in this many columns. The number `full` fills all of them.
pub fn whisker(estimate: &Estimate, full: u64, columns: usize) -> String {
    let Estimate { value, lower, upper, sampled: _ } = *estimate;
    let upper = upper.max(lower);
    if columns == 0 || full == 0 {
        return String::new();
    }
    let at = |number: u64| {
        let column = (number as f64 / full as f64 * columns as f64).ceil() as usize;
        column.clamp(1, columns) - 1
    };
    let [from, value_at, to] = [at(lower), at(value.clamp(lower, upper)), at(upper)];
    let mut bar: Vec<char> = vec!['━'; from];
    if from == to {
        bar.push(if lower == upper { '●' } else { '┃' });
        return bar.into_iter().collect();
    }
    bar.resize(to + 1, '─');
    (bar[from], bar[to]) = ('├', '┤');
    if from < value_at && value_at < to {
        bar[value_at] = '┿';
    }
    bar.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_its_bounds() {
        let bar = |value, lower, upper| whisker(&Estimate { value, lower, upper, sampled: None }, 100, 20);
        assert_eq!(bar(100, 100, 100), "━━━━━━━━━━━━━━━━━━━●");
        assert_eq!(bar(50, 49, 50), "━━━━━━━━━┃");
        assert_eq!(bar(50, 20, 80), "━━━├─────┿─────┤");
        assert_eq!(bar(100, 20, 100), "━━━├───────────────┤");
        assert_eq!(bar(0, 0, 0), "●");
        assert_eq!(bar(1, 0, 100), "├──────────────────┤");
    }

    #[test]
    fn no_bar_leaves_its_columns() {
        for (value, lower, upper) in [(u64::MAX, 0, u64::MAX), (7, 9, 3), (150, 140, 160)] {
            let bar = whisker(&Estimate { value, lower, upper, sampled: None }, 100, 20);
            assert!(bar.chars().count() <= 20, "{bar}");
        }
        let nothing = Estimate::default();
        assert_eq!((whisker(&nothing, 0, 20), whisker(&nothing, 1, 0)), (String::new(), String::new()));
    }
}
