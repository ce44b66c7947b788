//! Decides which questions share a sketch.
//!
//! A view of bytes also counts packets, and its candidates are the keys that are large by either. So two views of the
//! same keys and the same records can share a sketch, whatever their order and number of rows. The sketch has the
//! smaller error of the two.

use super::{Question, Structure};

/// Finds for each question an earlier one with the same keys and records.
pub(super) fn share(questions: &mut [Question]) {
    for nth in 1..questions.len() {
        let (earlier, rest) = questions.split_at(nth);
        let shared = |(first, other): (usize, &Question)| Some((first, together(other, rest.first()?)?));
        if let Some((first, structure)) = earlier.iter().enumerate().find_map(shared) {
            questions[first].structure = structure;
            questions[nth].answered_by = Some(first);
        }
    }
    for nth in 0..questions.len() {
        if let Some(first) = questions[nth].answered_by {
            questions[nth].structure = questions[first].structure;
        }
    }
}

/// The structure that answers both, if both get the same records and `one` has its own sketch.
fn together(one: &Question, other: &Question) -> Option<Structure> {
    let (first, second) = (&one.view, &other.view);
    let is_fed_as = first.conditions == second.conditions
        && first.by == second.by
        && first.per_interface == second.per_interface
        && first.measure.is_tally()
        && second.measure.is_tally();
    if is_fed_as && one.answered_by.is_none() { one.structure.and(other.structure) } else { None }
}

#[cfg(test)]
mod tests {
    use weir_config::Config;

    use super::*;
    use crate::{price::Prices, question::Views};

    /// The name of the question that answers another one, and the error and candidates of its sketch.
    type Sketch = (Option<String>, Option<(f64, usize)>);

    /// The sketch that answers each of the user's questions.
    fn shared(standard: &str, views: &[&str]) -> Vec<Sketch> {
        let views: String = (0..).zip(views).map(|(nth, view)| format!("\n  - {{name: w{nth}, {view}}}")).collect();
        let text = format!("estimates: {{top_candidates: 64}}\nstandard_views: {standard}\nviews:{views}");
        let config = Config::parse(&text, "a test").unwrap();
        let plan = Views::new(&config, 4).unwrap();
        let answer = |(_, question): (usize, &Question)| {
            let by = question.answered_by.map(|nth| plan.questions[nth].view.name.clone());
            let size = match question.structure {
                Structure::HeavyHitters { error, candidates, .. } => Some((error, candidates)),
                _ => None,
            };
            (by, size)
        };
        plan.own().map(answer).collect()
    }

    #[test]
    fn views_that_differ_in_order_length_and_error_share_the_most_exact_sketch() {
        let all = shared(
            "[]",
            &[
                "by: [src_ip], measure: bytes, error: 0.001",
                "by: [dst_ip], measure: bytes",
                "by: [src_ip], measure: packets, top: 100, error: 0.002",
                "by: [src_ip], measure: packets, top: 5, error: 0.0004, entropy: true",
            ],
        );
        let (w0, size) = (Some("w0".to_owned()), Some((0.0004, 800)));
        assert_eq!(all, [(None, size), (None, Some((0.0005, 80))), (w0.clone(), size), (w0, size)]);
        let tables = shared("[]", &["by: [proto]", "by: [proto], measure: packets"]);
        assert_eq!(tables, [(None, None), (Some("w0".to_owned()), None)]);
    }

    #[test]
    fn a_standard_list_answers_a_view_of_the_user() {
        let of = |standard| shared(standard, &["by: [src_ip], top: 100", "by: [src_ip, dst_ip]"]);
        assert_eq!(of("[sources]")[0], (Some("sources".to_owned()), Some((0.0005, 800))));
        assert_eq!(of("[destinations]")[0], (None, Some((0.0005, 800))));
    }

    #[test]
    fn a_shared_sketch_takes_memory_once() {
        let text = "standard_views: []\nviews: [{name: a, by: [src_ip]}, {name: b, by: [src_ip], measure: packets}]";
        let plan = Views::new(&Config::parse(text, "a test").unwrap(), 4).unwrap();
        let prices = Prices::of(&plan, 1);
        let [a, b] = &prices.views[..] else { panic!("{prices:?}") };
        assert!(a.bytes > 500_000 && b.bytes < 1_000, "{prices:?}");
        let told = prices.to_string();
        assert!(told.contains("the sketch of a\n"), "{told}");
    }

    #[test]
    fn views_with_different_records_do_not_share_a_sketch() {
        for [one, other] in [
            ["by: [src_ip]", "by: [dst_ip]"],
            ["by: [src_ip]", "by: [src_ip], match: {proto: tcp}"],
            ["by: [src_ip], match: {proto: udp}", "by: [src_ip], match: {proto: tcp}"],
            ["by: [src_ip]", "by: [src_ip], per: interface"],
            ["by: [src_ip]", "by: [src_ip], measure: new_flows"],
            ["by: [src_ip], measure: flows", "by: [src_ip], measure: flows"],
        ] {
            let all = shared("[]", &[one, other]);
            assert!(all.iter().all(|(by, _)| by.is_none()), "{one} and {other}: {all:?}");
        }
    }
}
