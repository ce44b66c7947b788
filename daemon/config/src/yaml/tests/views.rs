//! Invalid views, and how views are written.

use super::*;

/// A view and its mistake: the place, and a part of the message.
const WRONG_VIEWS: &[(&str, &str, &str)] = &[
    ("web", "1:9: views[0]", "expected a map such as {name: web"),
    ("{by: [src_ip]}", "1:9: views[0].name", "is missing: the name of this view in reports"),
    ("{name: ''}", "1:16: views[0].name", "1 to 64 letters"),
    ("{name: a b}", "1:16: views[0].name", "\"a b\" is not a valid name"),
    ("{name: 5}", "1:16: views[0].name", "put it in quotes"),
    ("{name: w, by: [srcip]}", "1:24: views[0].by[0]", "did you mean src_ip?"),
    ("{name: w, by: [source]}", "1:24: views[0].by[0]", "there is no field \"source\""),
    ("{name: w, by: [5]}", "1:24: views[0].by[0]", "expected text"),
    ("{name: w, by: {src_ip: 24}}", "1:23: views[0].by", "expected text"),
    ("{name: w, by: [src_ip, src_ip]}", "1:32: views[0].by[1]", "src_ip is listed twice"),
    ("{name: w, by: [flow, src_port]}", "1:30: views[0].by[1]", "src_port is listed twice"),
    ("{name: w, by: [src_ip/33]}", "1:24: views[0].by[0]", "expected 0 to 32"),
    ("{name: w, by: [src_ip/24/129]}", "1:24: views[0].by[0]", "expected 0 to 128"),
    ("{name: w, by: [src_ip/24/48/8]}", "1:24: views[0].by[0]", "more than two lengths"),
    ("{name: w, by: [src_ip/x]}", "1:24: views[0].by[0]", "is not a valid IPv4 prefix length"),
    ("{name: w, by: [proto/8]}", "1:24: views[0].by[0]", "proto is not an address: it has no length"),
    ("{name: w, by: [host, src_ip]}", "1:23: views[0].by", "`host` is either address"),
    (
        "{name: w, by: [src_ip, dst_ip, src_ip/24]}",
        "1:23: views[0].by",
        "src_ip and src_ip/24/48: a row shows one src_ip",
    ),
    ("{name: w, by: [host/16/32, host/8]}", "1:23: views[0].by", "host/16/32 and host/8/48: a row shows one host"),
    (
        "{name: w, by: [fragment], measure: new_flows}",
        "1:23: views[0].by",
        "packets of one flow may differ in fragment",
    ),
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
    ("{name: w, by: [src_ip], measure: {distinct: src_ip}}", "1:23: views[0].by", "would always be 1"),
    (
        "{name: w, by: [src_ip], measure: {distinct: [dst_ip, src_ip]}}",
        "1:23: views[0].by",
        "leave it out of `distinct: [dst_ip, src_ip]`",
    ),
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
    ("{name: w, measure: new_flows, per: interface}", "1:44: views[0].per", "is new only on the interface"),
    ("{name: w, top: 0}", "1:24: views[0].top", "below the minimum of 1"),
    ("{name: w, top: 101}", "1:24: views[0].top", "above the maximum of 100"),
    ("{name: w, top: ten}", "1:24: views[0].top", "expected a whole number"),
    ("{name: w, per: vlan}", "1:24: views[0].per", "expected one of interface"),
    ("{name: w, by: [interface], per: interface}", "1:41: views[0].per", "`by` has `interface` already"),
    ("{name: w, error: 0.5}", "1:26: views[0].error", "above the maximum of 0.01"),
    ("{name: w, error: 0.06, measure: flows}", "1:26: views[0].error", "above the maximum of 0.05"),
    ("{name: w, error: 0.0005, measure: {distinct: src_ip}}", "1:26: views[0].error", "below the minimum of 0.002"),
    ("{name: w, error: 0.001, by: [dst_ip], measure: flows}", "1:26: views[0].error", "below the minimum of 0.005"),
    ("{name: w, matc: {proto: tcp}}", "1:19: views[0].matc", "did you mean match?"),
    ("{name: w, match: tcp}", "1:26: views[0].match", "expected a map such as"),
    ("{name: w, match: {dst_prt: 80}}", "1:27: views[0].match.dst_prt", "did you mean dst_port?"),
    ("{name: w, match: {proto: tpc}}", "1:34: views[0].match.proto", "\"tpc\" is not a valid protocol"),
    ("{name: w, match: {proto: 256}}", "1:34: views[0].match.proto", "\"256\" is not a valid protocol"),
    ("{name: w, match: {proto: []}}", "1:34: views[0].match.proto", "an empty list matches nothing"),
    ("{name: w, match: {dst_port: 9000-80}}", "1:37: views[0].match.dst_port", "reversed: did you mean 80-9000?"),
    (
        "{name: w, match: {dst_port: 70000}}",
        "1:37: views[0].match.dst_port",
        "70000 is not a valid port: the largest is 65535",
    ),
    ("{name: w, match: {dst_port: [80, http]}}", "1:42: views[0].match.dst_port[1]", "\"http\" is not a valid port"),
    ("{name: w, match: {vlan: 4096}}", "1:33: views[0].match.vlan", "4096 is not a valid VLAN: the largest is 4095"),
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
    ("{name: w, match: {ip_version: 5}}", "1:39: views[0].match.ip_version", "\"5\" is not a valid IP version: 4 or 6"),
    ("{name: w, match: {fragment: maybe}}", "1:37: views[0].match.fragment", "true or false"),
    ("{name: w, match: {direction: in}}", "1:38: views[0].match.direction", "expected one of ingress, egress"),
    ("{name: w, match: {interface: a/b}}", "1:38: views[0].match.interface", "cannot be the name of an interface"),
    ("{name: w, match: {dscp: 64}}", "1:33: views[0].match.dscp", "0 to 63, or a name"),
    ("{name: w, match: {ecn: 1}}", "1:32: views[0].match.ecn", "not-ect, ect0, ect1 or ce"),
    ("{name: w, match: {tcp_flags: SYN}}", "1:38: views[0].match.tcp_flags", "is not a valid TCP flag: fin, syn"),
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
    (
        "{name: w, match: {scope: inside}}",
        "1:34: views[0].match.scope",
        "is not a valid scope: in, out, transit or internal",
    ),
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
            "2:35: views[0].match.src_as: \"AS\" is not a valid number of an autonomous system: expected 0 to 4294967295",
        ),
        ("src_as: [AS64500-AS64496]", "2:36: views[0].match.src_as[0]: the range AS64500-AS64496 is reversed"),
        (
            "dst_as: 4294967296",
            "2:35: views[0].match.dst_as: \"4294967296\" is not a valid number of an autonomous system",
        ),
        (
            "src_country: [DE, Germany]",
            "2:45: views[0].match.src_country[1]: \"Germany\" is not a country: expected its two",
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

#[test]
fn an_error_is_not_checked_if_the_measure_is_wrong() {
    let text = "views: [{name: w, by: [src_ip], measure: {distinct: dst_pi}, error: 0.04}]";
    let told = mistakes(text);
    assert!(told.len() == 1 && told[0].contains("did you mean dst_ip?"), "{told:?}");
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
  error: 0.05
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

#[test]
fn mistakes_in_a_view_on_the_command_line_do_not_mention_files() {
    for text in ["{measure: packts}", "{by: ["] {
        let shown = Config::default().parse_view(text, "--view", "view1").unwrap_err().to_string();
        assert!(shown.starts_with("--view:1:") && shown.ends_with("docs/VIEWS.md explains views"), "{shown}");
        assert!(!shown.contains("--config"), "{shown}");
    }
}
