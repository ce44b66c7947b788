//! The horizons of distinct counts: `report.horizons`.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{
    limits::{HORIZON, HORIZONS_MAX, INTERVALS_OF_HORIZON},
    section::Field,
    units::show_duration,
};
use crate::horizon::horizon_name;

/// Reads the horizons, which it sorts, for windows of this length.
pub(super) fn horizons(field: &Field<'_>, interval: Duration) -> Option<Vec<Duration>> {
    let mut all = Vec::new();
    for field in field.list(HORIZONS_MAX, "[1h, 24h]")? {
        let Some(horizon) = field.duration(HORIZON) else { continue };
        let least = interval * INTERVALS_OF_HORIZON;
        if horizon.subsec_nanos() != 0 {
            field.refuse(format!("{} is not a whole number of seconds", show_duration(&horizon)));
        } else if horizon < least {
            let [short, interval, least] = [horizon, interval, least].map(|duration| show_duration(&duration));
            field.refuse(format!("{short} has hardly a window of {interval} (report.interval): use {least} or more"));
        } else if all.contains(&horizon) {
            field.refuse(format!("{} is listed twice", horizon_name(horizon.as_secs())));
        } else {
            all.push(horizon);
        }
    }
    all.sort_unstable();
    Some(all)
}

/// For `#[serde(serialize_with)]`.
pub(super) fn write<S: Serializer>(horizons: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
    let names: Vec<_> = horizons.iter().map(|horizon| horizon_name(horizon.as_secs())).collect();
    names.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(text: &str) -> Result<Vec<Duration>, String> {
        let config = Config::parse(text, "weir.yaml").map_err(|mistakes| mistakes.to_string())?;
        assert_eq!(Config::parse(&config.to_yaml(), "weir.yaml").unwrap(), config, "{text}");
        Ok(config.report.horizons)
    }

    #[test]
    fn there_are_none_unless_they_are_named() {
        assert_eq!(read(""), Ok(Vec::new()));
        let hours = |all: &[u64]| Ok(all.iter().map(|hours| Duration::from_secs(hours * 3600)).collect::<Vec<_>>());
        assert_eq!(read("report: {horizons: [24h, 1h]}"), hours(&[1, 24]));
        assert_eq!(read("report: {horizons: [30d, 60m, 1d, 6h]}"), hours(&[1, 6, 24, 720]));
        for (text, part) in [
            ("[4m]", "4m is below the minimum of 5m"),
            ("[31d]", "above the maximum"),
            ("[1h, 2h, 3h, 4h, 5h]", "more than the 4 allowed"),
            ("[1h, 60m]", "1h is listed twice"),
            ("[300.5s]", "is not a whole number of seconds"),
            ("1h", "a list such as [1h, 24h]"),
        ] {
            let mistake = read(&format!("report: {{horizons: {text}}}")).unwrap_err();
            assert!(mistake.contains(part), "{text}: {mistake}");
        }
        let mistake = read("report: {interval: 1h, horizons: [90m]}\nseen_flows: {generation: 2h}").unwrap_err();
        assert!(mistake.contains("use 2h or more"), "{mistake}");
    }

    #[test]
    fn a_name_has_no_space() {
        for (seconds, name) in [(300, "5m"), (5400, "90m"), (3600, "1h"), (86_400, "24h"), (301, "301s")] {
            assert_eq!(horizon_name(seconds), name);
        }
    }
}
