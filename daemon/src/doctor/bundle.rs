//! `weir doctor --bundle`: what a developer needs to know about a machine, in one file, without secrets or addresses.
//!
//! The configuration never shows its secrets. All other identifying information is replaced by stand-ins.

use std::{
    io::{self, Write as _},
    path::Path,
};

use rustix::system::uname;
use serde::Serialize;
use serde_json::{Value, json};
use weir_config::Config;
use weir_system::plain_file;

use super::{Diagnosis, stand_ins::StandIns};

/// The schema of the JSON.
const SCHEMA: &str = "weir.bundle/1";

/// The content of the bundle. Each of the last two parts may instead be the reason why it is missing.
#[derive(Debug)]
pub struct BundleInput<'a> {
    /// The configuration that the bundle shows, without secrets.
    pub config: &'a Config,
    /// The result of `weir doctor`.
    pub diagnosis: &'a Diagnosis,
    /// The output of `weir check`.
    pub check: Result<String, String>,
    /// The last report of the running weir.
    pub report: Result<Value, String>,
}

#[derive(Serialize)]
struct Bundle {
    schema: &'static str,
    version: &'static str,
    kernel: [String; 3],
    doctor: Value,
    check: Vec<String>,
    report: Value,
}

/// Writes the file, which must not exist yet. Only its owner may read it.
///
/// # Errors
///
/// The file exists already, or cannot be written.
pub fn write(path: &Path, known: &BundleInput<'_>) -> io::Result<()> {
    let mut file = plain_file::create(path, 0o600)?;
    file.write_all(bundle(known)?.as_bytes())
}

fn bundle(BundleInput { config, diagnosis, check, report }: &BundleInput<'_>) -> io::Result<String> {
    let uname = uname();
    let mut stand_ins = StandIns::default();
    names(&mut stand_ins, config, &uname.nodename().to_string_lossy());
    if let Ok(report) = report {
        for (kind, field) in [("host", "name"), ("site", "site")] {
            stand_ins.add(kind, report["observer"][field].as_str().unwrap_or_default());
        }
    }
    let (Ok(check) | Err(check)) = check;
    let bundle = Bundle {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        kernel: [uname.release(), uname.version(), uname.machine()].map(|text| stand_ins.text(&text.to_string_lossy())),
        doctor: stand_ins.json(&serde_json::to_value(diagnosis)?),
        check: check.lines().map(|line| stand_ins.text(line)).collect(),
        report: match report {
            Ok(report) => stand_ins.json(report),
            Err(why) => json!({"none": stand_ins.text(why)}),
        },
    };
    Ok(serde_json::to_string_pretty(&bundle)? + "\n")
}

/// Adds names that identify the machine or its site.
fn names(stand_ins: &mut StandIns, config: &Config, host: &str) {
    let Config { observer, networks, sinks, alerts, .. } = config;
    let short = host.split('.').next().unwrap_or_default();
    for name in [host, short].into_iter().chain(observer.name.as_deref()) {
        stand_ins.add("host", name);
    }
    if let Some(site) = &observer.site {
        stand_ins.add("site", site);
    }
    for network in networks {
        stand_ins.add("network", &network.name);
    }
    let hosts = sinks.iter().flat_map(|sink| sink.target.hosts());
    let hosts = hosts.chain(alerts.webhook.iter().filter_map(|webhook| webhook.url.host()));
    for host in hosts {
        stand_ins.add("collector", host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "nats")]
    #[test]
    fn a_nats_server_has_a_stand_in() {
        let config = Config::parse("sinks: [{type: nats, url: 'tls://NATS.example'}]", "weir.yaml").unwrap();
        let mut stand_ins = StandIns::default();
        names(&mut stand_ins, &config, "core7");
        assert_eq!(stand_ins.text("nats:nats.example:4222/weir.reports"), "nats:collector-1:4222/weir.reports");
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn each_broker_has_a_stand_in() {
        let config = Config::parse("sinks: [{type: kafka, brokers: [k1.example, k2.example]}]", "weir.yaml").unwrap();
        let mut stand_ins = StandIns::default();
        names(&mut stand_ins, &config, "core7");
        assert_eq!(stand_ins.text("k1.example:9092 k2.example:9092"), "collector-1:9092 collector-2:9092");
    }

    #[test]
    fn nothing_identifies_the_machine_or_its_place() {
        const CONFIG: &str = "
observer: {name: core7, site: fra1}
interfaces: [eth0]
networks: {acme: {prefixes: [192.0.2.0/24, \"2001:db8::/32\"]}}
views: [{name: to_acme, match: {dst_net: acme}, by: [src_ip]}, {name: one, match: {dst_ip: 198.51.100.9}, by: [src_ip]}]
hash_key: \"8f3c1a7be02d4965b1fe7730c4a9d258\"
sinks:
- {type: http, url: \"https://collector.example/path-token\", headers: {Authorization: Bearer hidden-token}}
- {type: ipfix, address: \"flows.example:4739\"}
";
        let config = Config::parse(CONFIG, "weir.yaml").unwrap();
        let diagnosis = Diagnosis {
            schema: "weir.doctor/1",
            version: "",
            possible: true,
            machine: Vec::new(),
            programs: Vec::new(),
            interfaces: Vec::new(),
        };
        let report = json!({
            "observer": {"name": "core7", "site": "fra1"},
            "interfaces": [{"name": "enx525400123456", "alias": "Acme uplink"}],
            "top": {"sources": [{"src_ip": "203.0.113.5"}, {"src_ip": "2001:db8::5"}]},
            "self": {"sinks": ["https://collector.example/path-token"]},
        });
        let known =
            BundleInput { config: &config, diagnosis: &diagnosis, check: Ok(config.to_yaml()), report: Ok(report) };
        let text = bundle(&known).unwrap();
        for secret in [
            "core7",
            "fra1",
            "acme uplink",
            "192.0.2",
            "198.51.100",
            "2001:db8",
            "203.0.113",
            "525400",
            "collector.example",
            "flows.example",
            "path-token",
            "hidden-token",
            "8f3c1a7b",
            "aabbccdd",
        ] {
            assert!(!text.to_lowercase().contains(secret), "{secret} is in {text}");
        }
        let bundle: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(bundle["report"]["observer"]["site"], "site-1");
        assert_eq!(bundle["report"]["interfaces"][0]["name"], "enxmac-1");
        assert!(bundle["check"].as_array().unwrap().iter().any(|line| line == "  top: 10"), "{text}");
        assert!(text.contains("network-1") && text.contains("v4-1/24"), "{text}");
    }

    #[test]
    fn an_existing_file_is_not_overwritten() {
        let path = std::env::temp_dir().join(format!("weir-bundle-{}", std::process::id()));
        std::fs::write(&path, "mine").unwrap();
        let config = Config::default();
        let (machine, programs, interfaces) = (Vec::new(), Vec::new(), Vec::new());
        let diagnosis = Diagnosis { schema: "", version: "", possible: true, machine, programs, interfaces };
        let [check, report] = [Err("none".to_owned()), Err("none".to_owned())];
        let report = report.map(|text: String| json!(text));
        let known = BundleInput { config: &config, diagnosis: &diagnosis, check, report };
        let refused = write(&path, &known).map_err(|error| error.kind());
        let kept = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((refused, kept.as_str()), (Err(io::ErrorKind::AlreadyExists), "mine"));
    }
}
