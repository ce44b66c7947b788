//! What an answer was asked: only answers to the same question may be added up.

use std::sync::LazyLock;

use weir_config::Estimates;
use weir_measure::question::{Question, Views};

use crate::sketches::UNIQUE;

/// A list or count that weir makes without being asked.
struct BuiltIn {
    name: String,
    by: Vec<String>,
    question: String,
}

static BUILT_IN: LazyLock<Vec<BuiltIn>> = LazyLock::new(|| {
    let views = Views::built_in_for(&Estimates::default(), 1, 2);
    let of_views = views.questions.iter().map(|Question { view, fingerprint, .. }| BuiltIn {
        name: view.name.clone(),
        by: view.by.iter().map(ToString::to_string).collect(),
        question: fingerprint.to_string(),
    });
    let unique =
        UNIQUE.map(|name| BuiltIn { name: name.to_owned(), by: Vec::new(), question: views.unique.to_string() });
    of_views.chain(unique).collect()
});

/// The fingerprint of the question of an answer with this name and these fields. `stated` is what its report says.
///
/// Reports of earlier versions do not say it. What they have under the name of a built-in list was asked as weir asks
/// it by default; what else they were asked is not known (`None`).
pub fn asked<'q>(name: &str, by: &[String], stated: Option<&'q str>) -> Option<&'q str> {
    let is_same = |built_in: &&BuiltIn| built_in.name == name && built_in.by == by;
    stated.or_else(|| BUILT_IN.iter().find(is_same).map(|built_in| built_in.question.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_an_earlier_version_has_the_built_in_questions() {
        let by = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>();
        let sources = asked("sources", &by(&["src_ip"]), None).unwrap();
        let views = Views::built_in(&Estimates::default(), 10);
        assert!(views.questions.iter().any(|one| one.fingerprint.to_string() == sources));
        assert_eq!(asked("sources", &by(&["dst_ip"]), None), None, "a view of the user");
        assert_eq!(asked("web", &by(&["src_ip"]), None), None);
        assert_eq!(asked("sources", &by(&["src_ip"]), Some("00")), Some("00"));
        assert_eq!(asked("unique.flows", &[], None), Some(&*views.unique.to_string()));
        assert!(asked("talkers", &by(&["src_ip", "dst_ip"]), None).is_some());
    }
}
