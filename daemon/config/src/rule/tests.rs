//! Rules as people write them: names, limits, units.

use std::collections::BTreeSet;

use super::{unit::Dimension, *};
use crate::{
    view::{Standard, View},
    yaml::Config,
};

/// The views of the golden report.
fn views() -> Vec<View> {
    Config::parse(include_str!("../../../schema/tests/golden/views.yaml"), "views.yaml").unwrap().views
}

fn catalogue() -> Catalogue {
    Catalogue::new(Standard::ALL, &views())
}

/// Parses a condition. It may use the names of the standard views and of the views in the golden report.
fn when(text: &str) -> When {
    When::parse(text, &catalogue()).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

#[test]
fn a_view_of_the_user_has_the_short_name() {
    let text = "views: [{name: sources, by: [src_ip], measure: packets}, {name: totals}, {name: new_flows, measure: new_flows}]";
    let views = Config::parse(text, "test").unwrap().views;
    let catalogue = Catalogue::new(Standard::ALL, &views);
    let canonical = |name: &str| catalogue.find(name).unwrap_or_else(|| panic!("{name}")).name.clone();
    assert_eq!(canonical("sources.bytes"), "sources.bytes");
    assert_eq!(catalogue.find("sources.bytes").unwrap().standard, None);
    assert_eq!(catalogue.find("top.sources.bytes").unwrap().standard, Some(Standard::Sources));
    assert_eq!([canonical("totals.packets"), canonical("packets")], ["totals.packets", "packets"]);
    assert_eq!([canonical("new_flows"), canonical("new_flows.value")], ["new_flows.new_flows", "new_flows.value"]);
    // Each first name must find its own subject, so that a printed configuration keeps its meaning.
    for catalogue in [&catalogue, &self::catalogue()] {
        for name in catalogue.names() {
            assert_eq!(catalogue.find(name).unwrap().name, name);
        }
        let spellings: Vec<_> = catalogue.spellings().collect();
        let different: BTreeSet<_> = spellings.iter().collect();
        assert_eq!(spellings.len(), different.len(), "each spelling has only one meaning");
    }
}

#[test]
fn conditions_are_read_and_written() {
    for (text, canonical, clear) in [
        ("sources.bytes > 1 Gbit/s", "sources.bytes > 1 Gbit/s", 0.9),
        ("  top_sources.bytes>1Gbit/s ", "sources.bytes > 1 Gbit/s", 0.9),
        ("destinations_per_source > 5000", "destinations_per_source.distinct > 5000", 4500.0),
        ("spread.destinations_per_source >= 5e3", "destinations_per_source.distinct >= 5000", 4500.0),
        ("coverage < 0.99", "coverage < 0.99", 0.991),
        ("coverage < 99 %", "coverage < 99 %", 99.1),
        ("coverage<99%", "coverage < 99 %", 99.1),
        ("kept <= 1", "kept <= 1", 1.0),
        ("lost > 0", "lost.packets > 0", 0.0),
        ("all.bytes < 10 kbit/s", "all.bytes < 10 kbit/s", 11.0),
        ("web.total.packets < 100", "web.total.packets < 100", 110.0),
        ("web.entropy.normalized < 0.5", "web.entropy.normalized < 0.5", 0.55),
        ("hosts > 7.5", "hosts.distinct > 7.5", 6.75),
        ("views.opens > 10", "opens.new_flows > 10", 9.0),
        ("each.bytes > 5 MB", "each.bytes > 5 MB", 4.5),
        ("rates.bytes > 3 Gbit/s", "rates.bytes.max > 3 Gbit/s", 2.7),
    ] {
        let when = when(text);
        assert_eq!((when.to_string(), when.clear()), (canonical.to_owned(), clear), "{text}");
        assert_eq!(self::when(canonical), when);
    }
}

#[test]
fn numbers_with_units_are_parsed() {
    let parse =
        |text: &str| Quantity::parse(text, Dimension::Bytes).map(|of| (of.number, of.unit.map(|unit| unit.name)));
    for (text, number, unit) in [
        ("5", 5.0, None),
        (" 0.5 Gbit/s ", 0.5, Some("Gbit/s")),
        ("1e9", 1e9, None),
        ("1E-3GB", 0.001, Some("GB")),
        ("1.5e+3 kB", 1500.0, Some("kB")),
        (".5 B", 0.5, Some("B")),
    ] {
        assert_eq!(parse(text), Ok((number, unit)), "{text}");
    }
    for text in
        ["", "x", "-1", "1.2.3", "1e", "1 e5", "1,000", "1_000", "e5", "9e999", "nan", "inf", "5 5", "0x10", "５"]
    {
        assert!(parse(text).is_err(), "{text}");
    }
}

/// No input makes it panic.
#[test]
fn no_text_makes_it_panic() {
    let pieces =
        ["sources", ".", "bytes", " ", ">", "=", "<", "1", "e", "-", "Gbit/s", "%", "é", "\u{0}", "!", "coverage"];
    let catalogue = catalogue();
    let mut random = 1_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text += pieces[(random >> 33) as usize % pieces.len()];
        }
        if let Ok(when) = When::parse(&text, &catalogue) {
            assert_eq!(When::parse(&when.to_string(), &catalogue).as_ref(), Ok(&when), "{text}");
            assert!(when.allows(when.clear()), "{text}");
        }
    }
    assert_eq!(When::parse("nothing > 1", &catalogue), Err(WhenError::Unknown("nothing".to_owned())));
}

/// The page docs/ALERTS.md lists every number that a rule can use.
#[test]
fn the_page_lists_every_name() {
    let page = include_str!("../../../../docs/ALERTS.md");
    let spans: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let all = Catalogue::new(Standard::ALL, &[]);
    let is_listed = |name: &&str| {
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let is_reason = ["skipped", "lost"].contains(&first) && rest.contains('.');
        let with = |first: &str| spans.contains(format!("{first}.{rest}").as_str());
        spans.contains(name) || with("LIST") || with("VIEW") || is_reason || spans.contains(first) && with("ACCOUNT")
    };
    let missing: Vec<_> = all.names().filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "docs/ALERTS.md does not list {missing:?}");
}
