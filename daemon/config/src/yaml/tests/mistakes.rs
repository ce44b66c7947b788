//! All mistakes in a configuration are reported at once, each with its place.

use super::*;
use crate::yaml::limits::MISTAKES_MAX;

/// Texts with their mistakes, as displayed after the file's name.
const MISTAKES: &[(&str, &[&str])] = &[
    // Wrong values of single settings.
    ("report:\n  interval:  200ms", &["2:14: report.interval: 200ms is below the minimum of 1s"]),
    ("report: {top: -1}", &["1:15: report.top: -1 is below the minimum of 1"]),
    ("report: {interval: [1, 2]}", &["1:20: report.interval: expected a duration such as 10s, found the list [..]"]),
    (
        "report: {interval: 10}",
        &["1:20: report.interval: expected a duration such as 10s, found the number 10: add its unit (ms, s, m, h, d)"],
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
        &["1:22: prometheus.listen: port 0 means any free port, which clients could not find: name one, such as 9469"],
    ),
    (
        "web: {listen: 192.0.2.1:9470}",
        &["1:15: web.listen: anyone who reaches 192.0.2.1:9470 can read everything: name a file with a token \
             (`token_file`), or listen on loopback, such as 127.0.0.1:9470"],
    ),
    (
        "web: {hosts: ['a b', 'weir:9470', w]}",
        &[
            "1:15: web.hosts[0]: \"a b\" is not a host name, such as weir.example.net: without a port",
            "1:22: web.hosts[1]: \"weir:9470\" is not a host name, such as weir.example.net: without a port",
        ],
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
    (
        "report: {colour: red}",
        &["1:10: report.colour: unknown key (known here: interval, first_window, top, horizons)"],
    ),
    (
        "report: {top: 5, 1: x, ~: y, [a]: z}",
        &[
            "1:18: report.1: unknown key (known here: interval, first_window, top, horizons)",
            "1:24: report.null: unknown key (known here: interval, first_window, top, horizons)",
            "1:30: report.\"[..]\": unknown key (known here: interval, first_window, top, horizons)",
        ],
    ),
    (
        "'tpo level\\':\n  x: 1",
        &[
            "1:1: \"tpo level\\\\\": unknown key (known here: observer, interfaces, networks, names, geo, report, estimates, seen_flows, \
         new_hosts, standard_views, views, alerts, export, memory, history, usage, control, prometheus, web, datapath, sampling, addresses, \
         hash_key, sandbox, sinks, spool)",
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
            "1:35: interfaces[4]: \"\" has 0 bytes, but an interface name 1 to 127",
            "1:57: interfaces[6]: expected text, found nothing",
            "1:63: interfaces[7]: expected text, found the number 5: put it in quotes",
        ],
    ),
    (
        "interfaces: [{name: 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789}]",
        &[
            "1:21: interfaces[0].name: \"012345678901234567890123456789012345678901234567890123456789...\" has 130 bytes, but an interface name 1 to 127",
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
            "4:5: sinks[1].type: is missing: stdout, file, http, ipfix, kafka, nats or otlp",
            "6:5: sinks[2].tpye: unknown key, did you mean type?",
        ],
    ),
    (
        "sinks: [{type: file}, {type: file, path: ''}, {type: http}, {type: amqp, topic: x}]",
        &[
            "1:9: sinks[0].path: is missing: the file to append to",
            "1:42: sinks[1].path: not a path: it is empty or contains a NUL byte",
            "1:47: sinks[2].url: is missing: the collector, such as http://collector:8080/weir",
            "1:68: sinks[3].type: expected one of stdout, file, http, ipfix, kafka, nats, otlp, found the text \"amqp\"",
        ],
    ),
    (
        "sinks: [{type: file, path: a, compress: gzip}]",
        &[
            "1:41: sinks[0].compress: only renamed files are compressed, and without `max_size` none is renamed: set `max_size`, too",
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
    (
        "hash_key: '00000000000000000000000000000000'",
        &[
            "1:11: hash_key: these are digits that anybody can guess, not a secret: they repeat, count, or are only a few \
           different ones. `weir key new` prints a random key",
        ],
    ),
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
    // Places: quoted keys, flow and block style, several lines, aliases, other line endings, wide characters.
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
    // Not YAML, or not exactly one document.
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
fn mistakes_have_their_place_and_message() {
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
11 mistakes: the weir.yaml that comes with weir explains every setting; `weir check FILE` checks a file without starting weir"#
    );
}

#[test]
fn mistakes_can_be_used_by_programs() {
    let mistakes = parse("report:\n  top: 0").unwrap_err();
    assert_eq!(mistakes.file(), "weir.yaml");
    let place = Some(Position { line: 2, column: 8 });
    let message = "0 is below the minimum of 1".to_owned();
    assert_eq!(mistakes.list(), [Mistake { place, path: "report.top".to_owned(), message }]);
}

#[test]
fn many_mistakes_are_counted() {
    let text = (0..250).map(|i| format!("key{i}: 1\n")).collect::<String>();
    let mistakes = parse(&text).unwrap_err();
    assert_eq!(mistakes.list().len(), MISTAKES_MAX);
    assert!(mistakes.to_string().contains("\n250 mistakes, of which the first 100 are listed: "));
}

#[test]
fn fewer_mistakes_of_a_very_long_file_are_listed() {
    // The file is read again to locate each mistake, so a long file has fewer of them listed.
    let text = "a,".repeat(FILE_MAX / 2 - 1);
    let mistakes = parse(&format!("{{{text}}}")).unwrap_err();
    assert_eq!(mistakes.list().len(), limits::LOCATED_MAX / FILE_MAX);
    assert!(mistakes.to_string().contains(", of which the first 16 are listed: "));
}
