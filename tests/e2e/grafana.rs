//! Each query of the dashboard for Prometheus has an answer from a real Prometheus that scrapes weir.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    grafana::Dashboard,
    inject::Pace,
    oracle::Oracle,
    prometheus::Prometheus,
    traffic::{Mix, Plan, Traffic},
};

use crate::watch::{INTERVAL, QUIET_LINK, TIMEOUT, Watch, judge, send};

/// These need the programs of Prometheus.
pub const WITH_PROMETHEUS: &[crate::Test] = &[("the_dashboard_has_data", the_dashboard_has_data)];

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9469);
const SETTINGS: &str = "prometheus: {listen: 127.0.0.1:9469, top: 3}\n\
                        views: [{name: ports, by: [proto, port], top: 5}]\n\
                        alerts: {rules: [{name: any, when: packets > 0}]}\n";

/// A text as a value in an address (RFC 3986).
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let encode = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

/// A query as Grafana sends it, if the user has chosen everything.
fn filled_in(text: &str) -> Result<String> {
    let text = text.replace("$instance", ".*").replace("$interface", ".*");
    let text = text.replace("$__rate_interval", "5s").replace("$__range", "1m");
    ensure!(!text.replace("$\"", "").contains('$'), "an unknown variable: {text}");
    Ok(text)
}

/// The series of an answer.
fn series(answer: &Value) -> &[Value] {
    answer.pointer("/data/result").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn the_dashboard_has_data() -> Result<()> {
    let watch = Watch::start(&format!("{INTERVAL}{SETTINGS}"))?;
    let namespace = &watch.pair.observer;
    let prometheus = Prometheus::start(namespace, ADDRESS)?;
    let board = Dashboard::read("weir-prometheus.json")?;
    let mut oracle = Oracle::new();
    let mut seed = 80;
    // Rates need traffic that lasts for some scrapes.
    let mut traffic = || {
        seed += 1;
        let plan = Plan { seed, packets: 1_500, mix: Mix::odd(), ..Plan::default() };
        send(&watch.pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(1_500), &mut oracle)
    };
    let queries = board.queries()?;
    ensure!(queries.len() > 40, "{} queries", queries.len());
    for query in &queries {
        let path = format!("query?query={}", encoded(&filled_in(&query.text)?));
        let mut last = None;
        let found = clock::wait_for(&query.of, 3 * TIMEOUT, || {
            let answer = prometheus.api(namespace, &path)?;
            let has_number = |one: &Value| {
                let number = one.pointer("/value/1").and_then(Value::as_str).and_then(|text| text.parse::<f64>().ok());
                number.is_some_and(f64::is_finite)
            };
            let is_answered = answer.as_ref().is_some_and(|answer| series(answer).iter().any(has_number));
            last = answer;
            if !is_answered {
                traffic()?;
            }
            Ok(is_answered.then_some(()))
        });
        found.with_context(|| format!("{path}: {last:?}\n{}", prometheus.log()))?;
    }
    variables_have_values(&prometheus, &watch, &board)?;
    let of_top = prometheus.api(namespace, &format!("query?query={}", encoded("count by (list) (weir_top_bytes)")))?;
    let of_top = of_top.context("no answer")?;
    ensure!(series(&of_top).len() == 3, "{of_top}");
    let rows =
        |list: &Value| list.pointer("/value/1").and_then(Value::as_str).and_then(|rows| rows.parse::<u32>().ok());
    ensure!(series(&of_top).iter().all(|list| rows(list).is_some_and(|rows| rows <= 3)), "{of_top}");
    let reports = watch.stop(Loss::None)?;
    judge("beside Prometheus", oracle.check_reports(&reports))
}

/// The variables offer the router and its interface.
fn variables_have_values(prometheus: &Prometheus, watch: &Watch, board: &Dashboard) -> Result<()> {
    let variables = board.variables();
    ensure!(variables.len() == 2, "{variables:?}");
    for (name, definition) in variables {
        let inner = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (metric, label) = inner.and_then(|inner| inner.rsplit_once(", ")).context("not label_values")?;
        let path = format!("label/{label}/values?match[]={}", encoded(&filled_in(metric)?));
        let answer = prometheus.api(&watch.pair.observer, &path)?.context("no answer")?;
        ensure!(answer["data"].as_array().is_some_and(|values| values.len() == 1), "{name}: {answer}");
    }
    Ok(())
}
