//! The format of log lines.
//!
//! Names in a line may come from anywhere: interfaces, their aliases, paths, a collector's answers. So control
//! characters are escaped in every format, and an entry is always one line.

use std::{env, fmt, io::IsTerminal as _, os::fd::AsFd};

use clap::ValueEnum;
use jiff::Timestamp;
use rustix::fs::fstat;
use serde_json::{Map, Value, json};
use tracing::{
    Event, Level,
    field::{Field, Visit},
};

use crate::{
    clock, terminal,
    text::{escape_json, escaped},
};

/// The variable that sets the format, unless the command line does.
pub const VARIABLE: &str = "WEIR_LOG_FORMAT";
/// systemd sets this variable for a service whose standard error is the journal. It has the file's device and inode.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// The formats that a user can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For the journal of systemd, text with a priority and without the time; otherwise as `plain`
    #[default]
    Auto,
    /// Text, with the time
    Plain,
    /// One JSON object per line: time, level, message, fields
    Json,
}

impl Format {
    /// The given format if there is one, otherwise the one in the variable, otherwise the default.
    ///
    /// # Errors
    ///
    /// The variable has another value.
    pub fn chosen(given: Option<Self>) -> Result<Self, String> {
        match (given, env::var(VARIABLE)) {
            (Some(format), _) => Ok(format),
            (None, Ok(text)) if !text.is_empty() => Self::of(&text),
            (None, _) => Ok(Self::default()),
        }
    }

    fn of(text: &str) -> Result<Self, String> {
        Self::from_str(text, false)
            .map_err(|_| format!("{VARIABLE}={text}: use plain, json or auto", text = escaped(text)))
    }
}

/// The style of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// True to write JSON instead of text.
    pub json: bool,
    /// True to add the prefix for the priority that journald removes, such as `<4>` (sd-daemon(3)). There is no time
    /// then, because the journal adds its own to each line.
    pub journal: bool,
    /// True to use colours.
    pub colours: bool,
}

impl Style {
    /// The style for this format on the current standard error.
    pub fn of_stderr(format: Format) -> Self {
        let stderr = std::io::stderr();
        let journal = env::var(JOURNAL_STREAM).is_ok_and(|stream| is_the_file(stderr.as_fd(), &stream));
        Self::new(format, journal, terminal::has_colors(stderr.is_terminal()))
    }

    const fn new(format: Format, journal: bool, colours: bool) -> Self {
        match format {
            Format::Auto => Self { json: false, journal, colours: colours && !journal },
            Format::Plain => Self { json: false, journal: false, colours },
            Format::Json => Self { json: true, journal, colours: false },
        }
    }

    /// Formats an entry as a line, including the newline.
    pub fn line(self, level: Level, time: Timestamp, entry: &Entry) -> String {
        let priority = self.priority(level);
        if self.json {
            return format!("{priority}{}\n", object(level, time, entry));
        }
        let mut line = priority.to_owned();
        if !self.journal {
            let (dim, colour, end) = if self.colours { ("\x1b[2m", colour(level), "\x1b[0m") } else { ("", "", "") };
            line += &format!("{dim}{time:.6}{end} {colour}{:>5}{end} ", level.as_str());
        }
        line += &escaped(&entry.message);
        for (name, value) in &entry.fields {
            let shown = match value {
                FieldValue::Text(text) => format!("{text:?}"),
                FieldValue::Shown(text) => text.clone(),
                FieldValue::Value(value) => value.to_string(),
            };
            let space = if line.is_empty() { "" } else { " " };
            line += &format!("{space}{name}={}", escaped(&shown));
        }
        line + "\n"
    }

    /// Formats a message without a time, in one or more lines.
    pub fn told(self, level: Level, text: &str) -> String {
        if self.json {
            let entry = Entry { message: text.to_owned(), ..Entry::default() };
            return self.line(level, clock::now().wall, &entry);
        }
        text.lines().map(|line| format!("{}{}\n", self.priority(level), escaped(line))).collect()
    }

    fn priority(self, level: Level) -> &'static str {
        match level {
            _ if !self.journal => "",
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            _ => "<7>",
        }
    }
}

const fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

/// Returns true if a file has this device and inode, written as `8:1234`.
fn is_the_file(file: impl AsFd, stream: &str) -> bool {
    let Some((device, inode)) = stream.split_once(':') else { return false };
    fstat(file).is_ok_and(|stat| Ok(stat.st_dev) == device.parse() && Ok(stat.st_ino) == inode.parse())
}

/// A JSON object without control characters.
fn object(level: Level, time: Timestamp, Entry { message, fields }: &Entry) -> String {
    let fields: Map<_, _> = fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_json())).collect();
    let level = level.as_str().to_ascii_lowercase();
    escape_json(
        &json!({"time": format!("{time:.6}"), "level": level, "message": message, "fields": fields}).to_string(),
    )
}

/// An entry of the log.
#[derive(Debug, Default)]
pub struct Entry {
    /// The message for people.
    pub message: String,
    /// The details, by name.
    pub fields: Vec<(&'static str, FieldValue)>,
}

/// The value of a field.
#[derive(Debug)]
pub enum FieldValue {
    /// Text to be quoted.
    Text(String),
    /// Text to be written as it is.
    Shown(String),
    /// A number or a boolean.
    Value(Value),
}

impl FieldValue {
    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) | Self::Shown(text) => Value::from(text.as_str()),
            Self::Value(value) => value.clone(),
        }
    }
}

impl Entry {
    /// Converts an event to an entry.
    pub fn of(event: &Event<'_>) -> Self {
        let mut entry = Self::default();
        event.record(&mut entry);
        entry
    }

    fn take(&mut self, field: &Field, value: FieldValue) {
        match (field.name(), value) {
            ("message", FieldValue::Text(text) | FieldValue::Shown(text)) => self.message = text,
            // Events that libraries log with the crate `log` have fields for their place in the code.
            (name, _) if name.starts_with("log.") => {}
            (name, value) => self.fields.push((name.trim_start_matches("r#"), value)),
        }
    }
}

impl Visit for Entry {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, FieldValue::Shown(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, FieldValue::Text(value.to_owned()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, FieldValue::Value(value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, FieldValue::Value(value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, FieldValue::Value(value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, FieldValue::Value(value.into()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::text::is_obeyed;

    fn entry(message: &str, value: &str) -> Entry {
        let fields = vec![("shown", FieldValue::Shown(value.to_owned())), ("text", FieldValue::Text(value.to_owned()))];
        Entry { message: message.to_owned(), fields }
    }

    #[test]
    fn the_journal_gets_priorities_and_neither_time_nor_colours() {
        let journal = Style::new(Format::Auto, true, true);
        let line = |level| journal.line(level, Timestamp::UNIX_EPOCH, &entry("gone", "wan0"));
        assert_eq!(line(Level::WARN), "<4>gone shown=wan0 text=\"wan0\"\n");
        let priorities =
            [Level::ERROR, Level::INFO, Level::DEBUG, Level::TRACE].map(|level| line(level)[..3].to_owned());
        assert_eq!(priorities, ["<3>", "<6>", "<7>", "<7>"]);
        assert_eq!(journal.told(Level::ERROR, "a: wrong\nb: wrong"), "<3>a: wrong\n<3>b: wrong\n");
        let json =
            Style::new(Format::Json, true, true).line(Level::INFO, Timestamp::UNIX_EPOCH, &entry("gone", "wan0"));
        let expected = r#"<6>{"fields":{"shown":"wan0","text":"wan0"},"level":"info","message":"gone","time":"1970-01"#;
        assert_eq!(json, format!("{expected}-01T00:00:00.000000Z\"}}\n"));
        assert_eq!(Style::new(Format::Plain, true, false), Style::default(), "a configured plain format stays plain");
    }

    #[test]
    fn a_terminal_gets_colours_and_other_outputs_do_not() {
        let line = |style: Style| {
            style.line(Level::INFO, Timestamp::UNIX_EPOCH, &Entry { message: "up".into(), ..Entry::default() })
        };
        assert_eq!(line(Style::default()), "1970-01-01T00:00:00.000000Z  INFO up\n");
        let coloured = line(Style::new(Format::Auto, false, true));
        assert_eq!(coloured, "\x1b[2m1970-01-01T00:00:00.000000Z\x1b[0m \x1b[32m INFO\x1b[0m up\n");
    }

    #[test]
    fn names_cannot_start_a_line_or_reverse_text() {
        let evil = "x\n<0>forged\r\x1b[2J\u{9b}31m\u{202e}\u{2066}\u{7f}";
        for format in [Format::Auto, Format::Plain, Format::Json] {
            for journal in [false, true] {
                let style = Style::new(format, journal, false);
                for line in [
                    style.line(Level::WARN, Timestamp::UNIX_EPOCH, &entry(evil, evil)),
                    style.told(Level::WARN, &evil.replace('\n', " ")),
                ] {
                    let text = line.strip_suffix('\n').unwrap();
                    assert!(!text.contains(is_obeyed), "{style:?}: {text:?}");
                }
            }
        }
        let json =
            Style { json: true, ..Style::default() }.line(Level::WARN, Timestamp::UNIX_EPOCH, &entry(evil, evil));
        let object: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((object["message"].as_str(), object["fields"]["text"].as_str()), (Some(evil), Some(evil)));
    }

    #[test]
    fn the_journal_is_recognised_by_device_and_inode() {
        let file = File::open("/dev/null").unwrap();
        let stat = fstat(&file).unwrap();
        assert!(is_the_file(&file, &format!("{}:{}", stat.st_dev, stat.st_ino)));
        for other in ["", "1", "1:", "x:y", &format!("{}:{}", stat.st_dev, stat.st_ino + 1)] {
            assert!(!is_the_file(&file, other), "{other}");
        }
    }

    #[test]
    fn an_unknown_format_is_refused_with_the_known_ones() {
        assert_eq!(Format::of("json"), Ok(Format::Json));
        assert_eq!(Format::of("xml"), Err("WEIR_LOG_FORMAT=xml: use plain, json or auto".to_owned()));
    }
}
