//! The section `usage`: what interfaces carry by hour, day and month, and how much they may.

use serde::{Serialize, Serializer};

use super::{
    NONE,
    history::OFF,
    interface::interface_name,
    limits::{MONTH_DAY, QUOTA_BYTES},
    section::{Field, Section},
};
use crate::rule::{
    Operator, Quantity, Rule, WINDOWS, When,
    catalogue::Catalogue,
    unit::{Dimension, Unit},
};

/// The name of the rule about the quota.
pub(super) const QUOTA: &str = "quota";
/// The number of a report that the quota limits.
pub(super) const USAGE_BYTES: &str = "usage.bytes";

/// How a running weir counts usage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// How many bytes an interface may carry in a month, both directions together; `None` (`none`): any number.
    #[serde(serialize_with = "write_quota")]
    pub quota: Option<u64>,
    /// The name or pattern of the interfaces that have the quota; `None` (`none`): every interface.
    #[serde(serialize_with = "write_interface")]
    pub interface: Option<String>,
    /// The day on which a month begins, in UTC.
    pub day: u8,
}

impl Default for Usage {
    fn default() -> Self {
        Self { quota: None, interface: None, day: 1 }
    }
}

impl Usage {
    /// The rule that the quota is.
    pub fn rule(&self) -> Option<Rule> {
        let (number, unit) = in_largest_unit(self.quota?)?;
        let subject = Catalogue::new([], &[]).find(USAGE_BYTES)?.clone();
        let number = number as f64;
        let when = When { subject, operator: Operator::Above, limit: Quantity { number, unit: Some(unit) } };
        Some(Rule {
            name: QUOTA.to_owned(),
            when,
            interface: self.interface.clone(),
            windows: WINDOWS,
            // It ends with the month.
            clear: number,
        })
    }
}

/// For `#[serde(serialize_with)]`.
pub(super) fn write<S: Serializer>(usage: &Option<Usage>, serializer: S) -> Result<S::Ok, S::Error> {
    match usage {
        Some(usage) => usage.serialize(serializer),
        None => OFF.serialize(serializer),
    }
}

fn write_quota<S: Serializer>(quota: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match quota.and_then(in_largest_unit) {
        Some((number, unit)) => serializer.collect_str(&format_args!("{number}{unit}")),
        None => serializer.serialize_str(NONE),
    }
}

fn write_interface<S: Serializer>(interface: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(interface.as_deref().unwrap_or(NONE))
}

/// Bytes in the largest unit that represents them exactly.
fn in_largest_unit(bytes: u64) -> Option<(u64, &'static Unit)> {
    let factor = |unit: &Unit| unit.scale(1.0) as u64;
    let fits = Dimension::Volume.units().iter().filter(|unit| bytes.is_multiple_of(factor(unit)));
    fits.max_by_key(|unit| factor(unit)).map(|unit| (bytes / factor(unit), unit))
}

/// Reads the section, or `off`.
pub(super) fn usage(field: &Field<'_>) -> Option<Option<Usage>> {
    if field.is_word_of(&[OFF]) {
        return Some(None);
    }
    let default = Usage::default();
    field
        .section("{quota: 2TB, day: 1}, or off", |s: &mut Section<'_>| Usage {
            quota: s.get("quota", default.quota, |f| quota(&f)),
            interface: s.get("interface", default.interface, |f| interface(&f)),
            day: s.get("day", default.day, |f| f.count(MONTH_DAY).and_then(|day| u8::try_from(day).ok())),
        })
        .map(Some)
}

fn quota(field: &Field<'_>) -> Option<Option<u64>> {
    if field.is_word_of(&[NONE]) {
        return Some(None);
    }
    let text = field.number_as_written("bytes of a month, such as 2TB, or none")?;
    match Quantity::parse(&text, Dimension::Volume) {
        Ok(Quantity { number, unit }) => {
            let bytes = (number * unit.map_or(1.0, |unit| unit.scale(1.0))).round();
            field.count_of(bytes as u64, QUOTA_BYTES).map(Some)
        }
        Err(why) => {
            field.refuse(why);
            None
        }
    }
}

fn interface(field: &Field<'_>) -> Option<Option<String>> {
    if field.is_word_of(&[NONE]) {
        return Some(None);
    }
    interface_name(field).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(text: &str) -> Result<Option<Usage>, String> {
        Config::parse(text, "weir.yaml").map(|config| config.usage).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn it_is_on_unless_it_is_turned_off() {
        assert_eq!(read(""), Ok(Some(Usage::default())));
        assert_eq!((read("usage: {}"), read("usage: off")), (read(""), Ok(None)));
        let quota = |text: &str| read(&format!("usage: {{quota: {text}, day: 28}}")).map(|usage| usage.unwrap().quota);
        for (text, bytes) in
            [("2TB", 2_000_000_000_000), ("1.5 TB", 1_500_000_000_000), ("2TiB", 2 << 40), ("7000000", 7_000_000)]
        {
            assert_eq!(quota(text), Ok(Some(bytes)), "{text}");
        }
        assert_eq!(quota("none"), Ok(None));
        for (text, part) in [
            ("usage: {quota: 2Tbit}", "the unit \"Tbit\" does not fit"),
            ("usage: {quota: 2tb}", "did you mean TB?"),
            ("usage: {quota: 10kB}", "below the minimum"),
            ("usage: {quota: yes}", "expected"),
            ("usage: {day: 29}", "29 is above the maximum of 28"),
            ("usage: {day: 0}", "0 is below the minimum of 1"),
            ("usage: {interface: a/b}", "interface"),
            ("usage: none", "or off"),
            ("usage: {quota: 2TB}\nalerts: {rules: [{name: quota, when: packets > 1}]}", "usage.quota"),
        ] {
            let mistake = read(text).unwrap_err();
            assert!(mistake.contains(part), "{text}: {mistake}");
        }
    }

    #[test]
    fn it_is_written_as_it_was_read() {
        for text in ["usage: off", "usage: {quota: 1536GB, day: 15, interface: ppp*}", "usage: {quota: 3TiB}"] {
            let config = Config::parse(text, "weir.yaml").unwrap();
            assert_eq!(Config::parse(&config.to_yaml(), "weir.yaml").unwrap(), config, "{text}");
        }
    }

    #[test]
    fn a_quota_is_a_rule() {
        let config = Config::parse("usage: {quota: 1.5TB, interface: wan0}", "weir.yaml").unwrap();
        let rules: Vec<_> = config.rules().iter().map(ToString::to_string).collect();
        let expected = "quota: the lower bound of usage.bytes > 1500 GB, of any interface that fits (wan0), for 1 window; \
                        ends when it is at most 1500 GB for as long";
        assert_eq!(rules, [expected]);
        assert!(config.watches_usage() && !Config::default().watches_usage());
        let own = Config::parse("alerts: {rules: [{name: soon, when: usage.bytes > 1 TB}]}", "weir.yaml").unwrap();
        assert!(own.watches_usage() && own.rules() == own.alerts.rules);
        let webhook = "usage: {quota: 1TB}\nalerts: {webhook: {url: 'https://alerts.example.net'}}";
        assert!(Config::parse(webhook, "weir.yaml").is_ok(), "the quota can send something");
    }
}
