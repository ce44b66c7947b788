//! The questions that reports answer, as readers of reports know them.

use weir_measure::question::{Question, Views};
use weir_schema::Questions;

/// The fingerprints of these views.
pub fn questions(views: &Views) -> Questions {
    // Views of the user come after standard ones of the same name.
    let fingerprint = |Question { view, fingerprint, .. }: &Question| (view.name.clone(), fingerprint.to_string());
    Questions { by_name: views.questions.iter().map(fingerprint).collect(), unique: views.unique.to_string() }
}

#[cfg(test)]
mod tests {
    use weir_config::Estimates;
    use weir_schema::{BUILT_IN, sketches::UNIQUE};

    use super::*;

    #[test]
    fn readers_know_what_is_asked_without_a_configuration() {
        let views = Views::built_in_for(&Estimates::default(), 1, 2);
        let of_views = views.questions.iter().map(|Question { view, fingerprint, .. }| {
            (view.name.clone(), view.by.iter().map(ToString::to_string).collect(), fingerprint.to_string())
        });
        let unique = UNIQUE.map(|name| (name.to_owned(), Vec::new(), views.unique.to_string()));
        let asked: Vec<(String, Vec<String>, String)> = of_views.chain(unique).collect();
        let known = BUILT_IN.iter().map(|one| {
            (one.name.to_owned(), one.by.iter().map(|field| (*field).to_owned()).collect(), one.question.to_owned())
        });
        assert_eq!(known.collect::<Vec<_>>(), asked);
    }
}
