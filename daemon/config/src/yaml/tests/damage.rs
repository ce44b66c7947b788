//! Input that is not a configuration at all.

use weir_sketch::hash::mix;

use super::{settings::EVERYTHING, *};
use crate::yaml::units::parse_bytes;

#[test]
fn alias_bombs_are_refused() {
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
    // A few values expand to many: the parser counts the aliases and does not report the place.
    let few = format!("a: &a []\nb: &b [{0}]\nc: &c [{1}]\nd: [{1}]", ["*a"; 30].join(","), ["*b"; 30].join(","));
    let few = few.replace("d: [*b", "d: [*c").replace(",*b,*b]", ",*c,*c,*c,*c,*c]");
    let found = mistakes(&few);
    assert!(found.len() == 1 && found[0].contains("(*name) before this place repeat too much"), "{found:?}");
    assert!(found[0].starts_with(|c: char| c.is_ascii_digit()), "it has a place: {found:?}");
    let found = mistakes(&"a: b\n".repeat(FILE_MAX / 5 + 1));
    assert_eq!(found, [" longer than 128KiB, the limit for a configuration"]);
    assert_eq!(parse_bytes("128KiB"), Some(FILE_MAX as u64));
}

#[test]
fn nesting_that_is_too_deep_is_refused_at_its_place() {
    let too_deep = " nested too deeply: 32 lists and maps around this one are the most that are allowed";
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(mistakes(&nested(33)), [format!("1:33:{too_deep}")]);
    assert!(!mistakes(&nested(32))[0].contains("nested"), "{:?}", mistakes(&nested(32)));
    // The parser alone would take minutes for some of these texts. Nesting that is too deep is reported even if the
    // rest of a text is broken.
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
    // Many brackets next to each other are allowed.
    assert_eq!(mistakes(&format!("observer: [{}]", "[{}],".repeat(20_000))).len(), 1);
    let second = format!("--- {{}}\n--- {}", "{a: ".repeat(30_000));
    assert!(mistakes(&second)[0].starts_with("2:5: a second YAML document"), "{:?}", mistakes(&second));
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_text() {
    assert_eq!(parse("\u{feff}report: {top: 3}").unwrap().report.top, 3);
    assert_eq!(parse("\u{feff}").unwrap(), Config::default());
    assert_eq!(mistakes("\u{feff}report: {top: 0}"), ["1:15: report.top: 0 is below the minimum of 1"]);
    assert_eq!(mistakes("\u{feff}reprt: {}"), ["1:1: reprt: unknown key, did you mean report?"]);
    assert!(mistakes("\u{feff}a: [")[0].starts_with("1:"), "{:?}", mistakes("\u{feff}a: ["));
}

#[test]
fn utf_16_text_is_recognised() {
    let path = file("utf16", b"\xff\xfer\0e\0p\0");
    let found = Config::read(&path).unwrap_err().to_string();
    fs::remove_file(&path).unwrap();
    assert!(found.contains(":1:1: this is UTF-16 text: save the file as UTF-8\n"), "{found}");
}

#[test]
fn errors_explain_why_a_file_is_unreadable() {
    let advice = "\n1 mistake: mend the file, or name another one when weir is started (--config FILE)";
    let shown = |path: &Path| Config::read(path).unwrap_err().to_string().replace(&path.display().to_string(), "F");

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
        // Lines end at YAML's line breaks, and at the end of the text.
        let lines = 2 + text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
        match parse(&text) {
            Ok(config) => drop(config.to_yaml()),
            Err(mistakes) => {
                refused += 1;
                for Mistake { place, .. } in mistakes.list() {
                    let Position { line, column } = place.unwrap_or_else(|| panic!("no place: {mistakes}\n{text}"));
                    assert!((1..lines).contains(&line) && column >= 1, "{mistakes}\n{text}");
                }
            }
        }
    }
    assert!((ROUNDS / 4..ROUNDS).contains(&refused), "{refused} of {ROUNDS} damaged files were refused");
}
