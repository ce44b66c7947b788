//! The largest keys of a worker's open window.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use weir_config::view::ViewKey;

use super::{KeysByQuestion, is_readable};
use crate::{
    answer::slot,
    heavy_hitters::KeyEstimate,
    question::{Question, sketch::ViewSketch},
    ranking::keep_largest,
    shard::Shard,
};

/// How many keys a worker names for each row of a report, in each order.
pub const KEYS_PER_ROW: usize = 2;
/// The most rows of all tables of a question, unless there are more tables. So a reading stays small even with hundreds
/// of interfaces.
const ROWS_MAX: usize = 256;

/// How many rows each of these tables of a question has at most.
pub fn rows_of_each(question: &Question, tables: usize) -> usize {
    question.view.top.min((question.rows_max.min(ROWS_MAX) / tables.max(1)).max(1))
}

/// The largest keys of each question, without their numbers, which may change before they are read.
pub fn candidates(shard: &Shard) -> KeysByQuestion {
    let questions = shard.plan().questions.iter().enumerate();
    questions.map(|(nth, question)| of_question(question, &shard.views[question.sketch(nth)])).collect()
}

fn of_question(question: &Question, sketch: &ViewSketch) -> Vec<ViewKey> {
    if !is_readable(question) {
        return Vec::new();
    }
    let room = KEYS_PER_ROW * question.view.top;
    let mut tables: BTreeMap<Option<usize>, [Vec<KeyEstimate<ViewKey>>; 2]> = BTreeMap::new();
    for held in sketch.held() {
        let [by_bytes, by_packets] = tables.entry(slot(question, &held.key)).or_default();
        _ = keep_largest(by_bytes, room, held, |h| (Reverse((h.value.bytes, h.value.packets)), h.key));
        _ = keep_largest(by_packets, room, held, |h| (Reverse((h.value.packets, h.value.bytes)), h.key));
    }
    let few = KEYS_PER_ROW * rows_of_each(question, tables.len());
    let lists = tables.into_values().flatten();
    let keys: BTreeSet<ViewKey> = lists.flat_map(|list| list.into_iter().take(few)).map(|held| held.key).collect();
    keys.into_iter().collect()
}
