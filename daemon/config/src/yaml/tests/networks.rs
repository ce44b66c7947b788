//! Networks and their prefix files. A mistake in a file is reported with the place of its line in that file.

use weir_sketch::hash::mix;

use super::*;

/// Parses a configuration whose networks read these files. The files are called F0, F1, ... in the text and in the
/// mistakes. Their real names depend on the contents, so that tests that run at the same time do not share a file.
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
    assert_eq!(all(c), [""; 0], "a file may have no prefixes");

    let shown = config.to_yaml();
    let path = &a.file.as_ref().unwrap().path.display();
    assert!(shown.contains(&format!("prefixes:\n    - ::1/128\n    file: {path}\n    own: false")), "{shown}");
    assert!(!shown.contains("198.51.100.1"), "only the path of a file is shown: {shown}");
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
                 one per line, and `#` before a comment",
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
        // With more mistakes than are listed, `expected` has only the line that counts the others.
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
