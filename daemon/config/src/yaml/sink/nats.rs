//! The settings of the sink `nats`.

use std::{fmt, path::PathBuf, time::Duration};

use http::Uri;
use serde::{Serialize, Serializer};

use weir_system::sandbox::Files;

use super::{
    super::{
        limits::{NATS_SUBJECT_BYTES, TIMEOUT, USER_BYTES},
        section::{Field, Section},
        units,
    },
    Settings,
    http::{Tls, tls},
};

/// A NATS server with a stream that stores reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nats {
    /// The address of the server.
    pub url: NatsUrl,
    /// The subject on which reports are published. A JetStream stream must include it.
    pub subject: String,
    /// How long a delivery may take, including the connection.
    #[serde(serialize_with = "units::write_duration")]
    pub timeout: Duration,
    /// A file with a user's JWT and NKEY seed (`.creds`). weir reads it for each connection.
    pub credentials_file: Option<PathBuf>,
    /// A file with a token. weir reads it for each connection.
    pub token_file: Option<PathBuf>,
    /// The user name; the password is in `password_file`.
    pub user: Option<String>,
    /// A file with the password. weir reads it for each connection.
    pub password_file: Option<PathBuf>,
    /// The trusted roots for `tls://`, and weir's own certificate.
    pub tls: Tls,
}

/// The address of a NATS server, without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsUrl {
    /// True if the connection must be encrypted (`tls://`).
    pub is_tls: bool,
    /// The name or address of the host, in lower case. An IPv6 address is in brackets.
    pub host: String,
    /// The port of the server.
    pub port: u16,
}

impl Nats {
    /// The default of `subject`.
    pub const SUBJECT: &'static str = "weir.reports";
    /// The default of `timeout`.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Identifies where reports go: the server and the subject. Encryption does not change it.
    pub fn place(&self) -> String {
        format!("nats:{}:{}/{}", self.url.host.to_ascii_lowercase(), self.url.port, self.subject)
    }
}

impl fmt::Display for NatsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_tls, host, port } = self;
        write!(f, "{}://{host}:{port}", if *is_tls { "tls" } else { "nats" })
    }
}

impl Serialize for NatsUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The port assigned to NATS by IANA.
const PORT: u16 = 4222;

impl Settings for Nats {
    fn spool_key(&self) -> Option<String> {
        Some(self.place())
    }

    fn hosts(&self) -> Vec<&str> {
        vec![&self.url.host]
    }

    fn add_files(&self, setting: &dyn Fn(&str) -> String, files: &mut Files) {
        files.reads(&setting("credentials_file"), &self.credentials_file);
        files.reads(&setting("token_file"), &self.token_file);
        files.reads(&setting("password_file"), &self.password_file);
        self.tls.add_files(setting, files);
    }
}

/// Reads the settings of this sink.
pub(super) fn nats(s: &mut Section<'_>) -> Option<Nats> {
    let url = s.require("url", "the server, such as nats://server:4222", |f| url(&f));
    let subject = s.get("subject", Nats::SUBJECT.to_owned(), |f| subject(&f));
    let timeout = s.get("timeout", Nats::TIMEOUT, |f| f.duration(TIMEOUT));
    // At most one of the three ways to authenticate may be set.
    let mut said: Option<&str> = None;
    let mut once = |field: &Field<'_>, name| {
        if let Some(other) = said.replace(name) {
            field.refuse(format!("`{other}` has weir's credentials already: keep one of them"));
        }
    };
    let credentials_file = s.get("credentials_file", None, |f| {
        once(&f, "credentials_file");
        f.file_path().map(Some)
    });
    let token_file = s.get("token_file", None, |f| {
        once(&f, "token_file");
        f.file_path().map(Some)
    });
    let both = ["user", "password_file"].map(|key| s.field(key));
    if let [Some(alone), None] | [None, Some(alone)] = &both {
        alone.refuse("`user` and `password_file` belong together: give both, or none");
    }
    let [user, password_file] = both;
    let user = user.and_then(|f| {
        once(&f, "user");
        self::user(&f)
    });
    let password_file = password_file.and_then(|f| f.file_path());
    let tls = s.get("tls", Tls::default(), |f| {
        let tls = tls(&f)?;
        if tls != Tls::default() && url.as_ref().is_some_and(|url| !url.is_tls) {
            f.refuse("the connection would not have to be encrypted: let `url` begin with tls://");
        }
        Some(tls)
    });
    Some(Nats { url: url?, subject, timeout, credentials_file, token_file, user, password_file, tls })
}

/// Reads a URL. No mistake quotes it, because it may contain credentials.
fn url(field: &Field<'_>) -> Option<NatsUrl> {
    let url: Uri = match field.text()?.parse() {
        Ok(url) => url,
        Err(error) => {
            field.refuse(format!("not a URL: {error}"));
            return None;
        }
    };
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = url.host().unwrap_or_default().to_ascii_lowercase();
    let port = if url.host() == Some(authority) { Some(PORT) } else { url.port_u16().filter(|port| *port > 0) };
    if !matches!(url.scheme_str(), Some("nats" | "tls")) {
        field.refuse("the URL of a NATS server begins with nats:// or tls://");
    } else if authority.contains('@') {
        field.refuse(
            "a user name, password or token in a URL would appear in logs: use `user` and `password_file`, `token_file` or \
             `credentials_file`",
        );
    } else if host.is_empty() {
        field.refuse("the URL has no host");
    } else if !matches!(url.path(), "" | "/") || url.query().is_some() {
        field.refuse("the URL of a NATS server ends with its port, such as nats://server:4222");
    } else if let Some(port) = port {
        return Some(NatsUrl { is_tls: url.scheme_str() == Some("tls"), host, port });
    } else {
        field.refuse("the port of the URL is not from 1 to 65535");
    }
    None
}

/// Reads a subject on which messages can be published (<https://docs.nats.io/nats-concepts/subjects>).
fn subject(field: &Field<'_>) -> Option<String> {
    let subject = field.text()?;
    let mistake = if !NATS_SUBJECT_BYTES.contains(&subject.len()) {
        format!("has {} bytes, and not {} to {}", subject.len(), NATS_SUBJECT_BYTES.start(), NATS_SUBJECT_BYTES.end())
    } else if subject.contains(|c: char| c.is_whitespace() || c.is_control()) {
        "has a blank or a control character".to_owned()
    } else if subject.contains(['*', '>']) {
        "has a wildcard (* or >): reports go to one subject".to_owned()
    } else if subject.split('.').any(str::is_empty) {
        "has a dot at its beginning or end, or two in a row".to_owned()
    } else if subject.starts_with(['$', '_']) {
        "begins with $ or _, as the subjects of NATS itself do".to_owned()
    } else {
        return Some(subject.to_owned());
    };
    field.refuse(format!("not a subject to publish on, it {mistake}"));
    None
}

pub(super) fn user(field: &Field<'_>) -> Option<String> {
    let user = field.text()?;
    if USER_BYTES.contains(&user.len()) && !user.contains(char::is_control) {
        return Some(user.to_owned());
    }
    let (least, most) = USER_BYTES.into_inner();
    field.refuse(format!("a user's name has {least} to {most} bytes, and no control characters"));
    None
}

#[cfg(test)]
#[cfg(feature = "nats")]
mod tests {
    use super::{
        super::{Addresses, Sink, Target},
        *,
    };
    use crate::yaml::Config;

    fn parse(settings: &str) -> Result<Config, Vec<String>> {
        let text = format!("sinks: [{{type: nats, {settings}}}]");
        Config::parse(&text, "f").map_err(|mistakes| {
            let place = |path: &str| path.trim_start_matches("sinks[0].").to_owned();
            mistakes.list().iter().map(|one| format!("{}: {}", place(&one.path), one.message)).collect()
        })
    }

    fn nats(settings: &str) -> Nats {
        let mut config = parse(settings).unwrap();
        let Some(Sink { target: Target::Nats(nats), .. }) = config.sinks.pop() else { panic!("not a nats sink") };
        *nats
    }

    #[test]
    fn every_setting_is_read_and_printed() {
        let text = "url: 'tls://NATS.example:4443', subject: edge.weir, timeout: 250ms, user: weir, password_file: /p, \
                    tls: {ca_file: ca, certificate_file: c, key_file: k}, queue: 3, addresses: prefix";
        let expected = Nats {
            url: NatsUrl { is_tls: true, host: "nats.example".into(), port: 4443 },
            subject: "edge.weir".into(),
            timeout: Duration::from_millis(250),
            credentials_file: None,
            token_file: None,
            user: Some("weir".into()),
            password_file: Some("/p".into()),
            tls: Tls { ca_file: Some("ca".into()), certificate_file: Some("c".into()), key_file: Some("k".into()) },
        };
        assert_eq!(nats(text), expected);
        let config = parse(text).unwrap();
        assert_eq!((config.sinks[0].queue, config.sinks[0].addresses), (3, Addresses::Prefix));
        for text in
            [text, "url: 'nats://[::1]'", "url: 'nats://a', token_file: t", "url: 'nats://a', credentials_file: c"]
        {
            let config = parse(text).unwrap();
            let printed = config.to_yaml();
            assert_eq!(Config::parse(&printed, "f").unwrap_or_else(|e| panic!("{e}\n{printed}")), config);
        }
    }

    #[test]
    fn missing_settings_have_their_defaults() {
        let nats = nats("url: 'nats://[2001:db8::1]/'");
        assert_eq!(nats.place(), "nats:[2001:db8::1]:4222/weir.reports");
        assert_eq!((nats.timeout, nats.tls, nats.user), (Duration::from_secs(5), Tls::default(), None));
    }

    #[test]
    fn mistakes_name_the_way_out_and_no_secret() {
        let together = "belong together: give both, or none";
        for (settings, path, message) in [
            ("subject: a", "url", "is missing: the server, such as nats://server:4222"),
            ("url: 'http://a'", "url", "the URL of a NATS server begins with nats:// or tls://"),
            ("url: 'a:4222'", "url", "the URL of a NATS server begins with nats:// or tls://"),
            ("url: 'nats://5ec2e7@a'", "url", "use `user` and `password_file`, `token_file` or `credentials_file`"),
            ("url: 'nats://me:5ec2e7@a'", "url", "would appear in logs"),
            ("url: 'nats://5ec2e7 @a'", "url", "not a URL"),
            ("url: 'nats://a/5ec2e7'", "url", "ends with its port"),
            ("url: 'nats://a?token=5ec2e7'", "url", "ends with its port"),
            ("url: 'nats://a:0'", "url", "the port of the URL is not from 1 to 65535"),
            ("url: 'nats://a:99999'", "url", "the port of the URL is not from 1 to 65535"),
            ("url: 'nats://:4222'", "url", "has no host"),
            ("url: 'nats://a', subject: ''", "subject", "0 bytes"),
            ("url: 'nats://a', subject: 'a b'", "subject", "blank"),
            ("url: 'nats://a', subject: weir.>", "subject", "wildcard"),
            ("url: 'nats://a', subject: weir.*.x", "subject", "wildcard"),
            ("url: 'nats://a', subject: a..b", "subject", "two in a row"),
            ("url: 'nats://a', subject: a.", "subject", "at its beginning or end"),
            ("url: 'nats://a', subject: $JS.API", "subject", "NATS itself"),
            ("url: 'nats://a', timeout: 1ms", "timeout", "1ms is below the minimum"),
            ("url: 'nats://a', user: a", "user", together),
            ("url: 'nats://a', password_file: a", "password_file", together),
            (
                "url: 'nats://a', token_file: a, credentials_file: a",
                "token_file",
                "`credentials_file` has weir's credentials already",
            ),
            (
                "url: 'nats://a', token_file: a, user: a, password_file: a",
                "user",
                "`token_file` has weir's credentials already",
            ),
            ("url: 'nats://a', tls: {ca_file: a}", "tls", "let `url` begin with tls://"),
            ("url: 'tls://a', tls: {key_file: a}", "tls", together),
            (
                "url: 'nats://a', token: 5ec2e7",
                "token",
                "unknown key (known here: queue, addresses, type, url, subject, timeout, credentials_file, token_file, user, password_file, tls)",
            ),
            (
                "url: 'nats://a', compress: gzip",
                "compress",
                "unknown key (known here: queue, addresses, type, url, subject,",
            ),
        ] {
            let found = parse(settings).expect_err(settings);
            assert_eq!(found.len(), 1, "{settings}: {found:?}");
            assert!(found[0].starts_with(&format!("{path}: ")) && found[0].contains(message), "{settings}: {found:?}");
            assert!(!found[0].contains("5ec2e7"), "{found:?}");
        }
    }

    #[test]
    fn each_target_has_only_one_sink() {
        let two = |second: &str| {
            let text = format!("sinks: [{{type: nats, url: 'nats://a'}}, {{type: nats, url: {second}}}]");
            Config::parse(&text, "f").map(drop).map_err(|mistakes| mistakes.list()[0].message.clone())
        };
        for same in ["'nats://A:4222/'", "'tls://a'", "'nats://a', subject: weir.reports, timeout: 1s"] {
            assert_eq!(two(same), Err("sends to the same place as sinks[0]".to_owned()), "{same}");
        }
        for other in ["'nats://a:4223'", "'nats://a', subject: other", "'nats://b'"] {
            assert_eq!(two(other), Ok(()), "{other}");
        }
    }

    #[test]
    fn a_spool_belongs_to_server_and_subject() {
        let key = |settings: &str| Target::Nats(nats(settings).into()).spool_key();
        let first = key("url: 'nats://a', token_file: t");
        assert_eq!(first.as_deref(), Some("nats:a:4222/weir.reports"));
        for same in ["url: 'nats://a', timeout: 1s, credentials_file: c", "url: 'tls://a'"] {
            assert_eq!(first, key(same), "{same}");
        }
        assert_ne!(first, key("url: 'nats://a', subject: other"));
    }
}

#[cfg(test)]
#[cfg(not(feature = "nats"))]
mod tests {
    use crate::yaml::Config;

    #[test]
    fn without_the_feature_the_type_is_refused_with_the_way_out() {
        let mistakes = Config::parse("sinks: [{type: nats, url: 'nats://a', subject: b}]", "f").unwrap_err();
        let [mistake] = mistakes.list() else { panic!("{mistakes}") };
        assert_eq!(mistake.path, "sinks[0].type");
        for part in ["built without NATS", "--features nats", "Debian package"] {
            assert!(mistake.message.contains(part), "{mistakes}");
        }
    }
}
