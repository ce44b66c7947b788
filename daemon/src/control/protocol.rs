//! The protocol of the control socket: one line of JSON each way. Only `subscribe` has several answers, one line each
//! second.

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use weir_schema::{Row, Window};

/// The version of the protocol. Requests with another version are refused.
pub const VERSION: u32 = 1;

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// The status of weir.
    Status,
    /// The last report, or the last few, the oldest first.
    Report {
        /// Maximum number of reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u32>,
    },
    /// Look up some keys in the last window.
    Ask {
        /// The keys, each as `FIELD=VALUE,...`.
        keys: Vec<String>,
        /// True to look in the open window so far instead.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        live: bool,
    },
    /// The lists of the open window so far.
    Live {
        /// Only the list or view with this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        list: Option<String>,
    },
    /// A message with exact counters every second, until the client disconnects.
    Subscribe,
    /// The traffic of each interface in this time, in equal steps, and the totals of windows.
    History {
        /// The start, RFC 3339; if missing, as early as possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The end, RFC 3339; if missing, now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Maximum number of steps; if missing, 360.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        points: Option<u32>,
        /// Instead, what the windows of this time say about this key: `FIELD=VALUE,...`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// With a key: the view whose list it is in; if missing, a standard list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        view: Option<String>,
    },
    /// The union of all windows that touch this time.
    Span {
        /// The start, RFC 3339; if missing, as early as possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The end, RFC 3339; if missing, now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// How many of the last windows to take instead: those that ended by `to`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u32>,
        /// How many of the first windows to take instead: those that began at `from` or later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<u32>,
    },
    /// What each interface, host or network has carried by hour, day or month.
    Usage {
        /// `hosts`, `networks` or an own address; if missing, interfaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<String>,
        /// Only this interface; if missing, all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
        /// `hour`, `day` or `month`; if missing, `month`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// How many periods; if missing, 24 hours, 31 days or 13 months.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u32>,
        /// How many hosts or networks in each period; if missing, 10.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
        /// The end of the last period, RFC 3339; if missing, now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// What the windows of this time have of some keys.
    Find {
        /// The keys: addresses, or the fields of rows, each as `FIELD=VALUE,...`.
        keys: Vec<String>,
        /// The start, RFC 3339; if missing, as early as possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The end, RFC 3339; if missing, now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// What has changed in a list since an earlier time of the same length.
    Changes {
        /// The list: `flows`, `sources`, `destinations`, `pairs` or `services`.
        list: String,
        /// What is compared: `bytes` or `packets`; if missing, bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The start of the later time, RFC 3339.
        from: String,
        /// Its end.
        to: String,
        /// The start of the earlier time; if missing, the time just before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        against: Option<String>,
    },
    /// What the flow records of this time have of a question that no view asked.
    Flows {
        /// Conditions, each as `FIELD=VALUE` or `FIELD!=VALUE`, separated by commas; empty selects all.
        question: String,
        /// The fields of the rows; empty if only the sum is asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        by: Vec<String>,
        /// The start, RFC 3339; if missing, as early as possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The end, RFC 3339; if missing, now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
    },
    /// The names of hosts.
    Names,
    /// Read the configuration again.
    Reload,
    /// Detach from interfaces, until weir is told to attach again or restarted, or the `interfaces` of its
    /// configuration change.
    Detach {
        /// The names of the interfaces; empty means all.
        interfaces: Vec<String>,
    },
    /// Attach again to interfaces that weir was told to detach from.
    Attach {
        /// The names of the interfaces; empty means all.
        interfaces: Vec<String>,
    },
}

impl Command {
    const NAMES: [&'static str; 15] = [
        "status",
        "report",
        "ask",
        "live",
        "subscribe",
        "history",
        "span",
        "find",
        "changes",
        "flows",
        "usage",
        "names",
        "reload",
        "detach",
        "attach",
    ];

    /// Returns true if it changes anything, which only root and weir's own user may do.
    pub const fn is_for_owner(&self) -> bool {
        matches!(self, Self::Reload | Self::Detach { .. } | Self::Attach { .. })
    }
}

/// A request, which is one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The version of the protocol.
    pub version: u32,
    /// The command to carry out.
    #[serde(flatten)]
    pub command: Command,
}

/// A response, which is one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The answer: a [`Status`](weir_deliver::status::Status), one or several [`Report`](weir_schema::Report)s,
    /// [`KeyAnswers`], [`Reloaded`](crate::reload::Reloaded), [`Detached`], [`Attached`], a
    /// [`Second`](weir_schema::Second), a [`History`](weir_schema::History), a [`KeyHistory`](weir_schema::KeyHistory),
    /// a [`Union`](weir_schema::Union), [`Changes`](weir_schema::Changes), a [`Usage`](weir_schema::Usage), a
    /// [`HostUsage`](weir_schema::HostUsage), [`NamesAnswer`](weir_schema::NamesAnswer), a [`Live`](weir_schema::Live),
    /// or [`LiveAnswers`](weir_schema::LiveAnswers). It is kept as raw JSON, so that every reader of a report gets the
    /// same bytes.
    Answer(Box<RawValue>),
    /// The request is invalid.
    Refused(String),
    /// No answer is available now.
    Unavailable(String),
}

/// The answer about some keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyAnswers {
    /// The report of the window that the answers are about.
    pub report_id: String,
    /// The window that the answers are about.
    pub window: Window,
    /// The answers of all views that have such keys, in the order of the request.
    pub answers: Vec<Row>,
}

weir_schema::from_json!(KeyAnswers, Detached, Attached);

/// The answer to `detach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The process id of weir.
    pub pid: u32,
    /// Each interface and direction that weir detached from, in words, except interfaces without their own row.
    pub from: Vec<String>,
}

/// The answer to `attach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The process id of weir.
    pub pid: u32,
    /// Each interface and direction that weir measures again, in words.
    pub to: Vec<String>,
    /// Each one that it does not measure yet, with the reason.
    pub missing: Vec<String>,
}

impl Request {
    /// A request of this version.
    pub const fn new(command: Command) -> Self {
        Self { version: VERSION, command }
    }

    /// Parses a line.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for the author of the client.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("the request is not JSON: {error}"))?;
        match value.get("version").and_then(Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "the request has version {version} of the protocol, and this weir speaks version {VERSION}: use the \
                     `weir` that is installed with it"
                ));
            }
            None => return Err(format!("the request has no version: write \"version\":{VERSION}")),
        }
        match value.get("command") {
            Some(Value::String(command)) if !Command::NAMES.contains(&command.as_str()) => {
                let names = Command::NAMES.join(", ");
                return Err(format!(
                    "there is no command {:?} (there are: {names})",
                    weir_system::text::short(command)
                ));
            }
            Some(Value::String(_)) | None => {}
            // serde would accept a number as the index of a command.
            Some(other) => return Err(format!("the request is not complete: the command is {other}, not a name")),
        }
        serde_json::from_value(value).map_err(|error| format!("the request is not complete: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_writing_and_parsing() {
        let keys = vec!["src_ip=192.0.2.7".to_owned()];
        let interfaces = || vec!["eth0".to_owned()];
        let (detach, attach) =
            (Command::Detach { interfaces: interfaces() }, Command::Attach { interfaces: interfaces() });
        for command in [
            Command::Status,
            Command::Report { last: None },
            Command::Report { last: Some(5) },
            Command::Ask { keys: keys.clone(), live: false },
            Command::Ask { keys, live: true },
            Command::Live { list: None },
            Command::Live { list: Some("sources".to_owned()) },
            Command::Subscribe,
            Command::History {
                from: Some("2026-11-20T08:00:00Z".to_owned()),
                to: None,
                points: Some(60),
                key: Some("src_ip=192.0.2.7".to_owned()),
                view: None,
            },
            Command::Span { from: None, to: None, last: Some(30), first: None },
            Command::Changes {
                list: "sources".to_owned(),
                by: Some("packets".to_owned()),
                from: "2026-11-24T14:00:00Z".to_owned(),
                to: "2026-11-24T15:00:00Z".to_owned(),
                against: None,
            },
            Command::Flows { question: "dst_port=443".to_owned(), by: vec!["dst_ip".to_owned()], from: None, to: None },
            Command::Usage {
                of: None,
                interface: Some("wan0".to_owned()),
                by: None,
                last: Some(3),
                top: None,
                to: None,
            },
            Command::Names,
            Command::Reload,
            detach,
            attach,
        ] {
            let request = Request::new(command);
            assert_eq!(Request::parse(&serde_json::to_vec(&request).unwrap()).unwrap(), request);
        }
        let line = br#"{"version":1,"command":"report"}"#;
        assert_eq!(Request::parse(line).unwrap().command, Command::Report { last: None });
        let line = br#"{"version":1,"command":"ask","keys":["proto=tcp"]}"#;
        assert_eq!(
            Request::parse(line).unwrap().command,
            Command::Ask { keys: vec!["proto=tcp".to_owned()], live: false }
        );
    }

    #[test]
    fn the_error_of_a_wrong_request_says_what_is_wrong() {
        for (line, part) in [
            ("", "not JSON"),
            ("status", "not JSON"),
            ("[]", "no version"),
            (r#"{"command":"status"}"#, "write \"version\":1"),
            (r#"{"version":2,"command":"status"}"#, "version 2 of the protocol"),
            (r#"{"version":-1,"command":"status"}"#, "no version"),
            (r#"{"version":1}"#, "not complete"),
            (
                r#"{"version":1,"command":"stat"}"#,
                "there is no command \"stat\" (there are: status, report, ask, live, subscribe, history, span, find, \
                 changes, flows, usage, names, reload, detach, attach)",
            ),
            (r#"{"version":1,"command":7}"#, "not complete"),
            (r#"{"version":1,"command":"ask"}"#, "missing field `keys`"),
            (r#"{"version":1,"command":"ask","keys":"src_ip"}"#, "not complete"),
        ] {
            let error = Request::parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
