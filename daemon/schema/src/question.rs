//! Identifies the question that a view or list of a report answers. Only answers to the same question may be added up.

use std::collections::BTreeMap;

/// The fingerprints of what a configuration asks.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// The questions of lists and views, by their names.
    pub by_name: BTreeMap<String, String>,
    /// The question of the distinct counts that every report has.
    pub unique: String,
}

/// A list or count that weir makes without being asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuiltIn {
    /// The name of the list in a report.
    pub name: &'static str,
    /// The fields that make a row's key; none for a count.
    pub by: &'static [&'static str],
    /// The fingerprint of what weir asks by default.
    pub question: &'static str,
}

/// The questions that weir answers without a configuration. Reports do not change, so neither do these; a test of
/// weir-report compares them with what is measured now.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn::new("flows", &["src_ip", "dst_ip", "src_port", "dst_port", "proto"], "a4808591f714fe7f"),
    BuiltIn::new("sources", &["src_ip"], "74007701b704aaa7"),
    BuiltIn::new("destinations", &["dst_ip"], "afe8a6ee0e4de4fe"),
    BuiltIn::new("pairs", &["src_ip", "dst_ip"], "b066dac43ac86e1f"),
    BuiltIn::new("services", &["proto", "port"], "0b5de7b3a6508cfd"),
    BuiltIn::new("source_prefixes", &["src_ip/24/48"], "758aaf00e5304b43"),
    BuiltIn::new("destination_prefixes", &["dst_ip/24/48"], "05c626275d4bbc7a"),
    BuiltIn::new("hosts", &["host"], "11ad5b5ec3f5f5f6"),
    BuiltIn::new("sources_per_destination", &["dst_ip"], "2d5409ae48ffc5e4"),
    BuiltIn::new("destinations_per_source", &["src_ip"], "4c6307300fe369da"),
    BuiltIn::new("ports_per_source", &["src_ip"], "162f71395cfa235c"),
    BuiltIn::new("ip_versions", &["ip_version"], "bdbea093b1251942"),
    BuiltIn::new("protocols", &["proto"], "83271530ec6a5124"),
    BuiltIn::new("dscp", &["dscp"], "4bcbd682416b27ea"),
    BuiltIn::new("talkers", &["src_ip", "dst_ip"], "1f4e15cce436a39e"),
    BuiltIn::new("unique.src_ip", &[], "e915dc687aa9b0af"),
    BuiltIn::new("unique.dst_ip", &[], "e915dc687aa9b0af"),
    BuiltIn::new("unique.flows", &[], "e915dc687aa9b0af"),
];

impl BuiltIn {
    const fn new(name: &'static str, by: &'static [&'static str], question: &'static str) -> Self {
        Self { name, by, question }
    }
}

/// The fingerprint of the question of an answer with this name and these fields. `stated` is what its report says.
///
/// Reports of earlier versions do not say it. Their answers under the name of a built-in list are to weir's default
/// question; the questions of all others are unknown (`None`).
pub fn asked<'q>(name: &str, by: &[String], stated: Option<&'q str>) -> Option<&'q str> {
    let is_same = |built_in: &&BuiltIn| built_in.name == name && built_in.by == by;
    stated.or_else(|| BUILT_IN.iter().find(is_same).map(|built_in| built_in.question))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_an_earlier_version_has_the_built_in_questions() {
        let by = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>();
        let question = |name: &str| BUILT_IN.iter().find(|one| one.name == name).map(|one| one.question);
        assert_eq!(asked("sources", &by(&["src_ip"]), None), question("sources"));
        assert_eq!(asked("sources", &by(&["dst_ip"]), None), None, "a view of the user");
        assert_eq!(asked("web", &by(&["src_ip"]), None), None);
        assert_eq!(asked("sources", &by(&["src_ip"]), Some("00")), Some("00"));
        assert_eq!(asked("unique.flows", &[], None), question("unique.flows"));
        assert!(asked("talkers", &by(&["src_ip", "dst_ip"]), None).is_some());
    }
}
