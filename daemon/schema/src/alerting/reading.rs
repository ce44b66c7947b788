//! Reads the numbers that a rule is about.

use weir_config::rule::subject::Selector;

use super::number::Number;
use crate::{
    Report,
    series::{
        Kind, Series,
        point::{Owner, Point},
    },
};

/// Calls `each` with every number that the selector finds, and its owner. If the number is counted in a window, each
/// owner has one number: the sum of all its points, or 0 if there are none.
pub(super) fn visit<'r>(selector: &Selector, report: &'r Report, each: &mut dyn FnMut(Number, Owner<'r>)) {
    let Some(series) = Series::named(&selector.series) else { return };
    for group in series.groups(report) {
        let is_sum = series.kind == Kind::Sum;
        let owner = group.first().map(|point| point.owner);
        let numbers = group.into_iter().filter(|point| is_there(point, selector));
        let numbers = numbers.map(|Point { owner, reading, .. }| (Number::from(reading), owner));
        match owner.filter(|_| is_sum) {
            Some(owner) => each(numbers.fold(Number::ZERO, |sum, (number, _)| sum.plus(number)), owner),
            None => numbers.for_each(|(number, owner)| each(number, owner)),
        }
    }
}

/// Returns true if a point has all labels of the selector.
fn is_there(point: &Point<'_>, selector: &Selector) -> bool {
    let has = |name: &str, value: &str| point.labels.iter().any(|(own, label)| *own == name && label.text() == value);
    selector.labels.iter().all(|(name, value)| has(name, value))
}
