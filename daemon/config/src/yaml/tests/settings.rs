//! Each setting is read, has its limits, and reads back equal after it was printed. The shipped files are correct.

use weir_common::{
    control::Feeds,
    packet::{TunnelPorts, UdpTunnel},
};

use super::*;
use crate::{
    rule::{When, catalogue::Catalogue},
    view::{Condition, FLOW, Field, Measure, Values},
    yaml::units::{show_bytes, show_duration},
};

#[test]
fn an_empty_file_is_the_default() {
    let nulls = "observer:\nreport: null\nhash_key: ~\nsinks:\ndatapath: {ring: null}";
    for text in ["", "\n\n", "# only a comment\n", "---\n", "null", "{}", "\u{feff}", "--- # empty\n...\n", nulls] {
        assert_eq!(parse(text).unwrap(), Config::default(), "{text:?}");
    }
}

#[test]
fn the_shipped_file_equals_the_default() {
    assert_eq!(parse(SHIPPED).unwrap(), Config::default());
    // That comparison does not notice a key that the shipped file leaves out.
    let [shipped, default] = [SHIPPED, &Config::default().to_yaml()].map(|text| {
        let value: serde_yaml::Value = serde_yaml::from_str(text).unwrap();
        value
    });
    assert_eq!(shipped, default, "keys and values must be the same");
}

#[test]
fn the_shipped_file_states_the_limits() {
    use std::ops::RangeInclusive;
    fn told<T>(range: RangeInclusive<T>, show: impl Fn(&T) -> String) -> String {
        format!("{} to {}", show(range.start()), show(range.end()))
    }
    let limits = [
        ("name", told(limits::NAME_BYTES, usize::to_string)),
        ("site", told(limits::NAME_BYTES, usize::to_string)),
        ("interfaces", format!("at most {}", limits::INTERFACES_MAX)),
        ("interfaces", format!("at most {}, that carries a default route", limits::DEFAULT_ROUTES_MAX)),
        ("networks", format!("at most {} networks", limits::NETWORKS_MAX)),
        ("networks", format!("{} bytes", told(limits::NETWORK_NAME_BYTES, usize::to_string))),
        ("networks", format!("at most {} prefixes", limits::PREFIXES_MAX)),
        ("networks", format!("At most {}", show_bytes(limits::PREFIX_FILE_MAX))),
        ("geo", show_bytes(limits::GEO_FILE_MAX)),
        ("interval", told(limits::INTERVAL, show_duration)),
        ("first_window", told(limits::INTERVAL, show_duration)),
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
        // The limit must be in the comment right above the key.
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
    assert_eq!(names, ["fleet.yaml", "nat.yaml", "router.yaml", "two-sinks.yaml"]);
    let [fleet, nat, router, two_sinks] = [0, 1, 2, 3].map(|i| {
        let text = fs::read_to_string(&examples[i]).unwrap();
        Config::parse(&text, names[i]).unwrap_or_else(|e| panic!("{e}"))
    });

    assert_eq!(fleet.hash_key, HashKey::File("/run/credentials/weir.service/hash.key".into()));
    assert_eq!(fleet.seen_flows.generation, Duration::from_secs(900));
    assert_eq!(
        nat.views.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(),
        ["downloads", "clients", "uploads"]
    );
    assert_eq!(router.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["eth0", "eth1"]);
    assert!(matches!(&router.sinks[..], [Sink { target: Target::Http(http), queue: Sink::QUEUE, .. }]
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

/// Every setting with a value that is not its default.
pub(super) const EVERYTHING: &str = r#"
observer: {name: edge-1, site: fra1}
interfaces: [eth0, {name: wan.100, mode: native, direction: both}, {name: ppp0, mode: generic}, {name: ppp1, mode: afpacket}, {name: "v*", mode: tcx, direction: egress}]
networks:
  customers: {prefixes: [198.51.100.0/24, 192.0.2.1, 2001:db8::/32, "::/0"], own: true}
  rest.of-it_2: {prefixes: [0.0.0.0/0]}
names: {file: names.txt, hosts: false, leases: [/var/lib/misc/dnsmasq.leases]}
geo: {asn: asn.mmdb, country: /var/lib/country.mmdb}
report: {interval: 1m, first_window: 5s, top: 25, horizons: [90m]}
estimates: {unique_error: 0.01, top_error: 1e-3, top_candidates: 2048}
new_hosts: {days: 7, hosts: 1000, learning: 1h}
seen_flows: {capacity: 50000, false_positive_rate: 0.02, generation: 1h 30m}
control: {socket: none}
prometheus: {listen: "[::1]:9469", top: 7}
web: {listen: "192.0.2.1:9470", token_file: web.token, hosts: [Weir.example.net]}
datapath: {cache_flows: 8192, ring: 262144, packet_ring: 4MiB, tunnels: inner,
           tunnel_ports: {vxlan: [9000], geneve: [4789], gtpu: []}}
addresses: full
hash_key: {file: key}
sandbox: false
sinks:
  - {type: stdout, queue: 1, addresses: prefix}
  - {type: file, path: reports.ndjson, max_size: 8MiB, keep: 2, compress: zstd, queue: 2}
  - {type: http, url: "https://[2001:db8::1]:8443/a?b=c", timeout: 250ms, compress: zstd, queue: 3, connect_timeout: 1s, send_timeout: 2s, answer_timeout: 3s, token_file: token, header_files: {X-Key: /k}, tls: {ca_file: ca, certificate_file: c, key_file: k}, proxy: "http://proxy:3128", vrf: mgmt}
  - {type: http, url: "http://collector"}
  - {type: ipfix, address: "[2001:db8::1]:9995", transport: tcp, timeout: 1s, view: web, domain: 7, vrf: mgmt}
spool: {path: /srv/spool, fsync: never, max_size: 1GiB, max_age: 72h}
sampling: {packets: auto, cpu: 0.25}
standard_views: [services, flows]
memory: 200MiB
history: {memory: 1MiB, rows: 20, sample: 500, path: none, max_age: 7d, max_size: 1GiB}
usage: {quota: 2TB, interface: wan0, day: 15}
views: [{name: web, match: {dst_port: 443}, by: [src_ip], measure: packets, top: 7, per: interface, error: 0.002}]
export: {views: [unique, flows], every: 5m, lg_k: 11, keys: 7}
alerts:
  rules:
    - {name: web, when: web.packets >= 3 kpkt/s, for: 2 windows, clear: 2000 pkt/s, interface: "v*"}
    - {name: many, when: flows.bytes > 5}
  webhook: {url: "https://alerts.example:8443", timeout: 1s, queue: 7}
"#;

#[test]
fn every_setting_is_read() {
    let interface = |name: &str, mode, direction| Interface { name: name.to_owned(), mode, direction, feeds: None };
    let expected = Config {
        found_networks: Vec::new(),
        history: Some(History {
            memory: 1 << 20,
            rows: 20,
            sample: 500,
            path: Location::Memory,
            max_age: Some(Duration::from_secs(7 * 24 * 60 * 60)),
            max_size: 1 << 30,
        }),
        usage: Some(Usage { quota: Some(2_000_000_000_000), interface: Some("wan0".into()), day: 15 }),
        export: Export {
            views: ExportViews::Named(vec!["unique".into(), "flows".into()]),
            every: Duration::from_secs(300),
            lg_k: 11,
            keys: 7,
        },
        alerts: alerts(),
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
        names: Names {
            file: Some("names.txt".into()),
            hosts: false,
            leases: vec!["/var/lib/misc/dnsmasq.leases".into()],
        },
        geo: GeoFiles { asn: Some("asn.mmdb".into()), country: Some("/var/lib/country.mmdb".into()) },
        report: Report {
            interval: Duration::from_secs(60),
            first_window: Duration::from_secs(5),
            top: 25,
            horizons: vec![Duration::from_secs(5400)],
        },
        new_hosts: Some(NewHosts { days: 7, hosts: 1000, learning: Duration::from_secs(3600) }),
        estimates: Estimates { unique_error: 0.01, top_error: 0.001, top_candidates: 2048 },
        seen_flows: SeenFlows { capacity: 50_000, false_positive_rate: 0.02, generation: Duration::from_secs(5400) },
        standard_views: vec![Standard::Flows, Standard::Services],
        views: vec![view()],
        memory: Some(200 << 20),
        control: Control { socket: None },
        spool: Spool {
            path: Location::Folder("/srv/spool".into()),
            fsync: Fsync::Never,
            max_size: 1 << 30,
            max_age: Some(Duration::from_secs(72 * 60 * 60)),
        },
        prometheus: Prometheus { listen: Some("[::1]:9469".parse().unwrap()), top: 7 },
        web: Web {
            listen: Some("192.0.2.1:9470".parse().unwrap()),
            token_file: Some("web.token".into()),
            hosts: vec!["weir.example.net".to_owned()],
        },
        datapath: Datapath {
            cache_flows: Some(8192),
            ring: Some(262_144),
            packet_ring: 4 << 20,
            tunnels: Tunnels::Inner,
            tunnel_ports: {
                let mut ports = TunnelPorts::NONE;
                ports.add(UdpTunnel::Vxlan, 9000);
                ports.add(UdpTunnel::Geneve, 4789);
                ports.add(UdpTunnel::VxlanGpe, 4790);
                ports
            },
        },
        sampling: Sampling { packets: Packets::Auto, cpu: 0.25 },
        addresses: Addresses::Full,
        hash_key: HashKey::File("key".into()),
        sandbox: false,
        sinks: sinks(),
    };
    assert_eq!(parse(EVERYTHING).unwrap(), expected);
}

/// An HTTP sink with the defaults of all other settings.
fn http(url: &'static str, timeout_ms: u64, compress: Compress) -> Target {
    let timeout = Duration::from_millis(timeout_ms);
    Target::Http(Box::new(Http {
        url: Uri::from_static(url),
        timeout,
        connect_timeout: None,
        send_timeout: None,
        answer_timeout: None,
        compress,
        format: Format::Ndjson,
        headers: Vec::new(),
        token_file: None,
        header_files: Vec::new(),
        tls: Tls::default(),
        proxy: None,
        vrf: None,
    }))
}

/// The alerts of [`EVERYTHING`].
fn alerts() -> Alerts {
    let when = |text: &str| {
        let views = parse("views: [{name: web, by: [src_ip], measure: packets, per: interface}]").unwrap().views;
        When::parse(text, &Catalogue::new(Standard::ALL, &views)).unwrap()
    };
    Alerts {
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
    }
}

/// The view of [`EVERYTHING`].
fn view() -> View {
    View {
        name: "web".into(),
        conditions: vec![Condition {
            field: Field::DstPort,
            is_negated: false,
            texts: vec!["443".into()],
            values: Values::Ranges(vec![(443, 443)]),
        }],
        by: vec![FLOW[0]],
        measure: Measure::Packets,
        top: 7,
        per_interface: true,
        error: 0.002,
        follows_top_error: false,
        has_entropy: false,
        of_hosts: false,
    }
}

/// The sinks of [`EVERYTHING`].
fn sinks() -> Vec<Sink> {
    vec![
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
                format: Format::Ndjson,
                headers: Vec::new(),
                token_file: Some("token".into()),
                header_files: vec![(HeaderName::from_static("x-key"), "/k".into())],
                tls: Tls { ca_file: Some("ca".into()), certificate_file: Some("c".into()), key_file: Some("k".into()) },
                proxy: Some(Uri::from_static("http://proxy:3128")),
                vrf: Some("mgmt".to_owned()),
            })),
            queue: 3,
            addresses: Addresses::Full,
        },
        Sink { target: http("http://collector", 5000, Compress::Gzip), queue: Sink::QUEUE, addresses: Addresses::Full },
        Sink {
            target: Target::Ipfix(Ipfix {
                address: Address { host: "2001:db8::1".into(), port: 9995 },
                transport: Transport::Tcp,
                timeout: Duration::from_secs(1),
                view: "web".into(),
                domain: 7,
                vrf: Some("mgmt".to_owned()),
            }),
            queue: Sink::QUEUE,
            addresses: Addresses::Full,
        },
    ]
}

#[test]
fn printed_configuration_reads_back() {
    for text in ["", EVERYTHING, "sinks: []", "sampling: {packets: 100}", "spool: {path: none, max_age: none}"] {
        // A URL is printed with `***` instead of its query, which may be a secret.
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
        ("report: {first_window: %}", ["1s", "1h"], ["999ms", "3601s"]),
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
        // An interval that is longer than the generation would be another mistake.
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

#[test]
fn the_default_route_is_accepted_in_place_of_a_name() {
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
fn sizes_are_configured_or_automatic() {
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
fn a_pattern_without_quotes_gets_a_hint() {
    for text in ["interfaces: [*]", "interfaces: [eth0, *, lo]"] {
        let found = &mistakes(text)[0];
        assert!(found.starts_with("1:") && found.contains("in quotes: \"*\""), "{found}");
    }
}

#[test]
fn tunnels_have_their_configured_ports() {
    let ports = |text: &str| {
        parse(&format!("datapath: {{tunnel_ports: {{{text}}}}}")).map(|config| config.datapath.tunnel_ports)
    };
    assert_eq!(ports("").unwrap(), TunnelPorts::USUAL);
    for (text, port, kind) in [
        ("", 8472, Some(UdpTunnel::Vxlan)),
        ("", 0, None),
        ("vxlan: [9000]", 9000, Some(UdpTunnel::Vxlan)),
        ("vxlan: [9000]", 4789, None),
        ("vxlan: [9000]", 6081, Some(UdpTunnel::Geneve)),
        ("vxlan: []", 8472, None),
        ("gtpu: [8472]", 8472, Some(UdpTunnel::GtpU)),
        ("gtpu: [8472]", 4789, Some(UdpTunnel::Vxlan)),
        ("vxlan: [1, 2, 3, 4, 5, 6, 7, 8]", 8, Some(UdpTunnel::Vxlan)),
        ("vxlan_gpe: [65535]", 65_535, Some(UdpTunnel::VxlanGpe)),
    ] {
        assert_eq!(ports(text).unwrap().kind(port), kind, "{text}");
    }
    for (wrong, message) in [
        ("vxlan: 4789", "tunnel_ports.vxlan: expected a list such as [4789, 8472], found"),
        ("vxlan: [0]", "tunnel_ports.vxlan[0]: 0 is below the minimum of 1"),
        ("vxlan: [65536]", "tunnel_ports.vxlan[0]: 65536 is above the maximum of 65535"),
        ("vxlan: [dns]", "expected a whole number"),
        ("vxlan: [4789, 4789]", "tunnel_ports.vxlan[1]: 4789 is listed already, as a port of vxlan"),
        ("vxlan: [9000], geneve: [9000]", "tunnel_ports.geneve[0]: 9000 is listed already, as a port of vxlan"),
        ("vxlan: [1, 2, 3, 4, 5, 6, 7, 8, 9]", "9 items are more than the 8 allowed"),
        ("vxlans: [1]", "unknown key, did you mean vxlan?"),
    ] {
        let mistakes = ports(wrong).unwrap_err().to_string();
        assert!(mistakes.contains(message), "{wrong}: {mistakes}");
    }
}

#[test]
fn each_setting_has_a_name_with_dots() {
    let text =
        "sinks: [{type: stdout}]\nstandard_views: [sources, flows]\nhistory: off\nviews: [{name: x, by: [src_ip]}]";
    let settings = Config::parse(text, "a test").unwrap().settings();
    for (name, value) in [
        ("report.top", "10"),
        ("estimates.top_error", "0.0005"),
        ("sinks[0].queue", "16"),
        ("standard_views", "sources"),
        ("standard_views", "flows"),
        ("history", "off"),
        ("views.x.error", "0.0005"),
        ("views.x.by", "src_ip"),
        ("memory", "null"),
    ] {
        assert!(settings.contains(&(name.to_owned(), value.to_owned())), "{name}: {value} is not in {settings:#?}");
    }
}
