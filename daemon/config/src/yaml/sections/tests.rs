use std::path::PathBuf;

use super::*;
use crate::yaml::tests::mistakes;

/// The keys that the reader of the file knows.
fn known() -> Vec<String> {
    let unknown = mistakes("'?': x");
    let (_, known) = unknown[0].split_once("known here: ").unwrap();
    known.trim_end_matches(')').split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_file_is_a_section() {
    let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
    assert_eq!(names, known());
    let written = Config::default().to_yaml();
    let written: Vec<_> = written.lines().filter(|line| line.starts_with(char::is_alphabetic)).collect();
    assert_eq!(written.len(), names.len());
    for (line, name) in written.iter().zip(names) {
        assert!(line.starts_with(&format!("{name}:")), "{line}, {name}");
    }
}

#[test]
fn every_path_of_a_configuration_is_among_its_files() {
    let directory = std::env::temp_dir().join(format!("weir-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("networks"), "192.0.2.0/24\n").unwrap();
    let config = format!(
        "networks: {{n: {{file: {}}}}}\n\
         hash_key: {{file: /f/key}}\n\
         control: {{socket: /s/control}}\n\
         spool: {{path: /p/spool}}\n\
         sinks:\n\
         - {{type: file, path: /w/reports}}\n\
         - {{type: http, url: 'https://a/', token_file: /f/token, header_files: {{X-Tenant: /f/tenant}},\n\
         \x20  tls: {{ca_file: /f/ca, certificate_file: /f/certificate, key_file: /f/tls-key}}}}",
        directory.join("networks").display()
    );
    let config = Config::parse(&config, "weir.yaml").unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let Files { read, written, spool, history, socket } = config.files(Some(Path::new("/state")));
    let read: Vec<_> = read.iter().map(|(setting, path)| (setting.as_str(), path.as_path())).collect();
    assert_eq!(
        read,
        [
            ("networks.n.file", directory.join("networks").as_path()),
            ("hash_key.file", Path::new("/f/key")),
            ("sinks[1].token_file", Path::new("/f/token")),
            ("sinks[1].header_files", Path::new("/f/tenant")),
            ("sinks[1].tls.ca_file", Path::new("/f/ca")),
            ("sinks[1].tls.certificate_file", Path::new("/f/certificate")),
            ("sinks[1].tls.key_file", Path::new("/f/tls-key")),
        ]
    );
    assert_eq!(written, [("sinks[0].path".to_owned(), PathBuf::from("/w/reports"))]);
    assert_eq!(history, Some(PathBuf::from("/state/history")));
    assert_eq!((spool, socket), (Some(PathBuf::from("/p/spool")), Some(PathBuf::from("/s/control"))));
    assert_eq!(history, Some(PathBuf::from("/state/history")));

    let wanted = |text: &str| Config::parse(text, "weir.yaml").unwrap().wanted(None);
    assert_eq!(wanted("prometheus: {listen: '127.0.0.1:9469'}").ports, [9469]);
    let both = wanted("prometheus: {listen: '127.0.0.1:9469'}\nweb: {listen: '127.0.0.1:9470', token_file: /f/token}");
    assert_eq!(both.ports, [9469, 9470]);
    assert!(both.files.read.iter().any(|(setting, path)| setting == "web.token_file" && path.ends_with("token")));
    assert!(wanted("").is_on && !wanted("sandbox: false").is_on);

    let default = Config::default().files(Some(Path::new("/state")));
    assert_eq!((default.read, default.written), (Vec::new(), Vec::new()));
    assert_eq!(default.spool, None, "standard output has no spool");
}

#[test]
#[cfg(feature = "nats")]
fn secrets_of_nats_are_among_them() {
    let sink = "{type: nats, url: 'tls://n', credentials_file: /f/creds, tls: {ca_file: /f/ca}}";
    let config = Config::parse(&format!("sinks: [{sink}]"), "weir.yaml").unwrap();
    let expected = [("credentials_file", "/f/creds"), ("tls.ca_file", "/f/ca")];
    let expected = expected.map(|(name, path)| (format!("sinks[0].{name}"), PathBuf::from(path)));
    assert_eq!(config.files(None).read, expected);
}

#[test]
#[cfg(feature = "kafka")]
fn secrets_of_kafka_are_among_them() {
    let sink = "{type: kafka, brokers: [k], sasl: {user: weir, password_file: /f/password}, tls: {ca_file: /f/ca}}";
    let config = Config::parse(&format!("sinks: [{sink}]"), "weir.yaml").unwrap();
    let expected = [("sasl.password_file", "/f/password"), ("tls.ca_file", "/f/ca")];
    let expected = expected.map(|(name, path)| (format!("sinks[0].{name}"), PathBuf::from(path)));
    assert_eq!(config.files(None).read, expected);
}

const STARTED: Started = Started {
    has_programs: true,
    can_sample: false,
    has_readers: false,
    can_filter: false,
    has_tables: false,
    places: None,
};

fn config(text: &str) -> Config {
    Config::parse(text, "weir.yaml").unwrap()
}

#[test]
fn sections_that_differ_are_named() {
    let old = config("interfaces: [eth0]\nsinks: [{type: stdout}]");
    assert!(old.changed(&old).is_empty());
    let new = config("interfaces: [eth0, eth1]\nreport: {interval: 1s}\nsinks: [{type: stdout}]\nviews: [{name: w}]");
    assert_eq!(old.changed(&new), ["interfaces", "report", "views"]);
    assert_eq!(new.changed(&old), ["interfaces", "report", "views"]);
}

#[test]
fn settings_that_cannot_change_are_named_with_the_reason() {
    let old = config("interfaces: [eth0]");
    for (text, name) in [
        ("observer: {name: r1}", "observer"),
        ("control: {socket: /tmp/other.sock}", "control"),
        ("spool: {path: none}", "spool"),
        ("prometheus: {listen: 127.0.0.1:9469}", "prometheus"),
        ("web: {listen: 127.0.0.1:9470}", "web"),
        ("datapath: {tunnels: inner}", "datapath"),
        ("hash_key: {file: /etc/weir/key}", "hash_key"),
        ("seen_flows: {capacity: 2000}", "seen_flows"),
        ("seen_flows: {false_positive_rate: 0.01}", "seen_flows"),
        ("sampling: {packets: 10}", "sampling.packets"),
        ("sampling: {packets: auto}", "sampling.packets"),
    ] {
        let refused = old.needs_restart(&config(&format!("interfaces: [eth0]\n{text}")), &STARTED);
        assert!(refused.len() == 1 && refused[0].0 == name, "{refused:?}");
    }
    let socket = config("interfaces: [{name: eth0, mode: afpacket}]");
    assert!(old.needs_restart(&socket, &STARTED)[0].1.contains("afpacket"));
    assert!(old.needs_restart(&socket, &Started { has_readers: true, ..STARTED }).is_empty());
    let tc = config("interfaces: [{name: eth0, mode: tc}]");
    assert!(old.needs_restart(&tc, &STARTED)[0].1.contains("mode: tc"));
    assert!(old.needs_restart(&tc, &Started { can_filter: true, ..STARTED }).is_empty());
    let sockets_only = Started { has_programs: false, has_readers: true, ..STARTED };
    let tcx = config("interfaces: [{name: eth0, mode: tcx}]");
    assert!(socket.needs_restart(&tcx, &sockets_only)[0].1.contains("its programs"));
}

#[test]
fn all_other_settings_can_change() {
    let old = config("interfaces: [eth0]");
    let new = "interfaces: [eth1, {name: \"ppp*\", direction: both}]\nnetworks: {n: {prefixes: [192.0.2.0/24]}}\n\
               report: {interval: 1s, top: 5}\nestimates: {top_error: 0.001}\nseen_flows: {generation: 1m}\n\
               standard_views: [flows]\nviews: [{name: w}]\nmemory: 1GiB\nsampling: {cpu: 0.2}\n\
               sinks: [{type: stdout}]\nalerts: {rules: [{name: a, when: lost > 0}]}";
    assert_eq!(old.needs_restart(&config(new), &STARTED), []);
    let samples = Started { can_sample: true, ..STARTED };
    assert!(old.needs_restart(&config("interfaces: [eth0]\nsampling: {packets: 10}"), &samples).is_empty());
}

#[test]
fn a_file_in_a_folder_that_weir_has_given_up_needs_a_restart() {
    let old = config("interfaces: [eth0]");
    let new = config("interfaces: [eth0]\nsinks: [{type: file, path: /usr/share/reports}]");
    let places = Places { read: ["/usr".into()].into(), ..Places::default() };
    let refused = old.needs_restart(&new, &Started { places: Some(places), ..STARTED });
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].0, "sinks[0].path");
    assert!(refused[0].1.contains("writes only") && refused[0].1.contains("/usr/share/reports"), "{refused:?}");
}
