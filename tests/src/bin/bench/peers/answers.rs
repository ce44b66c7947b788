//! The answers of the tools, and how true they are.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::{self, Loss},
    oracle::proto,
};

use super::questions::{Field, Question};

/// A row of an answer.
#[derive(Clone, Debug)]
pub struct Answer {
    key: String,
    value: f64,
    bounds: Option<(f64, f64)>,
}

/// How true an answer is.
pub struct Accuracy {
    /// The number of rows.
    pub rows: usize,
    /// How many of the largest rows were asked for.
    pub sought: usize,
    /// How many of these the answer has.
    pub found: usize,
    /// The mean error of the rows, as a share of the truth.
    pub mean_error: f64,
    /// The largest error of a row.
    pub largest_error: f64,
    /// The mean distance of their bounds, as a share of the truth; `None` if a row has no bounds.
    pub mean_width: Option<f64>,
    /// The number of all rows with the truth between their bounds.
    pub held: usize,
}

/// weir's answers to the questions, in its report.
///
/// # Errors
///
/// The output is not a report, or its ledger does not balance.
pub fn of_weir(out: &[u8], questions: &[Question]) -> Result<Vec<Vec<Answer>>> {
    let report: Value = serde_json::from_slice(out).context("weir replay wrote no report")?;
    account::check(std::slice::from_ref(&report), Loss::None)?;
    questions.iter().map(|question| answer_of_weir(&report, question)).collect()
}

fn answer_of_weir(report: &Value, question: &Question) -> Result<Vec<Answer>> {
    let Some(counted) = question.counted() else {
        let size = report["histograms"]["packet_size_bytes"]["p99"].as_f64().context("no p99")?;
        return Ok(vec![Answer { key: String::new(), value: size, bounds: Some((size, size)) }]);
    };
    let views = report["views"].as_array().context("no views")?;
    let view = views.iter().find(|view| view["name"] == question.name).context("a view is missing")?;
    let rows = view["rows"].as_array().context("no rows")?.iter().map(|row| {
        let number = |name: &str| row[counted][name].as_f64().with_context(|| format!("no {name} in {row}"));
        let bounds = Some((number("lower")?, number("upper")?));
        Ok(Answer { key: key(question, |nth| &row[question.by[nth].weir()]), value: number("value")?, bounds })
    });
    rows.collect()
}

/// flowsketch's answers to the questions.
///
/// # Errors
///
/// The output differs from its documentation.
pub fn of_flowsketch(out: &[u8], questions: &[Question]) -> Result<Vec<Vec<Answer>>> {
    let estimates: Vec<Value> = serde_json::from_slice(out).context("flowsketch replay wrote no estimates")?;
    let windows: HashSet<_> = estimates.iter().map(|estimate| estimate["window_end_nanos"].as_u64()).collect();
    ensure!(windows.len() == 1, "{} windows", windows.len());
    let mut answers = vec![Vec::new(); questions.len()];
    for estimate in &estimates {
        let (question, rows) = questions
            .iter()
            .zip(&mut answers)
            .find(|(question, _)| estimate["query_name"] == question.name)
            .with_context(|| format!("an answer to no question: {estimate}"))?;
        let bounds = estimate["lower_bound"].as_f64().zip(estimate["upper_bound"].as_f64());
        let key = key(question, |nth| &estimate["group"][nth][1]);
        rows.push(Answer { key, value: estimate["estimate"].as_f64().context("no estimate")?, bounds });
    }
    Ok(answers)
}

/// The key of a row, from the value of each field, with numbers instead of names of protocols.
fn key<'a>(question: &Question, value: impl Fn(usize) -> &'a Value) -> String {
    let texts = question.by.iter().enumerate().map(|(nth, field)| {
        let text = value(nth).as_str().map_or_else(|| value(nth).to_string(), str::to_owned);
        match (field, proto::number(&text)) {
            (Field::Proto, Some(number)) => number.to_string(),
            _ => text,
        }
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// Compares an answer with the truth. `sought` is the number of largest rows that were asked for.
///
/// # Errors
///
/// A row has a key that does not occur, or there are no rows.
pub fn judge(answer: &[Answer], truths: &HashMap<String, f64>, sought: usize) -> Result<Accuracy> {
    ensure!(!answer.is_empty(), "an answer without rows");
    let mut largest: Vec<(&String, f64)> = truths.iter().map(|(key, truth)| (key, *truth)).collect();
    largest.sort_by(|(one_key, one), (other_key, other)| other.total_cmp(one).then(one_key.cmp(other_key)));
    let largest: HashSet<&str> = largest.into_iter().take(sought).map(|(key, _)| key.as_str()).collect();
    let (mut errors, mut width, mut held) = (Vec::new(), Some(0.0), 0);
    for Answer { key, value, bounds } in answer {
        let truth = truths.get(key).with_context(|| format!("there is no {key}"))?;
        held += usize::from(bounds.is_some_and(|(lower, upper)| lower <= *truth && *truth <= upper));
        if largest.contains(key.as_str()) {
            errors.push((value - truth).abs() / truth);
            width = width.zip(*bounds).map(|(width, (lower, upper))| width + (upper - lower) / truth);
        }
    }
    let found = errors.len();
    ensure!(found > 0, "none of the largest was found");
    Ok(Accuracy {
        rows: answer.len(),
        sought,
        found,
        mean_error: errors.iter().sum::<f64>() / found as f64,
        largest_error: errors.into_iter().fold(0.0, f64::max),
        mean_width: width.map(|width| width / found as f64),
        held,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_held_against_the_truth_and_errors_are_those_of_the_largest() {
        let row = |key: &str, value, bounds| Answer {
            key: key.to_owned(),
            value,
            bounds: Some((value - bounds, value + bounds)),
        };
        let truths: HashMap<String, f64> =
            [("a", 100.0), ("b", 50.0), ("c", 1.0)].map(|(key, truth)| (key.to_owned(), truth)).into();
        let judged = judge(&[row("a", 110.0, 10.0), row("c", 9.0, 1.0)], &truths, 2).unwrap();
        assert_eq!((judged.rows, judged.sought, judged.found, judged.held), (2, 2, 1, 1));
        assert!((judged.mean_error - 0.1).abs() < 1e-9 && (judged.largest_error - 0.1).abs() < 1e-9);
        assert!((judged.mean_width.unwrap() - 0.2).abs() < 1e-9);
        assert!(judge(&[row("d", 1.0, 0.0)], &truths, 1).is_err(), "there is no d");
        assert!(judge(&[], &truths, 1).is_err(), "no rows");
    }
}
