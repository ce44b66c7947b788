//! Wrong alert rules are refused at their place in the file, with a message that says what to write.

use super::*;

/// A rule and its mistake: the place, and a part of the message.
const WRONG_RULES: &[(&str, &str, &str)] = &[
    ("flood", "1:18: alerts.rules[0]", "expected a map such as {name: flood"),
    ("{when: lost > 0}", "1:18: alerts.rules[0].name", "is missing: the name of this rule in reports"),
    ("{name: a}", "1:18: alerts.rules[0].when", "is missing: such as sources.bytes > 1 Gbit/s"),
    ("{name: a b, when: lost > 0}", "1:25: alerts.rules[0].name", "\"a b\" is not a valid name"),
    ("{name: a, whn: lost > 0}", "1:28: alerts.rules[0].whn", "did you mean when?"),
    (
        "{name: a, when: lost > 0, severity: high}",
        "1:44: alerts.rules[0].severity",
        "unknown key (known here: name, when, for",
    ),
    ("{name: a, when: [lost]}", "1:34: alerts.rules[0].when", "expected text"),
    ("{name: a, when: lost}", "1:34: alerts.rules[0].when", "compares nothing: write it like sources.bytes > 1 Gbit/s"),
    ("{name: a, when: lost == 0}", "1:34: alerts.rules[0].when", "compares by >, >=, < or <="),
    ("{name: a, when: lost != 0}", "1:34: alerts.rules[0].when", "compares by >, >=, < or <="),
    ("{name: a, when: lost > }", "1:34: alerts.rules[0].when", "expected a number from 0 up, such as 5000, found \"\""),
    ("{name: a, when: lost > -1}", "1:34: alerts.rules[0].when", "found \"-1\""),
    ("{name: a, when: lost > many}", "1:34: alerts.rules[0].when", "found \"many\""),
    ("{name: a, when: '> 5'}", "1:34: alerts.rules[0].when", "a report has no number \"\": docs/ALERTS.md lists all"),
    ("{name: a, when: source.bytes > 5}", "1:34: alerts.rules[0].when", "did you mean sources.bytes?"),
    ("{name: a, when: top_source.bytes > 5}", "1:34: alerts.rules[0].when", "did you mean top_sources.bytes?"),
    (
        "{name: a, when: destination_per_source > 5}",
        "1:34: alerts.rules[0].when",
        "did you mean destinations_per_source",
    ),
    ("{name: a, when: covrage < 1}", "1:34: alerts.rules[0].when", "did you mean coverage?"),
    ("{name: a, when: web.byts > 5}", "1:34: alerts.rules[0].when", "did you mean web.bytes?"),
    ("{name: a, when: web.flows > 5}", "1:34: alerts.rules[0].when", "no number \"web.flows\": there are web.packets"),
    ("{name: a, when: colour > 5}", "1:34: alerts.rules[0].when", "docs/ALERTS.md lists all; some are totals.packets"),
    (
        "{name: a, when: sources > 5}",
        "1:34: alerts.rules[0].when",
        "not one number: say which (sources.packets, sources.bytes)",
    ),
    (
        "{name: a, when: pairs.bytes > 5}",
        "1:34: alerts.rules[0].when",
        "the view pairs is switched off: add pairs to `standard_views`",
    ),
    (
        "{name: a, when: spread.ports_per_source > 5}",
        "1:34: alerts.rules[0].when",
        "the view ports_per_source is switched off",
    ),
    ("{name: a, when: sources.bytes > 1 Gbps}", "1:34: alerts.rules[0].when", "no unit \"Gbps\", did you mean Gbit/s?"),
    ("{name: a, when: sources.bytes > 1 mbit/s}", "1:34: alerts.rules[0].when", "did you mean Mbit/s?"),
    ("{name: a, when: sources.bytes > 1 kpkt/s}", "1:34: alerts.rules[0].when", "does not fit: use bit/s, kbit/s"),
    (
        "{name: a, when: lost > 1 Mbit/s}",
        "1:34: alerts.rules[0].when",
        "use pkt/s, kpkt/s, Mpkt/s, or none (packets in a window)",
    ),
    ("{name: a, when: unique.flows > 5 flow/s}", "1:34: alerts.rules[0].when", "it has none (how many in a window)"),
    ("{name: a, when: lost > 1 %}", "1:34: alerts.rules[0].when", "the unit \"%\" does not fit"),
    ("{name: a, when: sources.bytes < 5}", "1:34: alerts.rules[0].when", "a key with less is not listed"),
    ("{name: a, when: web.packets <= 5}", "1:34: alerts.rules[0].when", "the total of a view"),
    ("{name: a, when: seen < 0}", "1:34: alerts.rules[0].when", "is never below 0"),
    ("{name: a, when: seen >= 0}", "1:34: alerts.rules[0].when", "is always at least 0: use `> 0`"),
    ("{name: a, when: coverage < 99}", "1:34: alerts.rules[0].when", "99 is more: did you mean 99 %?"),
    ("{name: a, when: kept < 101 %}", "1:34: alerts.rules[0].when", "where 1 is all: 101 % is more"),
    ("{name: a, when: new_flows.fill > 90}", "1:34: alerts.rules[0].when", "never more than 1: did you mean 90 %?"),
    ("{name: a, when: lost > 0, for: 30s}", "1:49: alerts.rules[0].for", "of 10s each, that is `for: 3 windows`"),
    ("{name: a, when: lost > 0, for: 2 window s}", "1:49: alerts.rules[0].for", "expected windows such as `2 windows`"),
    ("{name: a, when: lost > 0, for: soon}", "1:49: alerts.rules[0].for", "found \"soon\""),
    ("{name: a, when: lost > 0, for: 1.5}", "1:49: alerts.rules[0].for", "expected a whole number"),
    (
        "{name: a, when: lost > 5, clear: 6}",
        "1:51: alerts.rules[0].clear",
        "would end before it begins: 6 is above the limit of `when`, 5",
    ),
    (
        "{name: a, when: coverage < 0.9, clear: 0.8}",
        "1:57: alerts.rules[0].clear",
        "0.8 is below the limit of `when`, 0.9",
    ),
    ("{name: a, when: lost > 5, clear: [4]}", "1:51: alerts.rules[0].clear", "expected a number such as 4000"),
    ("{name: a, when: lost > 5, clear: 4 Mbit/s}", "1:51: alerts.rules[0].clear", "the unit \"Mbit/s\" does not fit"),
    (
        "{name: a, when: lost > 5, clear: 4 pkt/s}",
        "1:51: alerts.rules[0].clear",
        "that of `when`, which is none: use the same",
    ),
    ("{name: a, when: seen > 5 pkt/s, clear: x}", "1:57: alerts.rules[0].clear", "expected a number from 0 up"),
    (
        "{name: a, when: packets > 5, interface: eth0}",
        "1:58: alerts.rules[0].interface",
        "covers all interfaces together",
    ),
    (
        "{name: a, when: seen > 5, interface: a/b}",
        "1:55: alerts.rules[0].interface",
        "cannot be the name of an interface",
    ),
];

#[test]
fn wrong_rules_are_refused_at_their_place() {
    let views = "views: [{name: web, by: [src_ip]}]\nstandard_views: [sources, destinations_per_source]";
    for (rule, place, message) in WRONG_RULES {
        let found = mistakes(&format!("alerts: {{rules: [{rule}]}}\n{views}"));
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("{place}: ")) && found[0].contains(message),
            "{rule}: expected {place}: ..{message}.., found {found:#?}"
        );
    }
}

#[test]
fn alerts_have_limits_and_need_rules() {
    let twice = "alerts: {rules: [{name: a, when: lost > 0}, {name: a, when: seen > 0}]}";
    assert_eq!(mistakes(twice), ["1:45: alerts.rules[1]: the name a is taken by alerts.rules[0]"]);
    let many: Vec<_> = (0..=limits::ALERT_RULES_MAX).map(|nth| format!("{{name: a{nth}, when: lost > 0}}")).collect();
    let many = format!("alerts: {{rules: [{}]}}", many.join(", "));
    assert_eq!(mistakes(&many), ["1:17: alerts.rules: 65 items are more than the 64 allowed"]);
    let alone = "alerts: {webhook: {url: 'http://a'}}";
    let why = "there is no rule that could send anything: add one to `rules`, or leave `webhook` out";
    assert_eq!(mistakes(alone), [format!("1:19: alerts.webhook: {why}")]);
    // A wrong rule is one mistake. The webhook is not reported as one without rules.
    assert_eq!(mistakes("alerts: {rules: [{name: a, when: x > 1}], webhook: {url: 'http://a'}}").len(), 1);
    // A wrong view is one mistake. The rule that uses this view is not a second one.
    assert_eq!(mistakes("views: [{name: w, by: [srcip]}]\nalerts: {rules: [{name: a, when: w.bytes > 1}]}").len(), 1);
    assert_eq!(mistakes("standard_views: [sorces]\nalerts: {rules: [{name: a, when: sources.bytes > 1}]}").len(), 1);
}
