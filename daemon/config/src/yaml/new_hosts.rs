//! The section `new_hosts`: which hosts count as known.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{
    history::OFF,
    limits::{HOST_DAYS, HOST_LEARNING, HOSTS},
    section::{Field, Section},
    units,
};

/// How weir finds hosts that it has not seen for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NewHosts {
    /// For how many days of measuring a host stays known after its last packet, at least.
    pub days: u64,
    /// How many hosts a generation of the filter has room for.
    pub hosts: u64,
    /// For how long weir must have known hosts before it says that one is new.
    #[serde(serialize_with = "units::write_duration")]
    pub learning: Duration,
}

impl Default for NewHosts {
    fn default() -> Self {
        Self { days: 30, hosts: 16_384, learning: Duration::from_secs(86_400) }
    }
}

impl NewHosts {
    /// For how long a host stays known, at least.
    pub const fn memory(&self) -> Duration {
        Duration::from_secs(self.days * 86_400)
    }
}

/// For `#[serde(serialize_with)]`.
pub(super) fn write<S: Serializer>(hosts: &Option<NewHosts>, serializer: S) -> Result<S::Ok, S::Error> {
    match hosts {
        Some(hosts) => hosts.serialize(serializer),
        None => OFF.serialize(serializer),
    }
}

/// Reads the section, or `off`.
pub(super) fn new_hosts(field: &Field<'_>) -> Option<Option<NewHosts>> {
    if field.is_word_of(&[OFF]) {
        return Some(None);
    }
    let default = NewHosts::default();
    let read = field.section("{days: 30}, or off", |s: &mut Section<'_>| {
        let learning_field = s.field("learning");
        let learning = learning_field.as_ref().and_then(|field| field.duration(HOST_LEARNING));
        let read = NewHosts {
            days: s.get("days", default.days, |f| f.count(HOST_DAYS)),
            hosts: s.get("hosts", default.hosts, |f| f.count(HOSTS)),
            learning: learning.unwrap_or(default.learning),
        };
        if let Some(field) = learning_field.filter(|_| read.learning > read.memory()) {
            let [learning, days] = [read.learning, read.memory()].map(|duration| units::show_duration(&duration));
            field.refuse(format!("{learning} is longer than `days`, {days}: weir would never have learnt enough"));
        }
        read
    });
    read.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(text: &str) -> Result<Option<NewHosts>, String> {
        let config = Config::parse(text, "weir.yaml").map_err(|mistakes| mistakes.to_string())?;
        assert_eq!(Config::parse(&config.to_yaml(), "weir.yaml").unwrap(), config, "{text}");
        Ok(config.new_hosts)
    }

    #[test]
    fn it_is_off_unless_it_is_turned_on() {
        assert_eq!((read(""), read("new_hosts: off")), (Ok(None), Ok(None)));
        assert_eq!(read("new_hosts: {}"), Ok(Some(NewHosts::default())));
        let all = NewHosts { days: 7, hosts: 1000, learning: Duration::from_secs(60) };
        assert_eq!(read("new_hosts: {days: 7, hosts: 1000, learning: 1m}"), Ok(Some(all)));
        for (text, part) in [
            ("on", "{days: 30}, or off"),
            ("{days: 0}", "0 is below the minimum of 1"),
            ("{days: 400}", "400 is above the maximum of 365"),
            ("{hosts: 10}", "10 is below the minimum of 256"),
            ("{days: 1, learning: 2d}", "48h is longer than `days`, 24h"),
            ("{host: 5}", "host"),
        ] {
            let mistake = read(&format!("new_hosts: {text}")).unwrap_err();
            assert!(mistake.contains(part), "{text}: {mistake}");
        }
    }

    #[test]
    fn a_rule_about_them_needs_them() {
        let rule = "alerts: {rules: [{name: stranger, when: new_hosts > 0}]}";
        assert!(read(&format!("new_hosts: {{}}\n{rule}")).is_ok());
        let mistake = read(rule).unwrap_err();
        assert!(mistake.contains("`new_hosts: {days: 30}`"), "{mistake}");
        let horizon = "alerts: {rules: [{name: many, when: horizons.24h.src_ip > 1000}]}";
        assert!(read(&format!("report: {{horizons: [1d]}}\n{horizon}")).is_ok());
        let mistake = read(horizon).unwrap_err();
        assert!(mistake.contains("report.horizons"), "{mistake}");
    }
}
