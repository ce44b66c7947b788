//! Names and values of the exported numbers: the series of the table, as families of Prometheus.

use weir_schema::series::{
    Kind, Series, Side, Target, Unit,
    point::{Point, Scalar},
};

use super::{
    Latest,
    text::{Format, Page, written},
};

/// The names of series that do not follow the rule of [`name_of`], without units.
const IRREGULAR: [(&str, &str); 4] = [
    ("window.length", "weir_window"),
    ("interface.info", "weir_interface"),
    ("memory.resident", "weir_resident_memory"),
    ("memory.planned", "weir_planned_memory"),
];

/// The text of a scrape; before the first window it has only a few numbers.
pub(super) fn write(latest: Option<&Latest>, format: Format) -> String {
    let mut page = Page::new(format);
    let version = [(written(&[("version", env!("CARGO_PKG_VERSION").into())]), 1_u64)];
    page.family("weir_build", Kind::Info, "", "The version of weir.", version);
    let windows = latest.map_or(0, |latest| latest.sums.windows);
    page.family("weir_windows", Kind::Sum, "", "Windows that have ended.", [(String::new(), windows)]);
    for series in Series::all(Target::Prometheus) {
        for side in series.sides(Target::Prometheus) {
            if let Some(latest) = latest {
                family(&mut page, series, side, latest);
            }
        }
    }
    if let Some(latest) = latest {
        latest.talkers.write(&mut page);
    }
    page.finish()
}

fn family(page: &mut Page, series: &Series, side: &Side, Latest { report, sums, .. }: &Latest) {
    let name = name_of(series, side);
    let Unit { base: unit, parts, .. } = series.unit;
    let help = format!("{}{}", series.help, side.help);
    if series.kind == Kind::Sum {
        return page.family(&name, Kind::Sum, unit, &help, sums.of(series.name));
    }
    let number = |number: Scalar| if parts == 1.0 { number } else { Scalar::Real(f64::from(number) / parts) };
    let numbers = series
        .points(report)
        .filter_map(|Point { labels, reading, .. }| Some((written(&labels), number((side.of)(&reading)?))));
    page.family(&name, series.kind, unit, &help, numbers);
}

/// The name of a family: that of the series, with its unit at the end. The word for a bound stands before the word for
/// the counted thing.
fn name_of(series: &Series, side: &Side) -> String {
    let irregular = IRREGULAR.iter().find(|(name, _)| *name == series.name).map(|(_, ours)| (*ours).to_owned());
    let mut name = irregular.unwrap_or_else(|| {
        let (of, counted) = series.name.rsplit_once('.').unwrap_or((series.name, ""));
        let parts = ["weir", of, side.name, counted].into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("_").replace('.', "_")
    });
    let unit = series.unit.base;
    if !unit.is_empty() && !name.ends_with(&format!("_{unit}")) {
        name = format!("{name}_{unit}");
    }
    name
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use std::collections::HashSet;

    use weir_schema::{Distinct, Report, series::table::TABLE};

    use super::{
        super::{sums::Sums, talkers::Talkers},
        *,
    };

    fn latest() -> Latest {
        let report: Report = serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
        let mut sums = Sums::default();
        sums.add(&report);
        sums.add(&report);
        let talkers = Talkers::default().choose(&report);
        Latest { report, sums, talkers }
    }

    #[test]
    fn numbers_are_those_of_the_report_and_of_the_sums() {
        let latest = latest();
        let text = write(Some(&latest), Format::OpenMetrics);
        let line = |line: &str| assert!(text.lines().any(|known| known == line), "no line {line}\n{text}");
        line("weir_windows_total 2");
        line("weir_interface_seen_packets_total{interface=\"eth0\",direction=\"ingress\"} 2200690");
        line(
            "weir_interface_accounted_bytes_total{interface=\"eth0\",direction=\"ingress\",kind=\"skipped\",reason=\"arp\"} \
             691356",
        );
        line(
            "weir_interface_accounted_packets_total{interface=\"eth0\",direction=\"ingress\",kind=\"attributed\"} 2197400",
        );
        let Distinct { value, lower, upper, .. } = latest.report.unique.src_ip;
        line(&format!("weir_unique{{of=\"src_ip\"}} {value}"));
        line(&format!("weir_unique_lower{{of=\"src_ip\"}} {lower}"));
        line(&format!("weir_unique_upper{{of=\"src_ip\"}} {upper}"));
        line("weir_alert_firing{rule=\"flood\"} 1");
        line("weir_alert_firing{rule=\"loss\"} 0");
        line("# UNIT weir_interface_seen_bytes bytes");
        let rows = latest.report.views.iter().flat_map(|view| view.rows.iter().flatten()).count();
        let tables = latest.report.views.iter().flat_map(|view| view.tables.iter().flatten());
        let rows = rows + tables.map(|table| table.rows.len()).sum::<usize>();
        let written = ["packets", "flows", "new_flows", "distinct"]
            .map(|measure| text.lines().filter(|line| line.starts_with(&format!("weir_view_{measure}{{"))).count());
        assert_eq!(written.into_iter().sum::<usize>(), rows, "each row once");
        assert!(rows > 0);
    }

    #[test]
    fn the_golden_report_is_exported_as_it_was() {
        let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
        let mut latest = latest();
        // A feature that other crates may switch on decides if the last digit is read exactly.
        latest.report.interfaces[0].kept = 0.9997;
        let text = write(Some(&latest), Format::OpenMetrics).replacen(version, "version=\"\"", 1);
        expect_file!["../../tests/golden/prometheus.txt"].assert_eq(&text);
    }

    #[test]
    fn every_number_is_exported_or_says_why_not() {
        let mut latest = latest();
        let own = &mut latest.report.self_metrics;
        own.kernel_ns_per_packet = Some(1.0);
        let text = write(Some(&latest), Format::OpenMetrics);
        let families: HashSet<_> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        for series in TABLE {
            for side in series.sides(Target::Prometheus) {
                let (name, absent) = (name_of(series, side), series.absent(Target::Prometheus));
                assert_ne!(families.contains(&*name), absent.is_some(), "{name}: {absent:?}");
            }
        }
    }

    #[test]
    fn unknown_numbers_have_no_series() {
        let mut latest = latest();
        let families = ["weir_resident_memory_bytes", "weir_cache_hit_ratio", "weir_cpu_per_packet_seconds"];
        let has = |latest: &Latest, family: &str| {
            write(Some(latest), Format::Plain).lines().any(|line| line.starts_with(&format!("{family} ")))
        };
        assert!(families.iter().all(|family| has(&latest, family)));
        let own = &mut latest.report.self_metrics;
        (own.rss_bytes, own.cache_hit_rate, own.cpu_ns_per_packet) = (None, None, None);
        assert!(families.iter().all(|family| !has(&latest, family)));
    }

    #[test]
    fn standard_talkers_make_no_series() {
        let mut latest = latest();
        let told = |latest: &Latest| write(Some(latest), Format::Plain).contains("weir_view_");
        assert!(told(&latest));
        for view in &mut latest.report.views {
            view.name = "talkers".to_owned();
        }
        assert!(!told(&latest));
    }

    /// Checks the rules of `OpenMetrics` that make a scraper reject a text.
    #[test]
    fn each_family_is_declared_once_and_each_number_is_there_once() {
        let text = write(Some(&latest()), Format::OpenMetrics);
        let (mut families, mut numbers) = (HashSet::new(), HashSet::new());
        let mut family = ("", "");
        for line in text.strip_suffix("# EOF\n").expect("it has an end").lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                family = declared.split_once(' ').unwrap();
                assert!(families.insert(family.0), "{} twice", family.0);
            } else if let Some(unit) = line.strip_prefix("# UNIT ") {
                let (name, unit) = unit.split_once(' ').unwrap();
                assert!(name == family.0 && name.ends_with(&format!("_{unit}")), "{line}");
            } else if !line.starts_with("# HELP ") {
                let (series, number) = line.rsplit_once(' ').unwrap();
                let suffix = match family.1 {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                assert_eq!(series.split('{').next(), Some(&*format!("{}{suffix}", family.0)), "{line}");
                assert!(numbers.insert(series), "{series} twice");
                assert!(number.parse::<f64>().is_ok_and(|number| number >= 0.0), "{line}");
            }
        }
        assert!(families.len() > 40, "{}", families.len());
    }

    #[test]
    fn there_is_something_to_tell_before_the_first_window() {
        let text = write(None, Format::Plain);
        assert!(text.contains("weir_build_info{version=\"") && text.contains("weir_windows_total 0\n"), "{text}");
    }
}
