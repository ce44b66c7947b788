//! Reads the section `alerts`: rules on the numbers of a report, and where to send notifications. A rule that can never
//! be evaluated is refused at its place.

use std::fmt;

use http::Uri;
use serde::{Serialize, Serializer, ser::SerializeMap};
use weir_system::text::short;

use super::interface::interface_name;
use super::limits::{ALERT_NAME_BYTES, ALERT_RULES_MAX, ALERT_WINDOWS, QUEUE, TIMEOUT};
use super::section::{Field, Section};
use super::sink::{headers, url};
use super::suggest::nearest_few;
use super::units::{parse_duration, show_duration};
use super::usage::QUOTA;
use super::view::view_name;
use super::{Alerts, Config, Http, Webhook};
use crate::horizon::horizon_name;
use crate::{
    rule::{
        Quantity, Rule, WINDOWS, When, WhenError,
        catalogue::{Catalogue, HORIZONS, NEW_HOSTS},
        in_windows,
    },
    view::Standard,
};

/// Reads the alerts. `config` has the views; `is_whole` is set if these are all views that the file defines.
pub(super) fn alerts(field: &Field<'_>, config: &Config, is_whole: bool) -> Option<Alerts> {
    let names = Names {
        known: Catalogue::new(config.standard(), &config.views).with_horizons(&config.report.horizons),
        off: Catalogue::of_standard(Standard::ALL.into_iter().filter(|one| !config.standard_views.contains(one))),
        is_whole,
        config,
    };
    field.section("{rules: [{name: flood, when: totals.packets > 1 Mpkt/s}]}", |s| {
        let rules = s.get("rules", Vec::new(), |f| rules(&f, &names));
        let webhook_field = s.field("webhook");
        let webhook = webhook_field.as_ref().and_then(|f| f.section("{url: \"https://...\"}", webhook).flatten());
        let has_none = rules.is_empty() && config.usage.as_ref().is_none_or(|usage| usage.quota.is_none());
        if let Some(field) = webhook_field.filter(|field| has_none && !field.has_mistakes_below("alerts.rules")) {
            field.refuse("there is no rule that could send anything: add one to `rules`, or leave `webhook` out");
        }
        Alerts { rules, webhook }
    })
}

/// The names that a rule may use.
struct Names<'a> {
    known: Catalogue,
    /// The names of standard views that are switched off.
    off: Catalogue,
    is_whole: bool,
    config: &'a Config,
}

fn rules(field: &Field<'_>, names: &Names<'_>) -> Option<Vec<Rule>> {
    let mut taken: Vec<(Field<'_>, Rule)> = Vec::new();
    for field in field.list(ALERT_RULES_MAX, "[{name: flood, when: totals.packets > 1 Mpkt/s}]")? {
        let Some(rule) = rule(&field, names) else { continue };
        if rule.name == QUOTA && names.config.usage.as_ref().is_some_and(|usage| usage.quota.is_some()) {
            field.refuse(format!("the name {QUOTA} is taken by usage.quota"));
        }
        match taken.iter().find(|(_, earlier)| earlier.name == rule.name) {
            Some((earlier, _)) => field.refuse(format!("the name {} is taken by {}", rule.name, earlier.path())),
            None => taken.push((field, rule)),
        }
    }
    Some(taken.into_iter().map(|(_, rule)| rule).collect())
}

fn rule(field: &Field<'_>, names: &Names<'_>) -> Option<Rule> {
    field.section("{name: flood, when: totals.packets > 1 Mpkt/s}", |s| {
        let name = s.require("name", "the name of this rule in reports", |f| view_name(&f, ALERT_NAME_BYTES));
        let condition = s.require("when", "such as sources.bytes > 1 Gbit/s", |f| when(&f, names));
        let windows = s.get("for", WINDOWS, |f| windows(&f, names.config));
        let (interface, clear) = (s.field("interface"), s.field("clear"));
        let when = condition?;
        let clear = clear.map_or_else(|| Some(when.clear()), |field| back(&field, &when))?;
        let interface = interface.map(|field| only(&field, &when));
        Some(Rule {
            name: name?,
            interface: interface.map_or(Some(None), |name| name.map(Some))?,
            windows,
            clear,
            when,
        })
    })?
}

fn when(field: &Field<'_>, names: &Names<'_>) -> Option<When> {
    let text = field.text()?;
    match When::parse(text, &names.known) {
        Ok(when) if when.subject.selector.series == NEW_HOSTS && names.config.new_hosts.is_none() => {
            field.refuse("weir does not look for new hosts: add the section `new_hosts: {days: 30}`");
            None
        }
        Ok(when) => Some(when),
        Err(WhenError::Wrong(why)) => {
            field.refuse(why);
            None
        }
        Err(WhenError::Unknown(name)) => {
            names.refuse(field, &name);
            None
        }
    }
}

impl Names<'_> {
    /// Reports that no number has this name.
    fn refuse(&self, field: &Field<'_>, name: &str) {
        let (known, written) = (&self.known, short(name));
        // The name may belong to a view that has a mistake itself.
        if !self.is_whole {
            return;
        }
        if let Some((horizon, _)) = name.strip_prefix(HORIZONS).and_then(|rest| rest.split_once('.'))
            && !self.config.report.horizons.iter().any(|known| horizon_name(known.as_secs()) == horizon)
        {
            let named: Vec<_> = self.config.report.horizons.iter().map(|known| horizon_name(known.as_secs())).collect();
            let named = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
            field.refuse(format!("there is no horizon {:?} in report.horizons (there: {named})", short(horizon)));
            return;
        }
        if let Some(standard) = self.off.find(name).and_then(|subject| subject.standard) {
            let view = standard.name();
            field.refuse(format!("the view {view} is switched off: add {view} to `standard_views`"));
            return;
        }
        // Perhaps it is the name of a view without one of its numbers.
        let below = format!("{name}.");
        let parts: Vec<_> = known.names().filter(|known| known.starts_with(&below) && !name.is_empty()).collect();
        if !parts.is_empty() {
            field.refuse(format!("{written:?} is not one number: say which ({})", parts.join(", ")));
            return;
        }
        let way_out = match self.siblings(name)[..] {
            [] => match self.nearest(name, known.spellings())[..] {
                [] => "docs/ALERTS.md lists all; some are totals.packets, sources.bytes, \
                       destinations_per_source.distinct, lost.packets, coverage"
                    .to_owned(),
                ref near => format!("did you mean {}?", near.join(" or ")),
            },
            ref siblings => match self.nearest(name, siblings.iter().copied())[..] {
                [] => format!("there are {}", siblings.join(", ")),
                ref near => format!("did you mean {}?", near.join(" or ")),
            },
        };
        field.refuse(format!("a report has no number {written:?}: {way_out}"));
    }

    /// The names with the same prefix up to the first dot.
    fn siblings(&self, name: &str) -> Vec<&str> {
        let Some((first, _)) = name.split_once('.') else { return Vec::new() };
        let begin = format!("{first}.");
        self.known.names().filter(|known| known.starts_with(&begin)).take(SHOWN_MAX).collect()
    }

    /// The nearest names, at most one for each number.
    fn nearest<'k>(&self, name: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
        let (mut near, mut meant) = (nearest_few(name, known), Vec::new());
        near.retain(|spelling| {
            let subject = self.known.find(spelling).map(|subject| &subject.name);
            let is_another = !meant.contains(&subject);
            meant.push(subject);
            is_another
        });
        near
    }
}

/// The most names that a mistake lists.
const SHOWN_MAX: usize = 12;

/// Parses a number of windows: `2`, `2 windows`, `1 window`.
fn windows(field: &Field<'_>, config: &Config) -> Option<u32> {
    if field.is_text() {
        let text = field.text()?;
        let (number, word) = text.split_once(' ').unwrap_or((text, ""));
        let number = number.parse::<u64>().ok().filter(|_| ["window", "windows"].contains(&word.trim()));
        if let Some(number) = number {
            return field.count_of(number, ALERT_WINDOWS).and_then(|number| u32::try_from(number).ok());
        }
        let interval = config.report.interval;
        let way_out = parse_duration(text).map(|time| {
            let windows = time.as_nanos().div_ceil(interval.as_nanos().max(1)).max(1);
            let windows = in_windows(u32::try_from(windows).unwrap_or(u32::MAX));
            format!(": of {} each, that is `for: {windows}`", show_duration(&interval))
        });
        let written = short(text);
        field.refuse(format!("expected windows such as `2 windows`, found {written:?}{}", way_out.unwrap_or_default()));
        return None;
    }
    field.count(ALERT_WINDOWS).and_then(|number| u32::try_from(number).ok())
}

/// Reads the limit at which the alert ends, in the unit of `when`'s limit.
fn back(field: &Field<'_>, when: &When) -> Option<f64> {
    let text = field.number_as_written("a number such as 4000, with or without a unit")?;
    let written = match Quantity::parse(&text, when.subject.dimension) {
        Ok(written) => written,
        Err(why) => {
            field.refuse(why);
            return None;
        }
    };
    let clear = match (written.unit, when.limit.unit) {
        (None, _) => Some(written.number),
        (Some(unit), Some(limit)) => unit.per(limit).map(|factor| written.number * factor),
        (Some(_), None) => None,
    };
    let Some(clear) = clear else {
        let unit = when.unit().unwrap_or("none");
        field.refuse(format!("another kind of unit than that of `when`, which is {unit}: use the same"));
        return None;
    };
    if when.allows(clear) {
        return Some(clear);
    }
    let side = if when.operator.is_upward() { "above" } else { "below" };
    let limit = when.limit.number;
    field.refuse(format!("the alert would end before it begins: {clear} is {side} the limit of `when`, {limit}"));
    None
}

fn only(field: &Field<'_>, when: &When) -> Option<String> {
    if !when.subject.is_per_interface {
        let name = &when.subject.name;
        field.refuse(format!(
            "{name} covers all interfaces together: leave `interface` out, or use a view with `match: {{interface: ...}}`"
        ));
        return None;
    }
    interface_name(field)
}

fn webhook(s: &mut Section<'_>) -> Option<Webhook> {
    let url = s.require("url", "where to post to, such as https://alerts.example.net/weir", |f| url(&f));
    let timeout = s.get("timeout", Http::TIMEOUT, |f| f.duration(TIMEOUT));
    let headers = s.get("headers", Vec::new(), |f| headers(&f.secret()));
    let queue = s.get("queue", Webhook::QUEUE, |f| f.size(QUEUE));
    Some(Webhook { url: url?, timeout, headers, queue })
}

impl Webhook {
    /// The default of `queue`.
    const QUEUE: usize = 64;

    /// Returns true if the URL has more than a host. Often the rest is the only secret of a webhook.
    pub(super) fn has_path(&self) -> bool {
        has_path(&self.url)
    }
}

/// Writes a URL without the parts that may be secret.
struct Host<'a>(&'a Uri);

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(url) = self;
        let host = url.authority().map_or("", |authority| authority.as_str());
        let path = if has_path(url) { "***" } else { "" };
        write!(f, "{}://{host}/{path}", url.scheme_str().unwrap_or_default())
    }
}

fn has_path(url: &Uri) -> bool {
    url.path_and_query().is_some_and(|path| path.as_str() != "/")
}

/// Writes only the host of the URL, because the rest may be secret. For `#[serde(serialize_with)]`.
pub(super) fn write_host<S: Serializer>(url: &Uri, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Host(url))
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, timeout, headers, queue } = self;
        let mut shown = f.debug_struct("Webhook");
        shown.field("url", &format_args!("{}", Host(url))).field("timeout", timeout);
        shown.field("headers", headers).field("queue", queue).finish()
    }
}

/// Writes every setting, also those that have their defaults.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, when, interface, windows, clear } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        map.serialize_entry("when", &when.to_string())?;
        if let Some(interface) = interface {
            map.serialize_entry("interface", interface)?;
        }
        map.serialize_entry("for", &in_windows(*windows))?;
        map.serialize_entry("clear", clear)?;
        map.end()
    }
}
