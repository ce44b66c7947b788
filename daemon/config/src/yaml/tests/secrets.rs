//! Secrets are never shown, and a file with a secret is refused if every user may read it.

use std::os::unix::fs::PermissionsExt;

use weir_sketch::hash::Key;

use super::*;

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
fn a_file_with_a_secret_is_refused_if_every_user_may_read_it() {
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
