//! The answers of all views of a window. Views are merged and read on several threads at a time.
//!
//! A part of the work is a view, with what depends on it: the views that the same sketch answers, and the prefixes that
//! a list of addresses feeds. Each part has its own sketches of the first shard, and only reads those of the others. So
//! it does not matter which thread does it, or when.

use std::{
    cmp::Reverse,
    panic::resume_unwind,
    sync::{Mutex, PoisonError},
    thread,
};

use weir_sketch::{MergeError, hash::KeyedHash};

use super::{
    answer::{Answer, Feed},
    closed::Closed,
    uncertainty::Uncertainty,
};
use crate::question::{Views, sketch::ViewSketch};

/// The most threads. More would need more memory at the same time.
const THREADS_MAX: usize = 4;

/// Merges the sketches of each view into that of the first shard, and reads it.
///
/// # Errors
///
/// The shards were built differently.
pub fn answers(window: &mut [Closed], plan: &Views, uncertainty: &Uncertainty) -> Result<Vec<Answer>, MergeError> {
    let helpers = window.len().saturating_sub(1).min(THREADS_MAX - 1);
    answers_with(helpers, window, plan, uncertainty)
}

/// The same with this many threads besides the calling one.
pub(super) fn answers_with(
    helpers: usize,
    window: &mut [Closed],
    plan: &Views,
    uncertainty: &Uncertainty,
) -> Result<Vec<Answer>, MergeError> {
    let Some((first, others)) = window.split_first_mut() else {
        return Ok(plan.questions.iter().map(|_| Answer::empty()).collect());
    };
    let hash = first.shard.hash().clone();
    let work = Work { plan, hash: &hash, others, uncertainty };
    let parts = Mutex::new(parts(&mut first.shard.views, plan).into_iter());
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let answer_some = || -> Result<Vec<(usize, Answer)>, MergeError> {
        let mut answers = Vec::new();
        while let Some(part) = next() {
            work.answer(part, &mut answers)?;
        }
        Ok(answers)
    };
    let mut answers = thread::scope(|scope| {
        // Where no thread can be started, this one does all.
        let start = |_| thread::Builder::new().name("weir-merge".to_owned()).spawn_scoped(scope, answer_some).ok();
        let helpers: Vec<_> = (0..helpers).filter_map(start).collect();
        let mut all = answer_some()?;
        for helper in helpers {
            all.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(all)
    })?;
    answers.sort_unstable_by_key(|(nth, _)| *nth);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

/// A sketch of the first shard, and what depends on it.
struct ViewPart<'a> {
    /// The index of its question.
    nth: usize,
    sketch: &'a mut ViewSketch,
    /// The question of the prefixes that it feeds, and their sketch.
    prefixes: Option<(usize, &'a mut ViewSketch)>,
}

/// The parts, those that take longest first.
fn parts<'a>(views: &'a mut [ViewSketch], plan: &Views) -> Vec<ViewPart<'a>> {
    let mut views: Vec<_> = views.iter_mut().map(Some).collect();
    let mut parts = Vec::new();
    for (nth, question) in plan.questions.iter().enumerate() {
        if question.answered_by.is_some() || question.fed_by.is_some() {
            continue;
        }
        let prefixes = question.feeds.and_then(|fed| Some((fed, views.get_mut(fed)?.take()?)));
        if let Some(sketch) = views[nth].take() {
            parts.push(ViewPart { nth, sketch, prefixes });
        }
    }
    parts.sort_by_key(|part| Reverse(part.sketch.memory_bytes()));
    parts
}

/// The data that all threads share.
struct Work<'a> {
    plan: &'a Views,
    hash: &'a KeyedHash,
    others: &'a [Closed],
    uncertainty: &'a Uncertainty,
}

impl Work<'_> {
    /// Adds the answers of all questions of a part, with their indexes.
    fn answer(&self, part: ViewPart<'_>, answers: &mut Vec<(usize, Answer)>) -> Result<(), MergeError> {
        let ViewPart { nth, sketch, mut prefixes } = part;
        self.merge(nth, sketch, prefixes.as_mut().map(|(_, fed)| &mut **fed))?;
        // Prefixes without a list of addresses have everything already.
        sketch.finish_prefixes(None, self.hash);
        let question = &self.plan.questions[nth];
        let first = Answer::read(question, sketch, None, self.uncertainty);
        if let Some((fed_nth, fed)) = prefixes {
            self.merge(fed_nth, fed, None)?;
            fed.finish_prefixes(Some(sketch), self.hash);
            let list = Feed { answer: &first, sketch, by: &question.by, hash: self.hash };
            let fed_question = &self.plan.questions[fed_nth];
            answers.push((fed_nth, Answer::read(fed_question, fed, Some(&list), self.uncertainty)));
        }
        for (other, question) in self.plan.questions.iter().enumerate() {
            if question.answered_by == Some(nth) {
                answers.push((other, Answer::read(question, sketch, None, self.uncertainty)));
            }
        }
        answers.push((nth, first));
        Ok(())
    }

    fn merge(&self, nth: usize, sketch: &mut ViewSketch, fed: Option<&mut ViewSketch>) -> Result<(), MergeError> {
        let others: Vec<_> = self.others.iter().map(|closed| &closed.shard.views[nth]).collect();
        sketch.merge_all(&others, fed, &self.plan.questions[nth].by, self.hash)
    }
}
