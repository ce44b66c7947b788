//! The log: lines on standard error. weir never waits for a reader.
//!
//! The code logs with [`tracing`], and its events arrive here. `format` turns an event into a line: text, text for the
//! systemd journal, or JSON. `limit` suppresses repeated lines. `writer` writes a line if it fits, and otherwise drops
//! it. `lasting` is for operations that are tried again and again.

mod format;
mod lasting;
mod limit;
mod writer;

use std::{
    env, fmt,
    io::{self, Stderr},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tracing::{Event, Level, Subscriber, warn};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    layer::{Context, SubscriberExt as _},
    util::SubscriberInitExt as _,
};

use self::{
    format::{Entry, Style},
    limit::{Limiter, More},
    writer::Log,
};
pub use self::{
    format::{Format, VARIABLE},
    lasting::Lasting,
};
use crate::{clock, text::escaped};

/// The variable that selects which lines are logged: `debug`, `weir=trace`, ...
const FILTER: &str = "WEIR_LOG";

/// The default selection. The clients of Kafka and NATS are off, because their sinks report failures.
const LINES: &str = "info,async_nats=off,rskafka=off";

/// The style of lines since [`begin`].
static STYLE: OnceLock<Style> = OnceLock::new();

/// The log of this process. When it is dropped, it logs how many lines were suppressed.
#[derive(Debug)]
pub struct Ended(Arc<Lines>);

/// Starts logging on standard error.
pub fn begin(format: Format) -> Ended {
    let style = *STYLE.get_or_init(|| Style::of_stderr(format));
    let lines = Arc::new(Lines { log: Log::new(io::stderr(), style), style, limiter: Mutex::default() });
    let wanted = env::var_os(FILTER).unwrap_or_default();
    let wanted = wanted.to_string_lossy();
    let (filter, mistake) = filter(&wanted);
    tracing_subscriber::registry().with(filter).with(ToLines(lines.clone())).init();
    if let Some(mistake) = mistake {
        warn!(
            "{FILTER}: {wanted:?} does not select lines ({mistake}): set it to warn, debug or weir=trace. weir uses {LINES}"
        );
    }
    Ended(lines)
}

/// The filter that `wanted` describes, or the default one and the mistake in `wanted`.
fn filter(wanted: &str) -> (Targets, Option<String>) {
    let default = || LINES.parse::<Targets>().unwrap_or_default();
    match wanted {
        "" => (default(), None),
        _ => match wanted.parse() {
            Ok(filter) => (filter, None),
            // The error's cause has the same text, so it is left out.
            Err(error) => (default(), Some(error.to_string())),
        },
    }
}

/// Prints a message of one line for the user who started weir, apart from the log: why weir ends. A name in it cannot
/// begin another line.
pub fn say(message: fmt::Arguments<'_>) {
    say_lines(&escaped(&message.to_string()));
}

/// Prints a message of several lines, such as all mistakes in a configuration.
pub fn say_lines(message: &str) {
    let style = *STYLE.get_or_init(|| Style::of_stderr(Format::Auto));
    Log::new(io::stderr(), style).line(&style.told(Level::ERROR, message));
}

#[derive(Debug)]
struct Lines<F = Stderr> {
    log: Log<F>,
    style: Style,
    limiter: Mutex<Limiter>,
}

impl<F: std::os::fd::AsFd> Lines<F> {
    fn limiter(&self) -> MutexGuard<'_, Limiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs how many lines were suppressed.
    fn tell(&self, now: clock::Moment, more: impl IntoIterator<Item = More>) {
        for More { level, lines, last } in more {
            let message = format!("{lines} more like it: {last}");
            self.log.line(&self.style.line(level, now.wall, &Entry { message, ..Entry::default() }));
        }
    }

    fn event(&self, event: &Event<'_>, now: clock::Moment) {
        let entry = Entry::of(event);
        let (callsite, level) = (event.metadata().callsite(), *event.metadata().level());
        let mut limiter = self.limiter();
        let more = limiter.over(now.monotonic);
        let is_admitted = limiter.admit(callsite, level, &entry.message, now.monotonic);
        drop(limiter);
        self.tell(now, more);
        if is_admitted {
            self.log.line(&self.style.line(level, now.wall, &entry));
        }
    }
}

/// Writes events as lines.
struct ToLines(Arc<Lines>);

impl<S: Subscriber> Layer<S> for ToLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.0.event(event, clock::now());
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let more = self.0.limiter().rest();
        self.0.tell(clock::now(), more);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _, os::fd::OwnedFd};

    use tracing::{info, subscriber::with_default};

    use super::*;

    #[test]
    fn the_variable_selects_lines_and_mistakes_are_reported() {
        let enables = |filter: &Targets, target: &str, level| filter.would_enable(target, &level);
        let (default, mistake) = filter("");
        assert_eq!(mistake, None);
        assert!(enables(&default, "weir::sink", Level::INFO) && !enables(&default, "weir::sink", Level::DEBUG));
        for client in ["async_nats", "rskafka::connection"] {
            assert!(!enables(&default, client, Level::ERROR), "{client}");
        }
        let (wanted, mistake) = filter("weir=trace,warn");
        assert_eq!(mistake, None);
        assert!(enables(&wanted, "weir::sink", Level::TRACE) && !enables(&wanted, "rustls", Level::INFO));
        let (wrong, mistake) = filter("weir=loud");
        assert!(mistake.is_some_and(|mistake| !mistake.is_empty()));
        assert_eq!(wrong.to_string(), default.to_string());
    }

    struct Into(Arc<Lines<OwnedFd>>);

    impl<S: Subscriber> Layer<S> for Into {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.event(event, clock::now());
        }
    }

    fn written(style: Style, happens: impl FnOnce()) -> String {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let lines = Arc::new(Lines { log: Log::new(writer, style), style, limiter: Mutex::default() });
        with_default(tracing_subscriber::registry().with(Into(lines.clone())), happens);
        let more = lines.limiter().rest();
        lines.tell(clock::now(), more);
        drop(lines);
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn repeated_messages_are_limited_and_counted() {
        let text = written(Style { journal: true, ..Style::default() }, || {
            for flap in 0..1_000 {
                warn!(flap, "the interface is gone");
            }
            info!("something else");
        });
        let lines: Vec<_> = text.lines().collect();
        let gone = lines.iter().filter(|line| line.starts_with("<4>the interface is gone flap=")).count();
        assert_eq!(gone, limit::LINES_MAX as usize, "{text}");
        assert!(lines.contains(&"<6>something else"), "{text}");
        let more = format!("<4>{} more like it: the interface is gone", 1_000 - limit::LINES_MAX);
        assert_eq!(lines.last(), Some(&more.as_str()), "once");
        assert_eq!(lines.len(), gone + 2, "{text}");
    }

    #[test]
    fn log_lines_have_their_fields_in_every_format() {
        let happens =
            || warn!(interface = %"wan0", packets = 7, direction = "ingress", "the \u{202e}link\n{}", "is down");
        let text = written(Style::default(), happens);
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{text}");
        let expected = " WARN the \\u{202e}link\\nis down interface=wan0 packets=7 direction=\"ingress\"\n";
        assert_eq!(rest, expected);
        let text = written(Style { json: true, ..Style::default() }, happens);
        assert!(text.is_ascii() && text.lines().count() == 1, "{text}");
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["level"], "warn");
        assert_eq!(object["message"], "the \u{202e}link\nis down");
        assert_eq!(object["fields"], serde_json::json!({"interface": "wan0", "packets": 7, "direction": "ingress"}));
    }
}
