//! The whole way from text to configuration or mistakes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::slice;

use weir_sketch::hash::{Key, mix};

use super::limits::{self, FILE_MAX, MISTAKES_MAX};
use super::units::{parse_bytes, show_bytes, show_duration};
use super::*;
use crate::alert::{catalogue::Catalogue, rule::When};
use crate::view::{Condition, FLOW, Measure, Of, Standard, Values, View};

const SHIPPED: &str = include_str!("../../../config/weir.yaml");

fn parse(text: &str) -> Result<Config, Mistakes> {
    Config::parse(text, "weir.yaml")
}

/// The mistakes of a text as displayed, without the file's name and the advice at the end.
fn mistakes(text: &str) -> Vec<String> {
    let shown = parse(text).expect_err(text).to_string();
    let (lines, _advice) = shown.rsplit_once('\n').unwrap();
    lines.lines().map(|line| line.strip_prefix("weir.yaml:").unwrap().to_owned()).collect()
}

/// A temporary file of this test process.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-config-{}-{name}", std::process::id()));
    fs::write(&path, content).unwrap();
    path
}

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn nothing_written_is_the_default() {
    let nulls = "observer:\nreport: null\nhash_key: ~\nsinks:\ndatapath: {ring: null}";
    for text in ["", "\n\n", "# only a comment\n", "---\n", "null", "{}", "\u{feff}", "--- # empty\n...\n", nulls] {
        assert_eq!(parse(text).unwrap(), Config::default(), "{text:?}");
    }
}

#[test]
fn shipped_file_is_the_default_spelled_out() {
    assert_eq!(parse(SHIPPED).unwrap(), Config::default());
    let [shipped, default] = [SHIPPED, &Config::default().to_yaml()].map(|text| {
        let value: serde_yaml::Value = serde_yaml::from_str(text).unwrap();
        value
    });
    assert_eq!(shipped, default, "the same keys and the same words");
}

#[test]
fn shipped_file_tells_the_limits() {
    use std::ops::RangeInclusive;
    fn told<T>(range: RangeInclusive<T>, show: impl Fn(&T) -> String) -> String {
        format!("{} to {}", show(range.start()), show(range.end()))
    }
    let limits = [
        ("name", told(limits::NAME_BYTES, usize::to_string)),
        ("site", told(limits::NAME_BYTES, usize::to_string)),
        ("interfaces", format!("at most {}", limits::INTERFACES_MAX)),
        ("interfaces", format!("at most {DEFAULT_ROUTES_MAX}, that a default route")),
        ("networks", format!("at most {} networks", limits::NETWORKS_MAX)),
        ("networks", format!("{} bytes", told(limits::NETWORK_NAME_BYTES, usize::to_string))),
        ("networks", format!("at most {} prefixes", limits::PREFIXES_MAX)),
        ("networks", format!("At most {}", show_bytes(limits::PREFIX_FILE_MAX))),
        ("geo", show_bytes(limits::GEO_FILE_MAX)),
        ("interval", told(limits::INTERVAL, show_duration)),
        ("top", told(limits::TOP, u64::to_string)),
        ("unique_error", told(limits::UNIQUE_ERROR, f64::to_string)),
        ("top_error", told(limits::TOP_ERROR, f64::to_string)),
        ("top_candidates", told(limits::TOP_CANDIDATES, u64::to_string)),
        ("capacity", told(limits::CAPACITY, u64::to_string)),
        ("false_positive_rate", told(limits::FALSE_POSITIVE_RATE, f64::to_string)),
        ("generation", told(limits::GENERATION, show_duration)),
        ("cache_flows", told(limits::CACHE_FLOWS, u64::to_string)),
        ("ring", told(limits::RING, |bytes| show_bytes(*bytes))),
        ("packet_ring", told(limits::PACKET_RING, |bytes| show_bytes(*bytes))),
        ("rules", format!("At most {}", limits::ALERT_RULES_MAX)),
        ("sinks", format!("at most {}", limits::SINKS_MAX)),
        ("sinks", "100ms to 60s".to_owned()),
        ("sinks", format!("at most {}", limits::HEADERS_MAX)),
        ("queue", told(limits::QUEUE, u64::to_string)),
    ];
    assert_eq!(limits::TIMEOUT, Duration::from_millis(100)..=Duration::from_secs(60));
    for (key, limit) in limits {
        // The comment lines right above the key.
        let lines: Vec<&str> = SHIPPED.lines().map(str::trim_start).collect();
        let at = lines.iter().position(|line| line.starts_with(&format!("{key}:"))).expect(key);
        let comment = lines[..at].iter().rev().take_while(|line| line.starts_with('#')).copied().collect::<Vec<_>>();
        assert!(comment.iter().any(|line| line.contains(&limit)), "{key} should say {limit:?}: {comment:#?}");
    }
}

#[test]
fn examples_parse() {
    let mut examples: Vec<PathBuf> =
        fs::read_dir(repository("config/examples")).unwrap().map(|entry| entry.unwrap().path()).collect();
    examples.retain(|path| path.is_file());
    examples.sort();
    let names: Vec<&str> = examples.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["fleet.yaml", "router.yaml", "two-sinks.yaml"]);
    let [fleet, router, two_sinks] = [0, 1, 2].map(|i| {
        let text = fs::read_to_string(&examples[i]).unwrap();
        Config::parse(&text, names[i]).unwrap_or_else(|e| panic!("{e}"))
    });

    assert_eq!(fleet.hash_key, HashKey::File("/run/credentials/weir.service/hash.key".into()));
    assert_eq!(fleet.seen_flows.generation, Duration::from_secs(900));
    assert_eq!(router.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["eth0", "eth1"]);
    assert!(matches!(&router.sinks[..], [Sink { target: Target::Http(http), queue: 64, .. }]
        if http.url == "http://collector:8080/weir" && http.compress == Compress::Gzip));
    assert_eq!(
        two_sinks.interfaces[0],
        Interface { name: "wan0".into(), mode: Mode::Native, direction: Direction::Ingress, feeds: None }
    );
    assert!(matches!(two_sinks.sinks[0].target, Target::File(_)));
}

#[test]
fn examples_of_views_parse_and_differ() {
    let mut names = Vec::new();
    for entry in fs::read_dir(repository("config/examples/views")).unwrap() {
        let path = entry.unwrap().path();
        let config = Config::parse(&fs::read_to_string(&path).unwrap(), &path.display().to_string());
        let config = config.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert!(!config.views.is_empty(), "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "autonomous-systems.yaml",
            "flowsketch.yaml",
            "networks.yaml",
            "pktvisor.yaml",
            "quality-of-service.yaml",
            "scans-and-floods.yaml",
            "services.yaml",
        ]
    );
}

fn network(name: &str, prefixes: &[&str], own: bool) -> Network {
    Network { name: name.to_owned(), prefixes: prefixes.iter().map(|p| p.parse().unwrap()).collect(), file: None, own }
}

/// Every setting with a value that is not its default.
const EVERYTHING: &str = r#"
observer: {name: edge-1, site: fra1}
interfaces: [eth0, {name: wan.100, mode: native, direction: both}, {name: ppp0, mode: generic}, {name: ppp1, mode: afpacket}, {name: "v*", mode: tcx, direction: egress}]
networks:
  customers: {prefixes: [198.51.100.0/24, 192.0.2.1, 2001:db8::/32, "::/0"], own: true}
  rest.of-it_2: {prefixes: [0.0.0.0/0]}
geo: {asn: asn.mmdb, country: /var/lib/country.mmdb}
report: {interval: 1m, top: 25}
estimates: {unique_error: 0.01, top_error: 1e-3, top_candidates: 2048}
seen_flows: {capacity: 50000, false_positive_rate: 0.02, generation: 1h 30m}
control: {socket: none}
prometheus: {listen: "[::1]:9469"}
datapath: {cache_flows: 8192, ring: 262144, packet_ring: 4MiB, tunnels: inner}
hash_key: {file: key}
sandbox: false
sinks:
  - {type: stdout, queue: 1, addresses: prefix}
  - {type: file, path: reports.ndjson, max_size: 8MiB, keep: 2, compress: zstd, queue: 2}
  - {type: http, url: "https://[2001:db8::1]:8443/a?b=c", timeout: 250ms, compress: zstd, queue: 3, connect_timeout: 1s, send_timeout: 2s, answer_timeout: 3s, token_file: token, header_files: {X-Key: /k}, tls: {ca_file: ca, certificate_file: c, key_file: k}, proxy: "http://proxy:3128"}
  - {type: http, url: "http://collector"}
  - {type: ipfix, address: "[2001:db8::1]:9995", transport: tcp, timeout: 1s, view: web, domain: 7}
spool: {path: /srv/spool, fsync: never, max_size: 1GiB, max_age: 72h}
sampling: {packets: auto, cpu: 0.25}
standard_views: [services, flows]
memory: 200MiB
views: [{name: web, match: {dst_port: 443}, by: [src_ip], measure: packets, top: 7, per: interface, error: 0.002}]
alerts:
  rules:
    - {name: web, when: web.packets >= 3 kpkt/s, for: 2 windows, clear: 2000 pkt/s, interface: "v*"}
    - {name: many, when: flows.bytes > 5}
  webhook: {url: "https://alerts.example:8443", timeout: 1s, queue: 7}
"#;

#[test]
fn every_setting_is_read() {
    let interface = |name: &str, mode, direction| Interface { name: name.to_owned(), mode, direction, feeds: None };
    let http = |url, timeout_ms, compress| {
        let timeout = Duration::from_millis(timeout_ms);
        Target::Http(Box::new(Http {
            url: Uri::from_static(url),
            timeout,
            connect_timeout: None,
            send_timeout: None,
            answer_timeout: None,
            compress,
            headers: Vec::new(),
            token_file: None,
            header_files: Vec::new(),
            tls: Tls::default(),
            proxy: None,
        }))
    };
    let when = |text: &str| {
        let views = parse("views: [{name: web, by: [src_ip], measure: packets, per: interface}]").unwrap().views;
        When::parse(text, &Catalogue::new(Standard::ALL, &views)).unwrap()
    };
    let expected = Config {
        alerts: Alerts {
            rules: vec![
                Rule {
                    name: "web".into(),
                    when: when("web.packets >= 3 kpkt/s"),
                    interface: Some("v*".into()),
                    windows: 2,
                    clear: 2.0,
                },
                Rule { name: "many".into(), when: when("flows.bytes > 5"), interface: None, windows: 1, clear: 4.5 },
            ],
            webhook: Some(Webhook {
                url: Uri::from_static("https://alerts.example:8443"),
                timeout: Duration::from_secs(1),
                headers: Vec::new(),
                queue: 7,
            }),
        },
        observer: Observer { name: Some("edge-1".into()), site: Some("fra1".into()) },
        interfaces: vec![
            interface("eth0", Mode::Auto, Direction::Ingress),
            interface("wan.100", Mode::Native, Direction::Both),
            interface("ppp0", Mode::Generic, Direction::Ingress),
            interface("ppp1", Mode::AfPacket, Direction::Ingress),
            interface("v*", Mode::Tcx, Direction::Egress),
        ],
        networks: vec![
            network("customers", &["198.51.100.0/24", "192.0.2.1/32", "2001:db8::/32", "::/0"], true),
            network("rest.of-it_2", &["0.0.0.0/0"], false),
        ],
        geo: GeoFiles { asn: Some("asn.mmdb".into()), country: Some("/var/lib/country.mmdb".into()) },
        report: Report { interval: Duration::from_secs(60), top: 25 },
        estimates: Estimates { unique_error: 0.01, top_error: 0.001, top_candidates: 2048 },
        seen_flows: SeenFlows { capacity: 50_000, false_positive_rate: 0.02, generation: Duration::from_secs(5400) },
        standard_views: vec![Standard::Flows, Standard::Services],
        views: vec![View {
            name: "web".into(),
            conditions: vec![Condition {
                key: "dst_port",
                is_negated: false,
                texts: vec!["443".into()],
                values: Values::Ranges(Of::DstPort, vec![(443, 443)]),
            }],
            by: vec![FLOW[0]],
            measure: Measure::Packets,
            top: 7,
            per_interface: true,
            error: 0.002,
            has_entropy: false,
        }],
        memory: Some(200 << 20),
        control: Control { socket: None },
        spool: Spool {
            path: Where::Folder("/srv/spool".into()),
            fsync: Fsync::Never,
            max_size: 1 << 30,
            max_age: Some(Duration::from_secs(72 * 60 * 60)),
        },
        prometheus: Prometheus { listen: Some("[::1]:9469".parse().unwrap()) },
        datapath: Datapath {
            cache_flows: Some(8192),
            ring: Some(262_144),
            packet_ring: 4 << 20,
            tunnels: Tunnels::Inner,
        },
        sampling: Sampling { packets: Packets::Auto, cpu: 0.25 },
        hash_key: HashKey::File("key".into()),
        sandbox: false,
        sinks: vec![
            Sink { target: Target::Stdout, queue: 1, addresses: Addresses::Prefix },
            Sink {
                target: Target::File(File {
                    path: "reports.ndjson".into(),
                    max_size: Some(8 << 20),
                    keep: 2,
                    compress: Compress::Zstd,
                }),
                queue: 2,
                addresses: Addresses::Full,
            },
            Sink {
                target: Target::Http(Box::new(Http {
                    url: Uri::from_static("https://[2001:db8::1]:8443/a?b=c"),
                    timeout: Duration::from_millis(250),
                    connect_timeout: Some(Duration::from_secs(1)),
                    send_timeout: Some(Duration::from_secs(2)),
                    answer_timeout: Some(Duration::from_secs(3)),
                    compress: Compress::Zstd,
                    headers: Vec::new(),
                    token_file: Some("token".into()),
                    header_files: vec![(HeaderName::from_static("x-key"), "/k".into())],
                    tls: Tls {
                        ca_file: Some("ca".into()),
                        certificate_file: Some("c".into()),
                        key_file: Some("k".into()),
                    },
                    proxy: Some(Uri::from_static("http://proxy:3128")),
                })),
                queue: 3,
                addresses: Addresses::Full,
            },
            Sink { target: http("http://collector", 5000, Compress::Gzip), queue: 64, addresses: Addresses::Full },
            Sink {
                target: Target::Ipfix(Ipfix {
                    address: Address { host: "2001:db8::1".into(), port: 9995 },
                    transport: Transport::Tcp,
                    timeout: Duration::from_secs(1),
                    view: "web".into(),
                    domain: 7,
                }),
                queue: 64,
                addresses: Addresses::Full,
            },
        ],
    };
    assert_eq!(parse(EVERYTHING).unwrap(), expected);
}

#[test]
fn printed_configuration_reads_back() {
    for text in ["", EVERYTHING, "sinks: []", "sampling: {packets: 100}", "spool: {path: none, max_age: none}"] {
        // What is printed has no query.
        let config = parse(&text.replace("?b=c", "?***")).unwrap();
        assert!(!parse(text).unwrap().to_yaml().contains("b=c"));
        let printed = config.to_yaml();
        assert_eq!(parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}")), config);
    }
}

#[test]
fn anchors_and_aliases_work() {
    let config = parse("report: {interval: &time 30s}\nseen_flows: {generation: *time}").unwrap();
    assert_eq!(config.seen_flows.generation, Duration::from_secs(30));
}

#[test]
fn limits_are_inclusive() {
    let cases = [
        ("report: {interval: %}", ["1s", "1h"], ["999ms", "3601s"]),
        ("report: {top: %}", ["1", "100"], ["0", "101"]),
        ("estimates: {unique_error: %}", ["0.002", "0.05"], ["0.0019", "0.051"]),
        ("estimates: {top_error: %}", ["0.00005", "0.01"], ["0.00004", "0.011"]),
        ("estimates: {top_candidates: %}", ["64", "16384"], ["63", "16385"]),
        ("seen_flows: {capacity: %}", ["1000", "100000000"], ["999", "100000001"]),
        ("seen_flows: {false_positive_rate: %}", ["0.000001", "0.1"], ["0.0000009", "0.11"]),
        ("seen_flows: {generation: %}", ["10s", "24h"], ["9s", "86401s"]),
        ("datapath: {cache_flows: %}", ["256", "65536"], ["128", "131072"]),
        ("datapath: {ring: %}", ["64KiB", "64MiB"], ["32KiB", "128MiB"]),
        ("datapath: {packet_ring: %}", ["64KiB", "256MiB"], ["32KiB", "512MiB"]),
        ("spool: {max_size: %}", ["1MiB", "1024GiB"], ["1023KiB", "1025GiB"]),
        ("spool: {max_age: %}", ["60s", "87840h"], ["59s", "87841h"]),
        ("sinks: [{type: stdout, queue: %}]", ["1", "4096"], ["0", "4097"]),
        ("sinks: [{type: file, path: a, max_size: %}]", ["1MiB", "1024GiB"], ["1023KiB", "1025GiB"]),
        ("sinks: [{type: file, path: a, keep: %}]", ["1", "100"], ["0", "101"]),
        ("alerts: {rules: [{name: a, when: lost > 0, for: %}]}", ["1", "1000"], ["0", "1001"]),
        ("alerts: {rules: [{name: a, when: lost > 0, for: % windows}]}", ["1", "1000"], ["0", "1001"]),
        ("sinks: [{type: http, url: 'http://a', timeout: %}]", ["100ms", "60s"], ["99ms", "61s"]),
    ];
    for (text, within, beyond) in cases {
        // The interval must not be longer than the generation, which is not the question here.
        let generation = if text.contains("interval") { "\nseen_flows: {generation: 1h}" } else { "" };
        let text = |value: &str| text.replace('%', value) + generation;
        for value in within {
            assert!(parse(&text(value)).is_ok(), "{}", text(value));
        }
        for (value, way) in beyond.iter().zip(["is below the minimum of", "is above the maximum of"]) {
            let found = mistakes(&text(value));
            assert!(found.len() == 1 && found[0].contains(way), "{}: {found:?}", text(value));
        }
    }
}

/// Texts with their mistakes, as displayed after the file's name.
const MISTAKES: &[(&str, &[&str])] = &[
    // One of each kind.
    ("report:\n  interval:  200ms", &["2:14: report.interval: 200ms is below the minimum of 1s"]),
    ("report: {top: -1}", &["1:15: report.top: -1 is below the minimum of 1"]),
    ("report: {interval: [1, 2]}", &["1:20: report.interval: expected a duration such as 10s, found the list [..]"]),
    (
        "report: {interval: 10}",
        &["1:20: report.interval: expected a duration such as 10s, found the number 10: add its unit (ms, s, m, h)"],
    ),
    ("report: {interval: 1500ms}", &["1:20: report.interval: 1s 500ms is not a whole number of seconds"]),
    ("report: {interval: 7s}", &["1:20: report.interval: 7s does not divide a day into equal windows, try 6s or 8s"]),
    (
        "report: {interval: 3599s}\nseen_flows: {generation: 1h}",
        &["1:20: report.interval: 59m 59s does not divide a day into equal windows, try 57m 36s or 1h"],
    ),
    ("report: {top: ten}", &["1:15: report.top: expected a whole number, found the text \"ten\""]),
    ("report: {top: 1.5}", &["1:15: report.top: expected a whole number, found the number 1.5"]),
    ("report: {top: !count 5}", &["1:15: report.top: expected a whole number, found a value tagged \"count\""]),
    (
        "estimates: {unique_error: yes}",
        &["1:27: estimates.unique_error: expected a number such as 0.002, found the text \"yes\""],
    ),
    (
        "estimates: {unique_error: .nan}",
        &["1:27: estimates.unique_error: expected a number such as 0.002, found the number NaN"],
    ),
    ("estimates: {unique_error: .inf}", &["1:27: estimates.unique_error: inf is above the maximum of 0.05"]),
    (
        "seen_flows: {generation: {}}",
        &["1:26: seen_flows.generation: expected a duration such as 10s, found the empty map {}"],
    ),
    ("spool: {path: ''}", &["1:15: spool.path: not a path: it is empty or contains a NUL byte"]),
    ("spool: {fsync: always}", &["1:16: spool.fsync: expected one of report, never, found the text \"always\""]),
    (
        "prometheus: {listen: 9469}",
        &["1:22: prometheus.listen: expected text, found the number 9469: put it in quotes"],
    ),
    (
        "prometheus: {listen: localhost:9469}",
        &[
            "1:22: prometheus.listen: \"localhost:9469\" is not an address with a port, such as 127.0.0.1:9469 or [::1]:9469, or none",
        ],
    ),
    (
        "prometheus: {listen: 127.0.0.1:0}",
        &["1:22: prometheus.listen: port 0 is any port, and nobody would know which: name one, such as 9469"],
    ),
    ("control: {socket: 7}", &["1:19: control.socket: expected text, found the number 7: put it in quotes"]),
    ("control: {socket: \"\"}", &["1:19: control.socket: not a path: it is empty or contains a NUL byte"]),
    (
        "control: {socket: /}",
        &["1:19: control.socket: not the path of a file: end it with a name, such as control.sock"],
    ),
    (
        "control: {socket: /a/very/long/path/of/a/socket/that/is/longer/than/the/kernel/has/room/for/control/weir/control.sock}",
        &["1:19: control.socket: 99 bytes, but the path of a socket has at most 90: choose a shorter one"],
    ),
    ("datapath: {cache_flows: 5000}", &["1:25: datapath.cache_flows: 5000 is not a power of two, try 4096 or 8192"]),
    ("datapath: {ring: 3MiB}", &["1:18: datapath.ring: 3MiB is not a power of two, try 2MiB or 4MiB"]),
    (
        "datapath: {ring: 1MB}",
        &["1:18: datapath.ring: expected a size such as 1MiB, found the text \"1MB\" (units: B, KiB, MiB, GiB)"],
    ),
    ("observer: {name: 42}", &["1:18: observer.name: expected text, found the number 42: put it in quotes"]),
    ("observer: {name: ''}", &["1:18: observer.name: 0 bytes, but a name has 1 to 255"]),
    ("observer: {name: \"a\\nb\"}", &["1:18: observer.name: \"a\\nb\" contains a control character"]),
    ("observer: edge", &["1:11: observer: expected a map such as {name: edge-1}, found the text \"edge\""]),
    ("- a", &["1:1: expected a map such as {report: {interval: 10s}}, found the list [..]"]),
    // Unknown keys.
    ("report:\n  intervall: 10s", &["2:3: report.intervall: unknown key, did you mean interval?"]),
    ("report: {colour: red}", &["1:10: report.colour: unknown key (known here: interval, top)"]),
    (
        "report: {top: 5, 1: x, ~: y, [a]: z}",
        &[
            "1:18: report.1: unknown key (known here: interval, top)",
            "1:24: report.null: unknown key (known here: interval, top)",
            "1:30: report.\"[..]\": unknown key (known here: interval, top)",
        ],
    ),
    (
        "'tpo level\\':\n  x: 1",
        &[
            "1:1: \"tpo level\\\\\": unknown key (known here: observer, interfaces, networks, geo, report, estimates, seen_flows, \
         standard_views, views, alerts, memory, control, prometheus, datapath, sampling, hash_key, sandbox, sinks, \
         spool)",
        ],
    ),
    ("report: {top: 5, top: 6}", &["1:18: report.top: given twice: keep one of them"]),
    // Interfaces.
    ("interfaces: eth0", &["1:13: interfaces: expected a list such as [eth0, eth1], found the text \"eth0\""]),
    (
        "interfaces:\n- eth0\n- name: eth1\n- eth0\n- {name: eth1}",
        &[
            "4:3: interfaces[2]: eth0 is listed already, as interfaces[0]",
            "5:3: interfaces[3]: eth1 is listed already, as interfaces[1]",
        ],
    ),
    (
        "interfaces: [a/b, 'a b', a:b, .., '', abcdefghijklmnop, null, 5, abcdefghijklmno]",
        &[
            "1:14: interfaces[0]: \"a/b\" cannot be the name of an interface: it has a '/', a ':' or white space, or is '.' or '..'",
            "1:19: interfaces[1]: \"a b\" cannot be the name of an interface: it has a '/', a ':' or white space, or is '.' or '..'",
            "1:26: interfaces[2]: \"a:b\" cannot be the name of an interface: it has a '/', a ':' or white space, or is '.' or '..'",
            "1:31: interfaces[3]: \"..\" cannot be the name of an interface: it has a '/', a ':' or white space, or is '.' or '..'",
            "1:35: interfaces[4]: \"\" has 0 bytes, but an interface name 1 to 15",
            "1:39: interfaces[5]: \"abcdefghijklmnop\" has 16 bytes, but an interface name 1 to 15",
            "1:57: interfaces[6]: expected text, found nothing",
            "1:63: interfaces[7]: expected text, found the number 5: put it in quotes",
        ],
    ),
    (
        "interfaces:\n  - mode: nativ\n    name: eth0\n  - mode: fast\n    nmae: eth1\n  - {}",
        &[
            "2:11: interfaces[0].mode: expected one of auto, native, generic, tcx, tc, afpacket, found the text \"nativ\", did you mean native?",
            "4:11: interfaces[1].mode: expected one of auto, native, generic, tcx, tc, afpacket, found the text \"fast\"",
            "5:5: interfaces[1].nmae: unknown key, did you mean name?",
            "6:5: interfaces[2].name: is missing: the interface, such as eth0",
        ],
    ),
    (
        "interfaces:\n  - {name: eth0, mode: native, direction: egress}\n  - {name: eth1, mode: native, direction: up}",
        &[
            "2:43: interfaces[0].direction: XDP sees only packets that an interface receives: leave out `mode`, or use \
             `mode: tcx`",
            "3:43: interfaces[1].direction: expected one of ingress, egress, both, found the text \"up\"",
        ],
    ),
    // Networks.
    (
        "networks: [192.0.2.0/24]",
        &["1:11: networks: expected a map such as {customers: {prefixes: [192.0.2.0/24]}}, found the list [..]"],
    ),
    (
        "networks:\n  a: [192.0.2.0/24]\n  b: {prefixes: 192.0.2.0/24}\n  c: {prefixes: [192.0.2.0/24], own: yes}",
        &[
            "2:6: networks.a: expected a map such as {prefixes: [192.0.2.0/24]}, found the list [..]",
            "3:17: networks.b.prefixes: expected a list such as [192.0.2.0/24, \"2001:db8::/32\"], found the text \
             \"192.0.2.0/24\"",
            "4:38: networks.c.own: expected true or false, found the text \"yes\"",
        ],
    ),
    (
        "networks:\n  a: {}\n  b: {own: true}\n  c: {prefixes: []}\n  d:\n    prefixs: [192.0.2.0/24]\n  e: {flie: x}\n  \
         f: {prefixes: ~, file: ~}",
        &[
            "2:6: networks.a.prefixes: is missing: a list such as [192.0.2.0/24], or `file` with one prefix a line",
            "3:6: networks.b.prefixes: is missing: a list such as [192.0.2.0/24], or `file` with one prefix a line",
            "4:17: networks.c.prefixes: the list is empty and there is no `file`, but a network has one prefix or more",
            "6:5: networks.d.prefixs: unknown key, did you mean prefixes?",
            "7:7: networks.e.flie: unknown key, did you mean file?",
            "8:6: networks.f.prefixes: is missing: a list such as [192.0.2.0/24], or `file` with one prefix a line",
        ],
    ),
    (
        "networks:\n  a b: {prefixes: [192.0.2.0/25]}\n  '': {prefixes: [192.0.2.128/25]}\n  a: {prefixes: [192.0.3.0/24]}\n  \
         a: {prefixes: [192.0.3.0/24]}\n  é: {prefixes: [192.0.4.0/33]}",
        &[
            "2:3: networks.\"a b\": the name \"a b\" has ' ': use letters from a to z, digits, `_`, `-` and `.`",
            "3:3: networks.\"\": \"\" has 0 bytes, but the name of a network 1 to 64",
            "5:3: networks.a: given twice: keep one of them",
            "6:3: networks.\"é\": the name \"é\" has 'é': use letters from a to z, digits, `_`, `-` and `.`",
            "6:18: networks.\"é\".prefixes[0]: 192.0.4.0/33 is longer than an address, which has 32 bits: write /32 or less",
        ],
    ),
    (
        "networks:\n  a:\n    prefixes: [192.0.2.7/24, ten, 10, 2001:db8::/129, [x], null]",
        &[
            "3:16: networks.a.prefixes[0]: 192.0.2.7/24 is an address within a prefix: write 192.0.2.0/24 for the prefix, or \
             192.0.2.7 for the address alone",
            "3:30: networks.a.prefixes[1]: \"ten\" is not an IP address, and not a prefix such as 192.0.2.0/24 or \
             2001:db8::/32",
            "3:35: networks.a.prefixes[2]: expected a prefix such as 192.0.2.0/24, found the number 10",
            "3:39: networks.a.prefixes[3]: 2001:db8::/129 is longer than an address, which has 128 bits: write /128 or less",
            "3:55: networks.a.prefixes[4]: expected a prefix such as 192.0.2.0/24, found the list [..]",
            "3:60: networks.a.prefixes[5]: expected a prefix such as 192.0.2.0/24, found nothing",
        ],
    ),
    (
        "networks:\n  a: {prefixes: [192.0.2.0/24, 192.0.2.1, 192.0.2.1/32, \"::/0\"]}\n  b: {prefixes: [192.0.2.0/25, \
         192.0.2.1, '::ffff:192.0.2.0/120']}\n  c: {prefixes: [0::/0, 192.0.2.1]}",
        &[
            "3:32: networks.b.prefixes[1]: 192.0.2.1/32 is in the network a already (networks.a.prefixes[1]): remove one of \
             them",
            "4:18: networks.c.prefixes[0]: ::/0 is in the network a already (networks.a.prefixes[3]): remove one of them",
            "4:25: networks.c.prefixes[1]: 192.0.2.1/32 is in the network a already (networks.a.prefixes[1]): remove one of \
             them",
        ],
    ),
    // IPv6 without quotes.
    (
        "networks:\n  a:\n    prefixes:\n    - 2001:db8::\n    - ::1\n    - fe80::/10",
        &[
            "4:7: networks.a.prefixes[0]: expected a prefix such as 192.0.2.0/24, found the map {..}: an IPv6 address that \
             ends with `:` has to be in quotes",
        ],
    ),
    (
        "networks: {a: {prefixes: [2001:db8::]}}",
        &["1:36: found unexpected ':', while scanning a plain scalar at line 1 column 27 (an IPv6 address that \
             begins or ends with `:` has to be in quotes: \"2001:db8::\")"],
    ),
    (
        "networks: {a: {prefixes: [10.0.0.0/8, ::/0]}}",
        &["1:39: did not find expected node content, while parsing a flow node (an IPv6 address that \
             begins or ends with `:` has to be in quotes: \"2001:db8::\")"],
    ),
    (
        "networks: {a: {prefixes: [fe80::/10, ,]}}",
        &["1:38: did not find expected node content, while parsing a flow node"],
    ),
    // Databases.
    (
        "geo: {asn: '', country: 5, city: x}",
        &[
            "1:12: geo.asn: not a path: it is empty or contains a NUL byte",
            "1:25: geo.country: expected text, found the number 5: put it in quotes",
            "1:28: geo.city: unknown key (known here: asn, country)",
        ],
    ),
    // Sinks.
    (
        "sinks:\n  - type: stdout\n    url: x\n  - queue: 5\n    path: x\n  - tpye: http",
        &[
            "3:5: sinks[0].url: unknown key (known here: queue, addresses, type)",
            "4:5: sinks[1].type: is missing: stdout, file, http, ipfix, nats or otlp",
            "6:5: sinks[2].tpye: unknown key, did you mean type?",
        ],
    ),
    (
        "sinks: [{type: file}, {type: file, path: ''}, {type: http}, {type: kafka, topic: x}]",
        &[
            "1:9: sinks[0].path: is missing: the file to append to",
            "1:42: sinks[1].path: not a path: it is empty or contains a NUL byte",
            "1:47: sinks[2].url: is missing: the collector, such as http://collector:8080/weir",
            "1:68: sinks[3].type: expected one of stdout, file, http, ipfix, nats, otlp, found the text \"kafka\"",
        ],
    ),
    (
        "sinks: [{type: file, path: a, compress: gzip}]",
        &[
            "1:41: sinks[0].compress: only renamed files are compressed, and without `max_size` none is renamed: give it, too",
        ],
    ),
    (
        "sinks: [{type: ipfix}, {type: ipfix, address: 'a:0'}, {type: ipfix, address: 'a b'}, {type: ipfix, address: '[::x]:1'}]",
        &[
            "1:9: sinks[0].address: is missing: the collector, such as collector:4739",
            "1:47: sinks[1].address: \"a:0\" is not a host with a port, such as collector:4739 or [2001:db8::1]:4739",
            "1:78: sinks[2].address: \"a b\" is not a host with a port, such as collector:4739 or [2001:db8::1]:4739",
            "1:109: sinks[3].address: \"[::x]:1\" is not a host with a port, such as collector:4739 or [2001:db8::1]:4739",
        ],
    ),
    (
        "views: [{name: v, by: [scope]}, {name: w, by: [src_ip], measure: flows}]\nnetworks: {a: {prefixes: [192.0.2.0/24]}}\n\
         sinks:\n- {type: ipfix, address: a, view: u}\n- {type: ipfix, address: b, view: v}\n- {type: ipfix, address: c, view: w}\n\
         - {type: ipfix, address: '::1'}\n- {type: ipfix, address: '[::1]:4739'}",
        &[
            "4:3: sinks[0]: there is no view \"u\" (known here: flows, v, w)",
            "5:3: sinks[1]: the view v groups by scope, for which IPFIX has no element: take a view without it",
            "6:3: sinks[2]: the view w counts no bytes and packets, and flow records have these",
            "8:3: sinks[4]: sends to the same place as sinks[3]",
        ],
    ),
    (
        "standard_views: [services]\nsinks: [{type: ipfix, address: a}, {type: ipfix, address: b, view: services}]",
        &[
            "2:9: sinks[0]: the standard view flows is switched off: switch it on, or name another view",
            "2:36: sinks[1]: of the standard views only flows can be sent: make a view of your own like services",
        ],
    ),
    (
        "sinks: [{type: stdout}, {type: stdout}, {type: file, path: a}, {type: file, path: b}, {type: file, path: a}]",
        &["1:25: sinks[1]: sends to the same place as sinks[0]", "1:87: sinks[4]: sends to the same place as sinks[2]"],
    ),
    (
        "sinks:\n- {type: http, url: 'ftp://a'}\n- {type: http, url: collector}\n- {type: http, url: 'http://a b'}\n\
         - {type: http, url: 'http://:80/'}\n- {type: http, url: 'http://a:99999'}\n- {type: http, url: /weir}",
        &[
            "2:21: sinks[0].url: a URL begins with http:// or https://",
            "3:21: sinks[1].url: a URL begins with http:// or https://",
            "4:21: sinks[2].url: not a URL: invalid uri character",
            "5:21: sinks[3].url: the URL has no host",
            "6:21: sinks[4].url: the port of the URL is not from 1 to 65535",
            "7:21: sinks[5].url: a URL begins with http:// or https://",
        ],
    ),
    (
        "sinks:\n- type: http\n  url: http://a\n  headers:\n    a b: x\n    Content-Type: text/plain\n    X-A: 1\n    \
         X-B: one\n    x-b: two\n    X-C: |\n      line\n",
        &[
            "5:5: sinks[0].headers.\"a b\": not the name of an HTTP header: use letters, digits and dashes",
            "6:5: sinks[0].headers.Content-Type: weir sets this header itself",
            "7:10: sinks[0].headers.X-A: expected text, found a number: put it in quotes",
            "9:5: sinks[0].headers.x-b: given twice: keep one of them",
            "10:10: sinks[0].headers.X-C: contains a line break or another character that HTTP does not allow in a header",
        ],
    ),
    // The key.
    ("hash_key: 0123456789abcdef", &["1:11: hash_key: expected 32 hex digits, found 16"]),
    ("hash_key: correct horse", &["1:11: hash_key: expected 32 hex digits, found 13 characters, not all hex digits"]),
    (
        "hash_key: 12345678901234567890123456789012",
        &["1:11: hash_key: expected text, found a number: put it in quotes"],
    ),
    ("hash_key: {}", &["1:11: hash_key.file: is missing: the path of a file with 32 hex digits"]),
    // Settings that contradict each other.
    (
        "seen_flows:\n  generation: 10s\nreport:\n  interval: 30s",
        &["2:15: seen_flows.generation: 10s is shorter than report.interval, 30s"],
    ),
    (
        "report:\n  interval: 1h",
        &["2:13: report.interval: 1h is longer than seen_flows.generation, 5m by default: set that to 1h or more"],
    ),
    (
        "report: {interval: 1h}\nseen_flows: {generation: 5x}",
        &["2:26: seen_flows.generation: expected a duration such as 10s, found the text \"5x\""],
    ),
    // Places: quoted keys, flow and block style, several lines, aliases, other line ends, wide characters.
    (
        "\"report\" :\n\n    # why\n    'interval':\n      \"200ms\"",
        &["5:7: report.interval: 200ms is below the minimum of 1s"],
    ),
    (
        "report: {\n  top:\n    0,\n  interval:\n10x}",
        &[
            "3:5: report.top: 0 is below the minimum of 1",
            "5:1: report.interval: expected a duration such as 10s, found the text \"10x\"",
        ],
    ),
    (
        "report:\n  interval: >-\n    200ms\n  top: 0",
        &["2:13: report.interval: 200ms is below the minimum of 1s", "4:8: report.top: 0 is below the minimum of 1"],
    ),
    ("report: {\r\n  interval: 200ms\r\n}\r\n", &["2:13: report.interval: 200ms is below the minimum of 1s"]),
    ("\u{feff}observer: {site: \"日本\", naame: 1}", &["1:24: observer.naame: unknown key, did you mean name?"]),
    (
        "seen_flows: {generation: &short 5s}\nreport: {interval: 500ms}\ndatapath: {ring: *short}",
        &[
            "1:26: seen_flows.generation: 5s is below the minimum of 10s",
            "1:26: datapath.ring: expected a size such as 1MiB, found the text \"5s\" (units: B, KiB, MiB, GiB)",
            "2:20: report.interval: 500ms is below the minimum of 1s",
        ],
    ),
    // No YAML, or not one document.
    ("report:\n  top: 5\n interval: 10s", &["3:2: did not find expected key, while parsing a block mapping"]),
    (
        "report: {top: 5\nsinks: []",
        &["2:6: did not find expected ',' or '}', while parsing a flow mapping at line 1 column 9"],
    ),
    (
        "report:\n\ttop: 5",
        &[
            "2:1: found character that cannot start any token, while scanning for the next token (there is a tab before it: \
         YAML indents with spaces)",
        ],
    ),
    ("report: *defaults", &["1:9: unknown anchor"]),
    (
        "report: {top: 5}\n---\nreport: {top: 6}",
        &["3:1: a second YAML document starts here, but a configuration is only one: remove the `---` before it"],
    ),
    ("report:\n  top: 5 \u{7}", &["2:10: the control character '\\u{7}' is not allowed"]),
];

#[test]
fn mistakes_have_their_place_and_words() {
    for (text, expected) in MISTAKES {
        assert_eq!(mistakes(text), *expected, "\n{text}");
    }
}

#[test]
fn all_mistakes_at_once() {
    let text = r#"# A bad day.
observer: {"nam": edge-1, site: [fra1]}
interfaces:
  - eth0
  - {name: wan 0, mode: nativ,
     speed: 10g}
report:
  interval: 200ms
  top: 1000
reprot:
  top: 5
sinks:
  - type: http
    url:
      ftp://collector
    "timeout": 1h
    headers:
      Authorization: [Bearer, x]
"#;
    let shown = parse(text).unwrap_err().to_string();
    assert_eq!(
        shown,
        r#"weir.yaml:2:12: observer.nam: unknown key, did you mean name?
weir.yaml:2:33: observer.site: expected text, found the list [..]
weir.yaml:5:12: interfaces[1].name: "wan 0" cannot be the name of an interface: it has a '/', a ':' or white space, or is '.' or '..'
weir.yaml:5:25: interfaces[1].mode: expected one of auto, native, generic, tcx, tc, afpacket, found the text "nativ", did you mean native?
weir.yaml:6:6: interfaces[1].speed: unknown key (known here: name, mode, direction, feeds)
weir.yaml:8:13: report.interval: 200ms is below the minimum of 1s
weir.yaml:9:8: report.top: 1000 is above the maximum of 100
weir.yaml:10:1: reprot: unknown key, did you mean report?
weir.yaml:15:7: sinks[0].url: a URL begins with http:// or https://
weir.yaml:16:16: sinks[0].timeout: 1h is above the maximum of 1m
weir.yaml:18:22: sinks[0].headers.Authorization: expected text, found a list
11 mistakes: the weir.yaml that comes with weir explains every setting; `weir check --config FILE` checks a file without starting weir"#
    );
}

#[test]
fn mistakes_can_be_used_by_programs() {
    let mistakes = parse("report:\n  top: 0").unwrap_err();
    assert_eq!(mistakes.file(), "weir.yaml");
    let place = Some(Place { line: 2, column: 8 });
    let message = "0 is below the minimum of 1".to_owned();
    assert_eq!(mistakes.list(), [Mistake { place, path: "report.top".to_owned(), message }]);
}

#[test]
fn the_default_route_stands_in_the_place_of_a_name() {
    let interfaces = |text: &str| parse(&format!("interfaces: [{text}]")).unwrap().interfaces;
    let [short, long] =
        ["default route", "{name: default route, direction: both, mode: tcx, feeds: none}"].map(interfaces);
    assert!(short[0].is_default_route() && !short[0].is_named() && !short[0].is_pattern());
    assert_eq!((long[0].mode, long[0].direction, long[0].feeds), (Mode::Tcx, Direction::Both, Some(Feeds::None)));
    assert_eq!((slots(&short), slots(&long), slots(&interfaces("default route, eth0"))), (4, 8, 5));
    assert_eq!(slots(&interfaces("default route, \"e*\"")), 256);
    assert!(short[0].covers("eth0", true) && !short[0].covers("eth0", false));
    assert!(mistakes("interfaces: [default route, default route]")[0].contains("listed already"));
    assert!(mistakes("interfaces: [default  route]")[0].contains("white space"));
    assert!(mistakes("views: [{name: v, match: {interface: default route}, by: [dst_ip]}]")[0].contains("white space"));
    let names = (0..252).map(|i| format!("eth{i}")).collect::<Vec<_>>().join(", ");
    assert!(mistakes(&format!("interfaces: [default route, {names}]"))[0].contains("256 directions"));
}

#[test]
fn lists_have_limits() {
    let names = |count: usize| (0..count).map(|i| format!("eth{i}")).collect::<Vec<_>>().join(", ");
    assert_eq!(parse(&format!("interfaces: [{}]", names(255))).unwrap().interfaces.len(), limits::INTERFACES_MAX);
    assert_eq!(
        mistakes(&format!("interfaces: [{}]", names(256))),
        ["1:13: interfaces: 256 items are more than the 255 allowed"]
    );
    let both =
        |count: usize| (0..count).map(|i| format!("{{name: e{i}, direction: both}}")).collect::<Vec<_>>().join(", ");
    assert_eq!(parse(&format!("interfaces: [{}]", both(127))).unwrap().interfaces.len(), limits::INTERFACES_MAX / 2);
    assert_eq!(
        mistakes(&format!("interfaces: [{}]", both(128))),
        [
            "1:13: interfaces: 256 directions of interfaces are more than the 255 allowed (`direction: both` counts twice, `default route` as 4 interfaces)"
        ]
    );

    let files = |count: usize| (0..count).map(|i| format!("- {{type: file, path: f{i}}}\n")).collect::<String>();
    assert_eq!(parse(&format!("sinks:\n{}", files(16))).unwrap().sinks.len(), limits::SINKS_MAX);
    assert_eq!(mistakes(&format!("sinks:\n{}", files(17))), ["2:1: sinks: 17 items are more than the 16 allowed"]);

    let headers = (0..33).map(|i| format!("x-{i}: a")).collect::<Vec<_>>().join(", ");
    assert_eq!(
        mistakes(&format!("sinks: [{{type: http, url: 'http://a', headers: {{{headers}}}}}]")),
        ["1:48: sinks[0].headers: 33 entries are more than the 32 allowed"]
    );
}

#[test]
fn two_sinks_never_have_one_spool() {
    let of = |settings: &str| format!("{{type: http, url: 'http://a/', {settings}}}");
    let keys = |sinks: &[String]| {
        let config = parse(&format!("sinks: [{}]", sinks.join(", "))).unwrap();
        config.sinks.iter().map(|sink| sink.target.spool_key()).collect::<Vec<_>>()
    };
    for (settings, known) in [
        (["headers: {X-T: one}", "headers: {X-T: two}"], ["http://a/ x-t=one", "http://a/ x-t=two"]),
        (["token_file: /one", "token_file: /two"], ["http://a/ token_file=/one", "http://a/ token_file=/two"]),
        (["header_files: {X-T: /1}", "header_files: {X-K: /1}"], ["http://a/ x-t=/1", "http://a/ x-k=/1"]),
    ] {
        let [one, two] = settings.map(of);
        let known = known.map(|key| Some(key.to_owned()));
        assert_eq!(keys(&[one, two.clone()]), known);
        assert_eq!(keys(&[two]), known[1..], "whoever else there was");
    }
    // A credential changes, so it is in no name. Whose reports wait could not be told of two that differ in it alone.
    let [one, two] = ["headers: {Authorization: one}", "headers: {Authorization: two}"].map(of);
    assert_eq!(keys(slice::from_ref(&one)), keys(slice::from_ref(&two)));
    assert_eq!(
        mistakes(&format!("sinks:\n- {one}\n- {{type: stdout}}\n- {two}")),
        ["4:3: sinks[2]: write each secret into a file of its own (`token_file` or `header_files`): only secrets in \
             `headers` tell it from sinks[0]"]
    );
}

#[test]
fn two_sinks_never_write_one_file() {
    let of = |sinks: &str| mistakes(&format!("sinks:\n{sinks}"));
    let rotated = "- {type: file, path: /nowhere/r, max_size: 1MiB, keep: 2}\n";
    for (first, second, why) in [
        ("- {type: file, path: /nowhere/r}\n", "/nowhere/a/../r", "sends to the same place as sinks[0]"),
        ("- {type: file, path: r}\n", "./r", "sends to the same place as sinks[0]"),
        (rotated, "/nowhere/r.2", "/nowhere/r.2 is where older reports go of sinks[0]"),
        (rotated, "/nowhere/./r.1", "/nowhere/r.1 is where older reports go of sinks[0]"),
    ] {
        let found = of(&format!("{first}- {{type: file, path: {second}}}\n"));
        assert_eq!(found, [format!("3:3: sinks[1]: {why}")]);
    }
    let found = of(&format!("- {{type: file, path: /nowhere/r.1}}\n{rotated}"));
    assert_eq!(found, ["3:3: sinks[1]: its older reports go to /nowhere/r.1, which is the file of sinks[0]"]);
    for other in ["/nowhere/r.3", "/nowhere/r.10", "/elsewhere/r.1", "/nowhere/r.1x"] {
        let text = format!("sinks:\n{rotated}- {{type: file, path: {other}}}\n");
        assert!(parse(&text).is_ok(), "{other}: {:?}", mistakes(&text));
    }
    // Without `max_size` nothing is renamed.
    assert!(parse("sinks: [{type: file, path: r}, {type: file, path: r.1}]").is_ok());
}

#[test]
fn many_mistakes_are_counted() {
    let text = (0..250).map(|i| format!("key{i}: 1\n")).collect::<String>();
    let mistakes = parse(&text).unwrap_err();
    assert_eq!(mistakes.list().len(), MISTAKES_MAX);
    assert!(mistakes.to_string().contains("\n250 mistakes, of which the first 100 are listed: "));
}

#[test]
fn secrets_are_never_shown() {
    const SECRET: &str = "5ec2e7";
    let config = parse(
        "hash_key: '5ec2e75ec2e75ec2e75ec2e75ec2e700'\n\
         sinks: [{type: http, url: 'http://a', headers: {Authorization: Bearer 5ec2e7, X-Tenant: 5ec2e7x}}]\n\
         alerts: {rules: [{name: a, when: lost > 0}], webhook: {url: 'http://a/5ec2e7?x=5ec2e7', headers: {X-Key: 5ec2e7}}}",
    )
    .unwrap();
    assert_eq!(config.hash_key, HashKey::Given(Key([0x5ec2_e75e_c2e7_5ec2, 0xe75e_c2e7_5ec2_e700])));
    let Target::Http(http) = &config.sinks[0].target else { panic!("not the http sink") };
    let Http { headers, .. } = &**http;
    assert_eq!(headers[0].1, "Bearer 5ec2e7");

    let printed = config.to_yaml();
    assert!(printed.contains("hash_key: <set>") && printed.contains("authorization: '***'"), "{printed}");
    let hex_words = [0x5ec2_e75e_c2e7_5ec2_u64, 0xe75e_c2e7_5ec2_e700].map(|word| word.to_string());
    for shown in [printed, format!("{config:?}"), format!("{config:#?}")] {
        assert!(!shown.contains(SECRET) && !hex_words.iter().any(|word| shown.contains(word)), "{shown}");
    }

    let slips = [
        "hash_key: 5ec2e7",
        "hash_key: [5ec2e7]",
        "hash_key: {file: [5ec2e7]}",
        "sinks: [{type: http, url: 'http://me:5ec2e7@a'}]",
        "sinks: [{type: http, url: '5ec2e7 @a'}]",
        "sinks: [{type: http, url: 'http://a', headers: Bearer 5ec2e7}]",
        "sinks: [{type: http, url: 'http://a', headers: {Authorization: {Bearer: 5ec2e7}}}]",
        "sinks: [{type: http, url: 'http://a', headers: {Authorization: \"5ec2e7\\n\"}}]",
        "sinks: [{type: http, url: 'http://a', headers: {Host name: 5ec2e7}}]",
        "alerts: {webhook: {url: 'http://me:5ec2e7@a'}, rules: [{name: a, when: lost > 0}]}",
        "alerts: {webhook: {url: 'ftp://a/5ec2e7'}, rules: [{name: a, when: lost > 0}]}",
        "alerts: {webhook: {url: 'http://a', headers: {X-Key: [5ec2e7]}}, rules: [{name: a, when: lost > 0}]}",
    ];
    for text in slips {
        let mistakes = parse(text).expect_err(text);
        assert!(!mistakes.to_string().contains(SECRET) && !format!("{mistakes:?}").contains(SECRET), "{mistakes}");
    }
}

#[test]
fn a_file_with_a_secret_is_refused_where_every_user_may_read_it() {
    let read = |text: &str, mode: u32| {
        let path = file(&format!("mode-{mode:o}"), text.as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let read = Config::read(&path);
        fs::remove_file(&path).unwrap();
        read.map_err(|mistakes| mistakes.to_string().replace(&path.display().to_string(), "F"))
    };
    let sinks = "sinks: [{type: stdout}, {type: http, url: 'http://a', headers: {X-Tenant: b, X-Api-Key: 5ec2e7}}]";
    let webhook = "alerts: {rules: [{name: a, when: lost > 0}], webhook: {url: 'https://a/5ec2e7'}}";
    let with_key =
        "alerts: {rules: [{name: a, when: lost > 0}], webhook: {url: 'https://a', headers: {X-Api-Key: 5ec2e7}}}";
    for (text, setting) in [
        ("hash_key: '5ec2e75ec2e75ec2e75ec2e75ec2e700'", "hash_key"),
        (sinks, "sinks[1].headers.x-api-key"),
        (webhook, "alerts.webhook.url"),
        (with_key, "alerts.webhook.headers.x-api-key"),
    ] {
        for mode in [0o600, 0o640] {
            assert!(read(text, mode).is_ok(), "{setting}, {mode:o}");
        }
        for mode in [0o644, 0o604, 0o666] {
            let message = read(text, mode).unwrap_err();
            let reason = format!(
                "F: {setting}: F holds a secret, but every user of this machine may open it (mode {mode:04o}): \
                 run `chmod o= F`\n1 mistake: "
            );
            assert!(message.starts_with(&reason) && !message.contains("5ec2e7"), "{message}");
        }
    }
    for text in [
        "",
        "hash_key: {file: /etc/weir/hash.key}",
        "sinks: [{type: http, url: 'http://a', headers: {X-Tenant: b}}]",
        "alerts: {rules: [{name: a, when: lost > 0}], webhook: {url: 'https://a/'}}",
    ] {
        assert!(read(text, 0o644).is_ok(), "{text}");
    }
}

#[test]
fn bombs_are_refused() {
    let laughs: String = (1..40)
        .map(|i| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(",")))
        .fold("a0: &a0 [x, x, x]\n".to_owned(), |text, line| text + &line);
    let wide = format!("a: &a [{}]\nb: [{}]", "x,".repeat(20_000), "*a,".repeat(20_000));
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(60_000), "*a,".repeat(20_000));
    for text in [laughs, wide, long] {
        let found = mistakes(&text);
        assert!(
            found.len() == 1 && found[0].contains("the aliases (*name) before this place repeat too much"),
            "{found:?}"
        );
    }
    // Few values that are many: the parser counts the aliases, and does not tell where.
    let few = format!("a: &a []\nb: &b [{0}]\nc: &c [{1}]\nd: [{1}]", ["*a"; 30].join(","), ["*b"; 30].join(","));
    let few = few.replace("d: [*b", "d: [*c").replace(",*b,*b]", ",*c,*c,*c,*c,*c]");
    let found = mistakes(&few);
    assert!(found.len() == 1 && found[0].contains("(*name) before this place repeat too much"), "{found:?}");
    assert!(found[0].starts_with(|c: char| c.is_ascii_digit()), "a place: {found:?}");
    let found = mistakes(&"a: b\n".repeat(FILE_MAX / 5 + 1));
    assert_eq!(found, [" longer than 128KiB, the limit for a configuration"]);
    assert_eq!(parse_bytes("128KiB"), Some(FILE_MAX as u64));
}

#[test]
fn what_is_nested_too_deeply_is_refused_where_it_gets_too_deep() {
    let too_deep = " nested too deeply: 32 lists and maps around this one are the most that are allowed";
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(mistakes(&nested(33)), [format!("1:33:{too_deep}")]);
    assert!(!mistakes(&nested(32))[0].contains("nested"), "{:?}", mistakes(&nested(32)));
    // The parser alone would take minutes for some of these. Where the rest of a text is broken, depth is still told.
    for (text, place) in [
        ("[".repeat(FILE_MAX), "1:33:"),
        ("{a: ".repeat(FILE_MAX / 4), "1:129:"),
        ("{? ".repeat(FILE_MAX / 3), "1:97:"),
        ("{a: \n".repeat(FILE_MAX / 5), "33:1:"),
        ("- ".repeat(FILE_MAX / 2), "1:65:"),
        (format!("a: [{}{}", "{},".repeat(20_000), "{a: ".repeat(16_000)), "1:60125:"),
        (format!("a: !b {}", "{a: ".repeat(30_000)), "1:131:"),
        ("a: &a [*a]".to_owned(), "1:4:"),
    ] {
        let found = mistakes(&text);
        assert_eq!(found, [format!("{place}{too_deep}")], "{}", &text[..10]);
    }
    // Many brackets that stand beside each other are no reason.
    assert_eq!(mistakes(&format!("observer: [{}]", "[{}],".repeat(20_000))).len(), 1);
    let second = format!("--- {{}}\n--- {}", "{a: ".repeat(30_000));
    assert!(mistakes(&second)[0].starts_with("2:5: a second YAML document"), "{:?}", mistakes(&second));
}

#[test]
fn of_a_very_long_file_fewer_mistakes_are_listed() {
    let text = "a,".repeat(FILE_MAX / 2 - 1);
    let mistakes = parse(&format!("{{{text}}}")).unwrap_err();
    assert_eq!(mistakes.list().len(), limits::LOCATED_MAX / FILE_MAX);
    assert!(mistakes.to_string().contains(", of which the first 16 are listed: "));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    assert_eq!(parse("\u{feff}report: {top: 3}").unwrap().report.top, 3);
    assert_eq!(parse("\u{feff}").unwrap(), Config::default());
    assert_eq!(mistakes("\u{feff}report: {top: 0}"), ["1:15: report.top: 0 is below the minimum of 1"]);
    assert_eq!(mistakes("\u{feff}reprt: {}"), ["1:1: reprt: unknown key, did you mean report?"]);
    assert!(mistakes("\u{feff}a: [")[0].starts_with("1:"), "{:?}", mistakes("\u{feff}a: ["));
}

#[test]
fn a_file_of_two_bytes_a_character_says_so() {
    let path = file("utf16", b"\xff\xfer\0e\0p\0");
    let found = Config::read(&path).unwrap_err().to_string();
    fs::remove_file(&path).unwrap();
    assert!(found.contains(":1:1: this is UTF-16 text: save the file as UTF-8\n"), "{found}");
}

#[test]
fn unreadable_files_say_why() {
    let advice = "\n1 mistake: mend the file, or name another one when weir is started (--config FILE)";
    let shown = |path: &Path| Config::read(path).unwrap_err().to_string().replace(&path.display().to_string(), "F");

    let reason = "F: cannot read the configuration: No such file or directory (os error 2)";
    assert_eq!(shown(Path::new("/nowhere/weir.yaml")), format!("{reason}{advice}"));
    let reason = "F: cannot read the configuration: Is a directory (os error 21)";
    assert_eq!(shown(&std::env::temp_dir()), format!("{reason}{advice}"));

    let latin1 = file("latin1", b"report: {}\n# caf\xe9\n");
    let endless = file("endless", "# \u{e9}\n".repeat(FILE_MAX).as_bytes());
    let good = file("good", b"report: {top: 3}");
    let [not_text, too_long, read] =
        [shown(&latin1), shown(&endless), Config::read(&good).unwrap().report.top.to_string()];
    for path in [latin1, endless, good] {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(not_text, format!("F:2:6: the byte 0xe9 is not UTF-8 text{advice}"));
    assert_eq!(too_long, format!("F: longer than 128KiB, the limit for a configuration{advice}"));
    assert_eq!(read, "3");
}

#[test]
fn damaged_files_never_panic() {
    const ROUNDS: u64 = 10_000;
    const NASTY: &[u8] = b":-?[]{},&*!|>'\"%@`#\t\n\r 0\\~<\xff\xc3\0";
    let texts = [SHIPPED.as_bytes(), EVERYTHING.as_bytes()];
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(state) % below as u64) as usize
    };
    let mut refused = 0;
    for round in 0..ROUNDS {
        let mut bytes = texts[round as usize % texts.len()].to_vec();
        for _ in 0..=random(8) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = NASTY[random(NASTY.len())],
                1 => bytes.insert(at, NASTY[random(NASTY.len())]),
                2 => drop(bytes.drain(at..(at + random(20)).min(bytes.len()))),
                _ => bytes[at] ^= 1 << random(8),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        // What YAML takes for the end of a line, and the end of the text.
        let lines = 2 + text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
        match parse(&text) {
            Ok(config) => drop(config.to_yaml()),
            Err(mistakes) => {
                refused += 1;
                for Mistake { place, .. } in mistakes.list() {
                    let Place { line, column } = place.unwrap_or_else(|| panic!("no place: {mistakes}\n{text}"));
                    assert!((1..lines).contains(&line) && column >= 1, "{mistakes}\n{text}");
                }
            }
        }
    }
    assert!((ROUNDS / 4..ROUNDS).contains(&refused), "{refused} of {ROUNDS} damaged files were refused");
}

#[test]
fn packets_are_a_number_or_auto() {
    let packets = |text: &str| parse(&format!("sampling: {{packets: {text}}}")).map(|config| config.sampling.packets);
    assert_eq!(packets("1").unwrap(), Packets::OneIn(1));
    assert_eq!(packets("65535").unwrap(), Packets::OneIn(65_535));
    assert_eq!(packets("auto").unwrap(), Packets::Auto);
    for (wrong, message) in [
        ("0", "0 is below the minimum of 1"),
        ("65536", "65536 is above the maximum of 65535"),
        ("atuo", "expected a whole number or auto, found the text \"atuo\", did you mean auto?"),
        ("[]", "expected a whole number"),
    ] {
        let mistakes = packets(wrong).unwrap_err().to_string();
        assert!(mistakes.contains(message), "{wrong}: {mistakes}");
    }
}

#[test]
fn sizes_are_given_or_left_to_weir() {
    let datapath = |text: &str| parse(&format!("datapath: {{{text}}}")).map(|config| config.datapath);
    let of = |text: &str| datapath(text).map(|Datapath { cache_flows, ring, .. }| (cache_flows, ring)).unwrap();
    assert_eq!(of("cache_flows: auto, ring: auto"), (None, None));
    assert_eq!(of("cache_flows: 512, ring: 2MiB"), (Some(512), Some(2 << 20)));
    for (wrong, message) in [
        ("cache_flows: atuo", "expected a whole number or auto, found the text \"atuo\", did you mean auto?"),
        ("ring: much", "expected a size such as 1MiB or auto, found the text \"much\""),
        ("packet_ring: auto", "expected a size such as 1MiB, found the text \"auto\""),
    ] {
        let mistakes = datapath(wrong).unwrap_err().to_string();
        assert!(mistakes.contains(message), "{wrong}: {mistakes}");
    }
}

#[test]
fn a_pattern_without_quotes_is_no_alias() {
    for text in ["interfaces: [*]", "interfaces: [eth0, *, lo]"] {
        let found = &mistakes(text)[0];
        assert!(found.starts_with("1:") && found.contains("in quotes: \"*\""), "{found}");
    }
}

/// A view, and the mistake in it: where, and what its message has to say.
const WRONG_VIEWS: &[(&str, &str, &str)] = &[
    ("web", "1:9: views[0]", "expected a map such as {name: web"),
    ("{by: [src_ip]}", "1:9: views[0].name", "is missing: what reports call this view"),
    ("{name: ''}", "1:16: views[0].name", "1 to 64 letters"),
    ("{name: a b}", "1:16: views[0].name", "\"a b\" is no name"),
    ("{name: 5}", "1:16: views[0].name", "put it in quotes"),
    ("{name: w, by: [srcip]}", "1:24: views[0].by[0]", "did you mean src_ip?"),
    ("{name: w, by: [source]}", "1:24: views[0].by[0]", "there is no field \"source\""),
    ("{name: w, by: [5]}", "1:24: views[0].by[0]", "expected text"),
    ("{name: w, by: {src_ip: 24}}", "1:23: views[0].by", "expected text"),
    ("{name: w, by: [src_ip, src_ip]}", "1:32: views[0].by[1]", "src_ip is there twice"),
    ("{name: w, by: [flow, src_port]}", "1:30: views[0].by[1]", "src_port is there twice"),
    ("{name: w, by: [src_ip/33]}", "1:24: views[0].by[0]", "expected 0 to 32"),
    ("{name: w, by: [src_ip/24/129]}", "1:24: views[0].by[0]", "expected 0 to 128"),
    ("{name: w, by: [src_ip/24/48/8]}", "1:24: views[0].by[0]", "more than two lengths"),
    ("{name: w, by: [src_ip/x]}", "1:24: views[0].by[0]", "is no length of an IPv4 prefix"),
    ("{name: w, by: [proto/8]}", "1:24: views[0].by[0]", "proto is no address: it has no length"),
    ("{name: w, by: [host, src_ip]}", "1:23: views[0].by", "`host` is either address"),
    ("{name: w, by: [src_ip, dst_ip, src_ip/24]}", "1:23: views[0].by", "at most two addresses"),
    (
        "{name: w, by: [src_port, dst_port, port, vlan, proto]}",
        "1:23: views[0].by",
        "these fields take 68 bits, and a key has room for 63",
    ),
    ("{name: w, measure: byte}", "1:28: views[0].measure", "did you mean bytes?"),
    ("{name: w, measure: least}", "1:28: views[0].measure", "cannot be answered"),
    ("{name: w, measure: quantiles}", "1:28: views[0].measure", "records hold sums"),
    ("{name: w, measure: [bytes]}", "1:28: views[0].measure", "found the list"),
    ("{name: w, measure: {}}", "1:28: views[0].measure.distinct", "is missing"),
    ("{name: w, measure: {distinct: []}}", "1:39: views[0].measure.distinct", "names no field"),
    ("{name: w, measure: {distinct: dstip}}", "1:39: views[0].measure.distinct", "did you mean dst_ip?"),
    ("{name: w, measure: {distinct: host}}", "1:39: views[0].measure.distinct", "two addresses of each record"),
    ("{name: w, measure: {distict: dst_ip}}", "1:29: views[0].measure.distict", "did you mean distinct?"),
    ("{name: w, by: [src_ip], measure: {distinct: src_ip}}", "1:23: views[0].by", "says nothing"),
    ("{name: w, by: flow, measure: flows}", "1:23: views[0].by", "each row is one flow"),
    ("{name: w, by: flow, measure: new_flows}", "1:23: views[0].by", "each row is one flow"),
    ("{name: w, by: [src_ip], entropy: maybe}", "1:42: views[0].entropy", "true or false"),
    ("{name: w, by: [src_ip], measure: flows, entropy: true}", "1:58: views[0].entropy", "bytes or packets"),
    ("{name: w, entropy: true}", "1:28: views[0].entropy", "there is one key"),
    ("{name: w, by: [src_ip], per: interface, entropy: true}", "1:58: views[0].entropy", "leave `per` out"),
    ("{name: w, by: [host], entropy: true}", "1:40: views[0].entropy", "counts twice"),
    ("{name: w, measure: newflows}", "1:28: views[0].measure", "did you mean new_flows?"),
    ("{name: w, by: [vlan], measure: new_flows}", "1:23: views[0].by", "may differ in vlan"),
    ("{name: w, by: [direction], measure: new_flows}", "1:23: views[0].by", "may differ in direction"),
    ("{name: w, match: {tcp_flags: syn}, measure: new_flows}", "1:26: views[0].match", "may differ in tcp_flags"),
    (
        "{name: w, match: {not: {interface: eth0}}, measure: new_flows}",
        "1:26: views[0].match",
        "may differ in interface",
    ),
    ("{name: w, measure: new_flows, per: interface}", "1:44: views[0].per", "new once"),
    ("{name: w, top: 0}", "1:24: views[0].top", "below the minimum of 1"),
    ("{name: w, top: 101}", "1:24: views[0].top", "above the maximum of 100"),
    ("{name: w, top: ten}", "1:24: views[0].top", "expected a whole number"),
    ("{name: w, per: vlan}", "1:24: views[0].per", "expected one of interface"),
    ("{name: w, by: [interface], per: interface}", "1:41: views[0].per", "`by` has `interface` already"),
    ("{name: w, error: 0.5}", "1:26: views[0].error", "above the maximum"),
    ("{name: w, matc: {proto: tcp}}", "1:19: views[0].matc", "did you mean match?"),
    ("{name: w, match: tcp}", "1:26: views[0].match", "expected a map such as"),
    ("{name: w, match: {dst_prt: 80}}", "1:27: views[0].match.dst_prt", "did you mean dst_port?"),
    ("{name: w, match: {proto: tpc}}", "1:34: views[0].match.proto", "\"tpc\" is no protocol"),
    ("{name: w, match: {proto: 256}}", "1:34: views[0].match.proto", "\"256\" is no protocol"),
    ("{name: w, match: {proto: []}}", "1:34: views[0].match.proto", "an empty list matches nothing"),
    ("{name: w, match: {dst_port: 9000-80}}", "1:37: views[0].match.dst_port", "upside down: did you mean 80-9000?"),
    ("{name: w, match: {dst_port: 70000}}", "1:37: views[0].match.dst_port", "70000 is no port: the largest is 65535"),
    ("{name: w, match: {dst_port: [80, http]}}", "1:42: views[0].match.dst_port[1]", "\"http\" is no port"),
    ("{name: w, match: {vlan: 4096}}", "1:33: views[0].match.vlan", "4096 is no VLAN: the largest is 4095"),
    ("{name: w, match: {src_ip: 10.0.0.1/8}}", "1:35: views[0].match.src_ip", "write 10.0.0.0/8 for the prefix"),
    (
        "{name: w, match: {src_ip: 10.0.0.0/33}}",
        "1:35: views[0].match.src_ip",
        "is longer than an address, which has 32 bits",
    ),
    (
        "{name: w, match: {src_ip: example.org}}",
        "1:35: views[0].match.src_ip",
        "is not an IP address, and not a prefix",
    ),
    ("{name: w, match: {ip_version: 5}}", "1:39: views[0].match.ip_version", "\"5\" is no IP version: 4 or 6"),
    ("{name: w, match: {fragment: maybe}}", "1:37: views[0].match.fragment", "true or false"),
    ("{name: w, match: {direction: in}}", "1:38: views[0].match.direction", "expected one of ingress, egress"),
    ("{name: w, match: {interface: a/b}}", "1:38: views[0].match.interface", "cannot be the name of an interface"),
    ("{name: w, match: {dscp: 64}}", "1:33: views[0].match.dscp", "0 to 63, or a name"),
    ("{name: w, match: {ecn: 1}}", "1:32: views[0].match.ecn", "not-ect, ect0, ect1 or ce"),
    ("{name: w, match: {tcp_flags: SYN}}", "1:38: views[0].match.tcp_flags", "is no TCP flag: fin, syn"),
    ("{name: w, match: {src_net: customers}}", "1:36: views[0].match.src_net", "name some under `networks:`"),
    ("{name: w, by: [dst_net]}", "1:23: views[0].by", "dst_net needs the names of your networks"),
    ("{name: w, by: [scope]}", "1:23: views[0].by", "scope needs the names of your networks"),
    ("{name: w, by: [src_as]}", "1:23: views[0].by", "src_as needs a database: `geo: {asn: FILE}`"),
    ("{name: w, by: [dst_country]}", "1:23: views[0].by", "dst_country needs a database"),
    ("{name: w, match: {dst_as: 64496}}", "1:35: views[0].match.dst_as", "dst_as needs a database: `geo: {asn: FILE}`"),
    (
        "{name: w, match: {src_country: DE}}",
        "1:40: views[0].match.src_country",
        "needs a database: `geo: {country: FILE}`",
    ),
    ("{name: w, by: [direction], per: interface}", "1:23: views[0].by", "leave `direction` out"),
    ("{name: w, by: [directon]}", "1:24: views[0].by[0]", "did you mean direction?"),
    ("{name: w, match: {scope: inside}}", "1:34: views[0].match.scope", "is no scope: in, out, transit or internal"),
    ("{name: w, match: {not: tcp}}", "1:32: views[0].match.not", "expected a map such as"),
    ("{name: w, match: {not: {not: {}}}}", "1:33: views[0].match.not.not", "unknown key"),
    ("{name: w, match: {proto: {a: b}}}", "1:34: views[0].match.proto", "expected a single value"),
];

#[test]
fn wrong_views_are_refused_at_their_place() {
    for (view, place, message) in WRONG_VIEWS {
        let found = mistakes(&format!("views: [{view}]"));
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("{place}: ")) && found[0].contains(message),
            "{view}: expected {place}: ..{message}.., found {found:#?}"
        );
    }
    let unknown = "networks: {customers: {prefixes: [192.0.2.0/24]}}\nviews: [{name: w, match: {net: custmers}}]";
    assert_eq!(
        mistakes(unknown),
        ["2:32: views[0].match.net: there is no network \"custmers\": did you mean customers?"]
    );
    let geo = "geo: {asn: a.mmdb, country: c.mmdb}\n";
    for (view, mistake) in [
        (
            "src_as: AS",
            "2:35: views[0].match.src_as: \"AS\" is no number of an autonomous system: expected 0 to 4294967295",
        ),
        ("src_as: [AS64500-AS64496]", "2:36: views[0].match.src_as[0]: the range AS64500-AS64496 is upside down"),
        ("dst_as: 4294967296", "2:35: views[0].match.dst_as: \"4294967296\" is no number of an autonomous system"),
        (
            "src_country: [DE, Germany]",
            "2:45: views[0].match.src_country[1]: \"Germany\" is no country: expected its two",
        ),
        ("dst_contry: DE", "2:27: views[0].match.dst_contry: unknown key, did you mean dst_country?"),
    ] {
        let found = mistakes(&format!("{geo}views: [{{name: w, match: {{{view}}}}}]"));
        assert!(found.len() == 1 && found[0].starts_with(mistake), "{view}: expected {mistake}, found {found:#?}");
    }
    let twice = "views: [{name: w}, {name: w, by: [src_ip]}]";
    assert_eq!(mistakes(twice), ["1:20: views[1]: the name w is taken by views[0]"]);
    let many: Vec<_> = (0..=limits::VIEWS_MAX).map(|nth| format!("{{name: v{nth}}}")).collect();
    assert_eq!(
        mistakes(&format!("views: [{}]", many.join(", "))),
        ["1:8: views: 65 items are more than the 64 allowed"]
    );
}

/// A rule, and the mistake in it: where, and what its message has to say.
const WRONG_RULES: &[(&str, &str, &str)] = &[
    ("flood", "1:18: alerts.rules[0]", "expected a map such as {name: flood"),
    ("{when: lost > 0}", "1:18: alerts.rules[0].name", "is missing: what reports call this rule"),
    ("{name: a}", "1:18: alerts.rules[0].when", "is missing: such as sources.bytes > 1 Gbit/s"),
    ("{name: a b, when: lost > 0}", "1:25: alerts.rules[0].name", "\"a b\" is no name"),
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
    ("{name: a, when: sources.bytes < 5}", "1:34: alerts.rules[0].when", "one that has less is in no list"),
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
    ("{name: a, when: packets > 5, interface: eth0}", "1:58: alerts.rules[0].interface", "of all interfaces together"),
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
    // A rule that is wrong is one mistake, and not a webhook without rules besides.
    assert_eq!(mistakes("alerts: {rules: [{name: a, when: x > 1}], webhook: {url: 'http://a'}}").len(), 1);
    // A view that is wrong is one mistake, and not a rule about a view that is not there besides.
    assert_eq!(mistakes("views: [{name: w, by: [srcip]}]\nalerts: {rules: [{name: a, when: w.bytes > 1}]}").len(), 1);
    assert_eq!(mistakes("standard_views: [sorces]\nalerts: {rules: [{name: a, when: sources.bytes > 1}]}").len(), 1);
}

#[test]
fn views_are_written_as_they_are_read() {
    let text = "views:
- name: web
  match:
    dst_ip: [198.51.100.0/24, '2001:db8::/32']
    dst_port: ['443', 8000-8999]
    proto: [tcp]
    not:
      src_ip: [198.51.100.7]
  by: [dst_ip/24/56, interface]
  measure: packets
  top: 20
  error: 0.001
- name: scanners
  by: [src_ip]
  measure: {distinct: [dst_ip, dst_port]}
  top: 10
  per: interface
  error: 0.0005
- name: even
  by: [src_ip]
  measure: packets
  top: 10
  error: 0.0005
  entropy: true
- name: opens
  by: [src_ip]
  measure: new_flows
  top: 10
  error: 0.0005
";
    let config = parse(text).unwrap();
    let again = parse(&config.to_yaml().replace("hash_key: <set>", "hash_key: null")).unwrap();
    assert_eq!(config.views, again.views);
    let written: serde_yaml::Value = serde_yaml::from_str(&config.to_yaml()).unwrap();
    let expected: serde_yaml::Value = serde_yaml::from_str(text).unwrap();
    assert_eq!(written["views"], expected["views"]);
    assert_eq!(
        parse("views: [{name: w, by: service}]").unwrap().views[0].by,
        parse("views: [{name: w, by: [proto, port]}]").unwrap().views[0].by
    );
}

/// The mistakes of networks that read these files, which are F0, F1, ... in the text and in the mistakes.
fn with_files(text: &str, contents: &[&[u8]]) -> Result<Config, Vec<String>> {
    let text_key = contents
        .iter()
        .flat_map(|content| content.iter())
        .fold(contents.len() as u64, |key, byte| mix(key ^ u64::from(*byte)));
    let paths: Vec<PathBuf> = contents
        .iter()
        .enumerate()
        .map(|(nth, content)| file(&format!("prefixes-{text_key:x}-{nth}"), content))
        .collect();
    let name = |nth: usize| format!("F{nth}");
    let text =
        (0..paths.len()).fold(text.to_owned(), |text, nth| text.replace(&name(nth), &paths[nth].display().to_string()));
    let read = parse(&text);
    for path in &paths {
        fs::remove_file(path).unwrap();
    }
    read.map_err(|found| {
        let shown = (0..paths.len())
            .fold(found.to_string(), |shown, nth| shown.replace(&paths[nth].display().to_string(), &name(nth)));
        let (lines, _advice) = shown.rsplit_once('\n').unwrap();
        lines.lines().map(|line| line.strip_prefix("weir.yaml:").unwrap().to_owned()).collect()
    })
}

#[test]
fn prefixes_come_from_files() {
    let content =
        "\u{feff}# Scrubbed since May.\n\n  192.0.2.0/24  # a comment\r\n2001:db8::1\n\t\n192.0.2.0/24\n198.51.100.1";
    let latin1 = b"10.0.0.0/8 # caf\xe9\n".as_slice();
    let config = with_files(
        "networks: {a: {file: F0, prefixes: [::1]}, b: {file: F1}, c: {file: F2}}".replace("[::1]", "['::1']").as_str(),
        &[content.as_bytes(), latin1, b""],
    )
    .unwrap();
    let [a, b, c] = &config.networks[..] else { panic!("{:?}", config.networks) };
    let all = |network: &Network| network.all_prefixes().map(|prefix| prefix.to_string()).collect::<Vec<_>>();
    assert_eq!(all(a), ["::1/128", "192.0.2.0/24", "2001:db8::1/128", "192.0.2.0/24", "198.51.100.1/32"]);
    assert_eq!(all(b), ["10.0.0.0/8"]);
    assert_eq!(all(c), [""; 0], "a list may be empty today");

    let shown = config.to_yaml();
    let path = &a.file.as_ref().unwrap().path.display();
    assert!(shown.contains(&format!("prefixes:\n    - ::1/128\n    file: {path}\n    own: false")), "{shown}");
    assert!(!shown.contains("198.51.100.1"), "a file is shown by its path: {shown}");
}

#[test]
fn mistakes_in_files_have_their_line() {
    type Case<'c> = (&'c str, &'c [&'c [u8]], &'c [&'c str]);
    let cases: [Case<'_>; 7] = [
        (
            "networks:\n  a: {own: true, file: F0}",
            &[b"192.0.2.0/24\n# no\n192.0.2.1/24\nx # y\n\xff\n1.2.3.4 5.6.7.8\n"],
            &[
                "2:24: networks.a.file: F0:3: 192.0.2.1/24 is an address within a prefix: write 192.0.2.0/24 for the prefix, \
                 or 192.0.2.1 for the address alone",
                "2:24: networks.a.file: F0:4: \"x\" is not an IP address, and not a prefix such as 192.0.2.0/24 or \
                 2001:db8::/32",
                "2:24: networks.a.file: F0:5: the byte 0xff is not UTF-8 text",
                "2:24: networks.a.file: F0:6: \"1.2.3.4 5.6.7.8\" is more than one prefix: write each by itself, in a file \
                 one a line, and `#` before a comment",
            ],
        ),
        (
            "networks:\n  a: {file: F0}\n  b: {prefixes: [192.0.2.0/24]}\n  c: {file: F1}",
            &[b"\n192.0.2.0/24\n10.0.0.0/8", b"10.0.0.0/9\n192.0.2.0/24\n10.0.0.0/8\n10.0.0.0/8"],
            &[
                "3:18: networks.b.prefixes[0]: 192.0.2.0/24 is in the network a already (F0:2): remove one of them",
                "4:13: networks.c.file: F1:2: 192.0.2.0/24 is in the network a already (F0:2): remove one of them",
                "4:13: networks.c.file: F1:3: 10.0.0.0/8 is in the network a already (F0:3): remove one of them",
                "4:13: networks.c.file: F1:4: 10.0.0.0/8 is in the network a already (F0:3): remove one of them",
            ],
        ),
        (
            "networks: {a: {file: /nowhere/prefixes.txt}}",
            &[],
            &["1:22: networks.a.file: cannot read /nowhere/prefixes.txt: No such file or directory (os error 2)"],
        ),
        (
            "networks: {a: {file: /dev/null}, b: {file: /proc}}",
            &[],
            &[
                "1:22: networks.a.file: cannot read /dev/null: it is not a regular file",
                "1:44: networks.b.file: cannot read /proc: it is not a regular file",
            ],
        ),
        (
            "networks: {a: {file: ''}, b: {file: [x]}}",
            &[],
            &[
                "1:22: networks.a.file: not a path: it is empty or contains a NUL byte",
                "1:37: networks.b.file: expected text, found the list [..]",
            ],
        ),
        (
            "networks: {a: {file: F0}}",
            &[&[b'#'; limits::PREFIX_LINE_MAX + 1]],
            &["1:22: networks.a.file: F0:1: longer than 4096 bytes: write one prefix a line"],
        ),
        (
            "networks: {a: {file: F0}}",
            &[&[b'x', b'\n'].repeat(25)],
            &["1:22: networks.a.file: 15 more lines of F0 are wrong"],
        ),
    ];
    for (text, files, expected) in cases {
        let found = with_files(text, files).expect_err(text);
        let listed = found.len().saturating_sub(expected.len());
        assert!(listed == 0 || listed == limits::PREFIX_MISTAKES_MAX, "{found:#?}");
        assert_eq!(found[listed..], *expected, "\n{text}");
    }
}

#[test]
fn networks_have_limits() {
    let networks = |count: usize| {
        let network = |nth: usize| format!("n{nth}: {{prefixes: [10.0.{nth}.0/32]}}");
        format!("networks: {{{}}}", (0..count).map(network).collect::<Vec<_>>().join(", "))
    };
    assert_eq!(parse(&networks(255)).unwrap().networks.len(), limits::NETWORKS_MAX);
    let found = mistakes(&networks(256).replace("10.0.255.0", "10.0.1.1"));
    assert_eq!(found, ["1:11: networks: 256 entries are more than the 255 allowed"]);

    let named = |bytes: usize| parse(&format!("networks: {{{}: {{prefixes: [10.0.0.1]}}}}", "x".repeat(bytes)));
    assert!(named(64).is_ok());
    let found = named(65).unwrap_err().to_string();
    assert!(found.contains("has 65 bytes, but the name of a network 1 to 64"), "{found}");

    let lines = |count: usize| {
        (0..count as u32).map(|nth| format!("{}\n", std::net::Ipv4Addr::from_bits(nth))).collect::<String>()
    };
    let text = "networks: {a: {prefixes: [1.2.3.4]}, b: {file: F0}}";
    let full = with_files(text, &[lines(limits::PREFIXES_MAX - 1).as_bytes()]).unwrap();
    assert_eq!(full.networks[1].all_prefixes().count(), limits::PREFIXES_MAX - 1);
    assert_eq!(
        with_files(text, &[lines(limits::PREFIXES_MAX + 1).as_bytes()]).unwrap_err(),
        ["1:48: networks.b.file: F0:1000000: this is one prefix more than the 1000000 that all networks may have"]
    );
    let twice = lines(1000);
    let found =
        with_files("networks:\n  a: {file: F0}\n  b: {file: F1}", &[twice.as_bytes(), twice.as_bytes()]).unwrap_err();
    assert_eq!(found.len(), limits::PREFIX_MISTAKES_MAX + 1);
    assert_eq!(found.last().unwrap(), "3:13: networks.b.file: 990 more prefixes of this file are in other networks");
}

#[test]
#[cfg(not(feature = "otlp"))]
fn a_sink_that_this_weir_was_built_without_is_refused_with_the_way_out() {
    let refused = parse("sinks: [{type: otlp, url: 'http://collector:4318/v1/metrics', timeout: 2s}]").unwrap_err();
    let why = "1:16: sinks[0].type: this weir was built without OTLP: build it with `--features otlp`, or install the \
               Debian package";
    assert!(refused.to_string().contains(why), "{refused}");
    assert_eq!(refused.to_string().lines().filter(|line| line.contains("sinks[0]")).count(), 1, "{refused}");
}

#[test]
#[cfg(feature = "otlp")]
fn an_otlp_sink_has_the_settings_of_an_http_sink() {
    let settings = "timeout: 250ms, compress: zstd, connect_timeout: 1s, token_file: token, header_files: {X-Key: /k}, \
                    tls: {ca_file: ca, certificate_file: c, key_file: k}, proxy: 'http://proxy:3128'";
    let of = |kind: &str| {
        parse(&format!("sinks: [{{type: {kind}, url: 'http://collector:4318/v1/metrics', {settings}}}]")).unwrap()
    };
    let (otlp, http) = (of("otlp"), of("http"));
    assert_eq!(otlp.sinks[0].target.http().unwrap(), http.sinks[0].target.http().unwrap());
    assert_ne!(otlp.sinks[0].target, http.sinks[0].target);
    let spool = |config: &Config| config.sinks[0].target.spool_key();
    assert_ne!(spool(&otlp), spool(&http), "each has a spool of its own");
    assert_eq!(parse(&otlp.to_yaml()).unwrap(), otlp);
    for (url, why) in [
        ("http://collector:4318", "1:27: sinks[0].url: the URL has no path: receivers take metrics at /v1/metrics"),
        (
            "https://collector:4318/?a=b",
            "1:27: sinks[0].url: the URL has no path: receivers take metrics at /v1/metrics",
        ),
        ("http://user:s3cret@collector/v1/metrics", "1:27: sinks[0].url: a user name or password in a URL"),
        ("grpc://collector:4317", "1:27: sinks[0].url: a URL begins with http:// or https://"),
    ] {
        let refused = parse(&format!("sinks: [{{type: otlp, url: '{url}'}}]")).unwrap_err().to_string();
        assert!(refused.contains(why) && !refused.contains("s3cret"), "{refused}");
    }
    let secret = parse("sinks: [{type: otlp, url: 'http://a/b', headers: {Authorization: Bearer s3cret}}]").unwrap();
    assert_eq!(secret.secret().as_deref(), Some("sinks[0].headers.authorization"));
    assert!(!secret.to_yaml().contains("s3cret") && !format!("{secret:?}").contains("s3cret"));
    let twice =
        "sinks: [{type: otlp, url: 'http://a/b'}, {type: http, url: 'http://a/b'}, {type: otlp, url: 'http://a/b'}]";
    let refused = parse(twice).unwrap_err().to_string();
    assert!(refused.contains("sinks[2]: sends to the same place as sinks[0]"), "{refused}");
}
