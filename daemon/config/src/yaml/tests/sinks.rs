//! Sinks that conflict, and sinks that are not built in.

use std::slice;

use super::*;

#[test]
fn two_sinks_never_share_a_spool() {
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
        assert_eq!(keys(&[two]), known[1..], "the key does not depend on other sinks");
    }
    // A credential can change, so it is not part of a key. If two sinks differed only in it, their spooled reports
    // could not be distinguished.
    let [one, two] = ["headers: {Authorization: one}", "headers: {Authorization: two}"].map(of);
    assert_eq!(keys(slice::from_ref(&one)), keys(slice::from_ref(&two)));
    assert_eq!(
        mistakes(&format!("sinks:\n- {one}\n- {{type: stdout}}\n- {two}")),
        ["4:3: sinks[2]: write each secret into a file of its own (`token_file` or `header_files`): only secrets in \
             `headers` tell it from sinks[0]"]
    );
}

#[test]
fn one_place_may_be_written_in_several_ways() {
    for (first, second) in [
        ("type: http, url: 'http://a/x'", "type: http, url: 'HTTP://A:80/x'"),
        ("type: http, url: 'https://a'", "type: http, url: 'https://a:443/'"),
        ("type: http, url: 'http://[2001:DB8::1]/'", "type: http, url: 'http://[2001:db8::1]:80/'"),
        ("type: ipfix, address: 'A:4739'", "type: ipfix, address: 'a:4739'"),
        ("type: kafka, brokers: [a, B], topic: t", "type: kafka, brokers: ['b:9092', c], topic: t"),
        ("type: nats, url: 'nats://a', subject: s", "type: nats, url: 'nats://A:4222', subject: s"),
    ] {
        let found = mistakes(&format!("sinks:\n- {{{first}}}\n- {{{second}}}\n"));
        let is_found = found.iter().any(|mistake| mistake.contains("sinks[1]: sends to the same place as sinks[0]"));
        // A build may lack the sink.
        assert!(is_found || found.iter().any(|mistake| mistake.contains("built without")), "{second}: {found:?}");
    }
    for (first, second) in [
        ("type: http, url: 'http://a/x'", "type: http, url: 'http://a/X'"),
        ("type: http, url: 'http://a/'", "type: http, url: 'https://a/'"),
        ("type: http, url: 'http://a/'", "type: http, url: 'http://a:443/'"),
        ("type: http, url: 'http://a/'", "type: http, url: 'http://a/', vrf: red"),
        ("type: ipfix, address: a, vrf: red", "type: ipfix, address: a, vrf: blue"),
    ] {
        assert!(parse(&format!("sinks:\n- {{{first}}}\n- {{{second}}}\n")).is_ok(), "{second}");
    }
}

#[test]
fn two_sinks_never_write_to_the_same_file() {
    let of = |sinks: &str| mistakes(&format!("sinks:\n{sinks}"));
    let rotated = "- {type: file, path: /nowhere/r, max_size: 1MiB, keep: 2}\n";
    for (first, second, why) in [
        ("- {type: file, path: /nowhere/r}\n", "/nowhere/a/../r", "sends to the same place as sinks[0]"),
        ("- {type: file, path: r}\n", "./r", "sends to the same place as sinks[0]"),
        (rotated, "/nowhere/r.2", "/nowhere/r.2 is the name of a renamed file of sinks[0]"),
        (rotated, "/nowhere/./r.1", "/nowhere/r.1 is the name of a renamed file of sinks[0]"),
    ] {
        let found = of(&format!("{first}- {{type: file, path: {second}}}\n"));
        assert_eq!(found, [format!("3:3: sinks[1]: {why}")]);
    }
    let found = of(&format!("- {{type: file, path: /nowhere/r.1}}\n{rotated}"));
    assert_eq!(found, ["3:3: sinks[1]: its renamed files include /nowhere/r.1, which is the file of sinks[0]"]);
    for other in ["/nowhere/r.3", "/nowhere/r.10", "/elsewhere/r.1", "/nowhere/r.1x"] {
        let text = format!("sinks:\n{rotated}- {{type: file, path: {other}}}\n");
        assert!(parse(&text).is_ok(), "{other}: {:?}", mistakes(&text));
    }
    // Without `max_size` no file is renamed.
    assert!(parse("sinks: [{type: file, path: r}, {type: file, path: r.1}]").is_ok());
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
fn a_server_may_want_a_format_of_its_own() {
    for (name, format) in [("ndjson", Format::Ndjson), ("elasticsearch", Format::Elasticsearch), ("loki", Format::Loki)]
    {
        let config = parse(&format!("sinks: [{{type: http, url: 'http://a/b', format: {name}}}]")).unwrap();
        assert_eq!(config.sinks[0].target.http().unwrap().format, format);
        assert_eq!(parse(&config.to_yaml()).unwrap(), config);
    }
    let refused = parse("sinks: [{type: http, url: 'http://a/b', format: loki, compress: zstd}]").unwrap_err();
    let why = "sinks[0].compress: servers of this `format` take gzip or none";
    assert!(refused.to_string().contains(why), "{refused}");
}

#[test]
#[cfg(feature = "otlp")]
fn an_otlp_sink_has_the_settings_of_an_http_sink() {
    let settings = "timeout: 250ms, compress: zstd, connect_timeout: 1s, token_file: token, header_files: {X-Key: /k}, \
                    tls: {ca_file: ca, certificate_file: c, key_file: k}, proxy: 'http://proxy:3128', vrf: mgmt";
    let of = |kind: &str| {
        parse(&format!("sinks: [{{type: {kind}, url: 'http://collector:4318/v1/metrics', {settings}}}]")).unwrap()
    };
    let (otlp, http) = (of("otlp"), of("http"));
    assert_eq!(otlp.sinks[0].target.http().unwrap(), http.sinks[0].target.http().unwrap());
    assert_ne!(otlp.sinks[0].target, http.sinks[0].target);
    let spool = |config: &Config| config.sinks[0].target.spool_key();
    assert_ne!(spool(&otlp), spool(&http), "each sink has its own spool");
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

#[test]
fn how_much_of_addresses_is_shown_has_one_name() {
    for addresses in Addresses::ALL {
        assert_eq!(Addresses::from_name(addresses.name()), Some(addresses));
    }
    assert_eq!((Addresses::from_name("FULL"), Addresses::from_name("hashed")), (None, None));
}

#[test]
fn a_sink_can_only_get_less_of_addresses_than_the_global_limit() {
    let sinks =
        "sinks: [{type: stdout, addresses: full}, {type: file, path: a}, {type: file, path: b, addresses: none}]";
    for (all, expected) in [
        ("full", [Addresses::Full, Addresses::Full, Addresses::None]),
        ("prefix", [Addresses::Prefix, Addresses::Prefix, Addresses::None]),
        ("none", [Addresses::None; 3]),
    ] {
        let config = Config::parse(&format!("addresses: {all}\n{sinks}"), "weir.yaml").unwrap();
        assert_eq!(config.sinks.iter().map(|sink| sink.addresses).collect::<Vec<_>>(), expected, "{all}");
    }
    let config = Config::parse("addresses: none", "weir.yaml").unwrap();
    assert_eq!(config.sinks[0].addresses, Addresses::None, "this applies to the default sink, too");
}
