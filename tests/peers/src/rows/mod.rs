//! The rows: the competing structures, their input, and the checks of their answers.

mod distinct;
mod filters;
mod frequency;
mod item_by_item;
mod lists;
pub mod record;
pub mod spread;
mod top_k;

use crate::bench::Bench;

/// Measures everything.
pub fn run(bench: &mut Bench) {
    filters::run(bench);
    item_by_item::run(bench);
    frequency::run(bench);
    distinct::run(bench);
    top_k::run(bench);
    lists::run(bench);
    spread::run(bench);
    record::run(bench);
}
