//! Reads the section `views`: the user's questions. Each wrong field, value or combination is refused at its place.

use std::ops::RangeInclusive;

use weir_system::text::short;

use super::interface::{SLOTS_MAX, WAYS, interface_name};
use super::limits::{
    CONDITION_VALUES_MAX, DISTINCT_ERROR, DISTINCT_FIELDS_MAX, FIELDS_MAX, TOP, TOP_ERROR, UNIQUE_ERROR,
    VIEW_NAME_BYTES, VIEWS_MAX,
};
use super::section::{Field, Section};
use super::suggest::nearest;
use super::{Config, Estimates};
use crate::{
    names::Prefix,
    view::{
        Condition, FLOW, HOST, KeyLayout, Measure, Side, Unpackable, Values, View, condition,
        field::{self, Comparison, FIELDS, FieldRow, Source},
    },
};

/// Names that stand for several fields.
const ALIASES: [(&str, &[&str]); 3] = [
    ("flow", &["src_ip", "dst_ip", "src_port", "dst_port", "proto"]),
    ("pair", &["src_ip", "dst_ip"]),
    ("service", &["proto", "port"]),
];

/// Reads the section `views`. Leaves out views with mistakes.
pub(super) fn views(field: &Field<'_>, defaults: &Config) -> Option<Vec<View>> {
    let mut taken: Vec<(Field<'_>, View)> = Vec::new();
    for field in field.list(VIEWS_MAX, "[{name: web, match: {dst_port: 443}, by: [src_ip], measure: bytes}]")? {
        let Some(view) = view(&field, defaults, None) else { continue };
        match taken.iter().find(|(_, earlier)| earlier.name == view.name) {
            Some((earlier, _)) => field.refuse(format!("the name {} is taken by {}", view.name, earlier.path())),
            None => taken.push((field, view)),
        }
    }
    Some(taken.into_iter().map(|(_, view)| view).collect())
}

/// Reads one view. `name` is its default name; if it is `None`, the view needs a name.
pub(super) fn view(field: &Field<'_>, defaults: &Config, name: Option<&str>) -> Option<View> {
    let before = field.mistakes();
    let view = field.section("{name: web, by: [src_ip], measure: bytes}", |s| {
        let own = match name {
            Some(default) => s.get("name", default.to_owned(), |f| view_name(&f, VIEW_NAME_BYTES)),
            None => s
                .require("name", "the name of this view in reports", |f| view_name(&f, VIEW_NAME_BYTES))
                .unwrap_or_default(),
        };
        let mut of_hosts = false;
        let measure = s.get("measure", Measure::Bytes, |f| {
            of_hosts = f.is_word_of(&["hosts"]);
            measure(&f)
        });
        let by_field = s.field("by");
        let unless_given = || if of_hosts { vec![HOST] } else { Vec::new() };
        let by = by_field.as_ref().and_then(|f| fields(f, FIELDS_MAX)).unwrap_or_else(unless_given);
        let per_field = s.field("per");
        let per_interface = per_field.as_ref().and_then(|f| f.choice(&[("interface", true)])).unwrap_or(false);
        let match_field = s.field("match");
        let entropy = s.field("entropy");
        let error = s.field("error");
        let (usual_error, errors) = errors(&measure, by.is_empty(), &defaults.estimates);
        // If `measure` or `by` is wrong, the valid errors are not known yet.
        let is_known = field.mistakes() == before;
        let view = View {
            name: own,
            conditions: match_field.as_ref().and_then(|f| conditions(f, defaults)).unwrap_or_default(),
            top: s.get("top", defaults.report.top, |f| f.count(TOP).map(|top| top as usize)),
            follows_top_error: error.is_none() && (measure.is_tally() || measure == Measure::NewFlows),
            error: error.filter(|_| is_known).and_then(|f| f.ratio(errors)).unwrap_or(usual_error),
            by,
            measure,
            per_interface,
            has_entropy: entropy.as_ref().and_then(Field::flag).unwrap_or(false),
            of_hosts,
        };
        check(&view, by_field.as_ref().unwrap_or(field), per_field.as_ref());
        if let Some(entropy) = entropy.filter(|_| view.has_entropy) {
            check_entropy(&view, &entropy);
        }
        if view.of_hosts && view.by != [HOST] {
            by_field
                .as_ref()
                .unwrap_or(field)
                .refuse("`measure: hosts` has a row for each own address: write `by: [host]`, or leave `by` out");
        }
        if view.measure == Measure::NewFlows {
            check_new_flows(&view, field, [by_field.as_ref(), match_field.as_ref(), per_field.as_ref()]);
        }
        check_needs(&view.by, by_field.as_ref().unwrap_or(field), defaults);
        if let Measure::Distinct(of) = &view.measure {
            check_needs(of, field, defaults);
        }
        view
    })?;
    (field.mistakes() == before).then_some(view)
}

/// The default error of a view, and the range that it may set.
const fn errors(measure: &Measure, has_one_row: bool, defaults: &Estimates) -> (f64, RangeInclusive<f64>) {
    match measure {
        Measure::Bytes | Measure::Packets | Measure::NewFlows => (defaults.top_error, TOP_ERROR),
        Measure::Flows | Measure::Distinct(_) if has_one_row => (defaults.unique_error, UNIQUE_ERROR),
        Measure::Flows | Measure::Distinct(_) => (Measure::USUAL_DISTINCT_ERROR, DISTINCT_ERROR),
    }
}

/// Reads a name for reports, with this range of bytes.
pub(super) fn view_name(field: &Field<'_>, bytes: RangeInclusive<usize>) -> Option<String> {
    let name = field.text()?;
    if bytes.contains(&name.len()) && name.chars().all(is_plain) {
        return Some(name.to_owned());
    }
    let (min, max) = bytes.into_inner();
    field.refuse(format!("{:?} is not a valid name: {min} to {max} letters, digits, _, - and .", short(name)));
    None
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// Checks the combinations of settings.
fn check(view: &View, by: &Field<'_>, per: Option<&Field<'_>>) {
    use field::Field as F;
    let has = |wanted: fn(&F) -> bool| view.by.iter().any(wanted);
    if let Some(per) = per.filter(|_| view.per_interface && has(|field| *field == F::Interface)) {
        per.refuse("`by` has `interface` already: a table for each interface, or a row for each, but not both");
        return;
    }
    if view.per_interface && has(|field| *field == F::Direction) {
        by.refuse("`per: interface` has a table for each direction already: leave `direction` out");
        return;
    }
    for (nth, one) in view.by.iter().enumerate() {
        if let Some(other) = view.by[..nth].iter().find(|other| other.name() == one.name()) {
            by.refuse(format!("{other} and {one}: a row shows one {}, so leave one of them out", one.name()));
            return;
        }
    }
    let interface = view.per_interface.then_some(F::Interface);
    let all: Vec<F> = view.by.iter().copied().chain(interface).collect();
    match KeyLayout::new(&all, SLOTS_MAX) {
        Ok(_) => (),
        Err(Unpackable::Addresses) => by.refuse("a key has at most two addresses"),
        Err(Unpackable::Bits(bits)) => {
            by.refuse(format!(
                "these fields take {bits} bits, and a key has room for 63 besides addresses: leave one out"
            ));
        }
    }
    let sides = |side| view.by.iter().filter(|field| matches!(field, F::Ip(one, _) if *one == side)).count();
    if sides(Side::Host) > 0 && sides(Side::Src) + sides(Side::Dst) > 0 {
        by.refuse("`host` is either address: it cannot be combined with `src_ip` or `dst_ip`");
    }
    if let Measure::Distinct(of) = &view.measure
        && let Some(same) = of.iter().find(|field| view.by.contains(field))
    {
        let way_out = if of.len() > 1 {
            format!(
                "leave it out of `distinct: [{}]`",
                of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            )
        } else {
            "a count of its distinct values would always be 1".to_owned()
        };
        by.refuse(format!("each row has only one {same}: {way_out}"));
    }
    if matches!(view.measure, Measure::Flows | Measure::NewFlows) && FLOW.iter().all(|field| view.by.contains(field)) {
        by.refuse("each row is one flow: a count of its flows would always be 1");
    }
}

fn check_entropy(view: &View, at: &Field<'_>) {
    let has_host = view.by.iter().any(|field| matches!(field, field::Field::Ip(Side::Host, _)));
    if !view.measure.is_tally() {
        at.refuse("an entropy is computed from bytes or packets: use one of them as `measure`");
    } else if view.by.is_empty() {
        at.refuse("without `by` there is one key, and its entropy is 0: name fields such as `by: [src_ip]`");
    } else if view.per_interface {
        at.refuse(
            "an entropy covers all interfaces together: leave `per` out, or write one view for each with `match`",
        );
    } else if has_host {
        at.refuse("by `host` a packet counts twice: use `src_ip` or `dst_ip`");
    }
}

/// Checks that a view of new flows has no field that differs between the records of a flow. A flow is new only once, in
/// the record that weir reads first, so such fields cannot describe it.
fn check_new_flows(view: &View, at: &Field<'_>, [by, conditions, per]: [Option<&Field<'_>>; 3]) {
    if let Some(per) = per.filter(|_| view.per_interface) {
        per.refuse("a flow is new only on the interface where weir sees it first: leave `per` out");
    }
    let differs = |what: &str| {
        format!("`new_flows` counts flows, and packets of one flow may differ in {what}: leave it out, or use `flows`")
    };
    if let Some(field) = view.by.iter().find(|field| !field.is_of_flow()) {
        by.unwrap_or(at).refuse(differs(field.name()));
    }
    if let Some(condition) = view.conditions.iter().find(|condition| !condition.field.is_of_flow()) {
        conditions.unwrap_or(at).refuse(differs(condition.field.name()));
    }
}

/// Reads fields without duplicates. A single field needs no list.
fn fields(field: &Field<'_>, max: usize) -> Option<Vec<field::Field>> {
    let before = field.mistakes();
    let mut fields: Vec<field::Field> = Vec::new();
    let items = field.items(max, "[src_ip, dst_port]")?;
    for item in &items {
        let Some(text) = item.text() else { continue };
        let alias = ALIASES.iter().find(|(alias, _)| *alias == text);
        for name in alias.map_or(vec![text], |(_, names)| names.to_vec()) {
            let parsed = match field::Field::parse(name) {
                Ok(parsed) => parsed,
                Err(why) => {
                    item.refuse(why.unwrap_or_else(|| unknown_field(name)));
                    continue;
                }
            };
            if fields.contains(&parsed) {
                item.refuse(format!("{parsed} is listed twice"));
            } else {
                fields.push(parsed);
            }
        }
    }
    (field.mistakes() == before).then_some(fields)
}

fn unknown_field(name: &str) -> String {
    let known = || field::Field::names().chain(ALIASES.iter().map(|(alias, _)| *alias));
    let written = short(name);
    match nearest(name, known()) {
        Some(meant) => format!("there is no field {written:?}, did you mean {meant}?"),
        None => format!("there is no field {written:?} (there are: {})", known().collect::<Vec<_>>().join(", ")),
    }
}

fn measure(field: &Field<'_>) -> Option<Measure> {
    if field.is_map() {
        let of = field.section("{distinct: [src_ip]}", |s| {
            s.require("distinct", "the field or fields of which to count different values", |f| {
                fields(&f, DISTINCT_FIELDS_MAX).filter(|of| {
                    let has_host = of.iter().any(|one| matches!(one, field::Field::Ip(Side::Host, _)));
                    if of.is_empty() {
                        f.refuse("names no field");
                    } else if has_host {
                        f.refuse("`host` is two addresses of each record: count `src_ip` or `dst_ip`");
                    } else if let Err(why) = KeyLayout::new(of, SLOTS_MAX) {
                        f.refuse(match why {
                            Unpackable::Addresses => "at most two addresses".to_owned(),
                            Unpackable::Bits(bits) => format!("these fields take {bits} bits, of 63 at most"),
                        });
                    } else {
                        return true;
                    }
                    false
                })
            })
        })?;
        return of.map(Measure::Distinct);
    }
    const LEAST: &str = "least";
    if field.is_word_of(&[LEAST, "bottom", "min", "quantiles", "p99", "average", "mean"]) {
        field.refuse(
            "cannot be answered: in fixed memory weir can only find the largest of any number of keys, and records hold \
             sums. Use bytes, packets, hosts, flows, new_flows or {distinct: FIELD}",
        );
        return None;
    }
    field
        .choice_of(
            "one of bytes, packets, hosts, flows, new_flows, or a map such as {distinct: src_ip}",
            // Hosts are ordered by bytes.
            &[("bytes", 0), ("packets", 1), ("flows", 2), ("new_flows", 3), ("hosts", 0)],
        )
        .map(|nth| match nth {
            0 => Measure::Bytes,
            1 => Measure::Packets,
            2 => Measure::Flows,
            _ => Measure::NewFlows,
        })
}

fn conditions(field: &Field<'_>, config: &Config) -> Option<Vec<Condition>> {
    let mut conditions = Vec::new();
    field.section("{proto: tcp, dst_port: [80, 443]}", |s| {
        read_conditions(s, config, false, &mut conditions);
        if let Some(not) = s.field("not") {
            not.section("{dst_port: 22}", |s| read_conditions(s, config, true, &mut conditions));
        }
    })?;
    Some(conditions)
}

fn read_conditions(s: &mut Section<'_>, config: &Config, is_negated: bool, conditions: &mut Vec<Condition>) {
    for row in FIELDS {
        let read = s.field(row.name).and_then(|field| condition(row, &field, config));
        let condition = |(texts, values)| Condition { field: row.field, is_negated, texts, values };
        conditions.extend(read.map(condition));
    }
}

/// Reads the values of a condition on a field.
fn condition(row: &FieldRow, field: &Field<'_>, config: &Config) -> Option<(Vec<String>, Values)> {
    if matches!(row.source, Some(Source::Systems | Source::Countries)) {
        check_needs(&[row.field], field, config);
    }
    match row.condition {
        Comparison::Prefixes => prefixes(field),
        Comparison::Ranges { most, what, read } => ranges(field, most, what, read),
        Comparison::Numbers { what, read } => numbers(field, what, read).map(with(Values::Numbers)),
        Comparison::Flags { what, read } => numbers(field, what, read).map(with(Values::Flags)),
        Comparison::Countries => countries(field),
        Comparison::Networks => networks(field, config),
        Comparison::Interfaces => values(field, |item, _| interface_name(item)).map(with(Values::Interfaces)),
        Comparison::Direction => Some((vec![field.plain()?], Values::Direction(field.choice(&WAYS)?))),
    }
}

/// Adds the meaning of values to their texts.
fn with<T>(meaning: fn(Vec<T>) -> Values) -> impl Fn((Vec<String>, Vec<T>)) -> (Vec<String>, Values) {
    move |(texts, values)| (texts, meaning(values))
}

/// Reads values: each as written, and as `read` parses it.
fn values<T>(field: &Field<'_>, mut read: impl FnMut(&Field<'_>, &str) -> Option<T>) -> Option<(Vec<String>, Vec<T>)> {
    let items = field.items(CONDITION_VALUES_MAX, "[80, 443]")?;
    if items.is_empty() {
        field.refuse("an empty list matches nothing: leave the key out, or name a value");
        return None;
    }
    let (mut texts, mut values) = (Vec::new(), Vec::new());
    for item in items {
        let Some(text) = item.plain() else { continue };
        if let Some(value) = read(&item, &text) {
            texts.push(text);
            values.push(value);
        }
    }
    (!values.is_empty()).then_some((texts, values))
}

fn numbers(field: &Field<'_>, what: &str, read: fn(&str) -> Option<u8>) -> Option<(Vec<String>, Vec<u8>)> {
    values(field, |item, text| accepted(item, condition::small(text, what, read)))
}

/// Reads numbers and ranges of numbers, parsed by `read`.
fn ranges(field: &Field<'_>, most: u32, what: &str, read: fn(&str) -> Option<u32>) -> Option<(Vec<String>, Values)> {
    let (texts, ranges) = values(field, |item, text| accepted(item, condition::range(text, most, what, read)))?;
    Some((texts, Values::Ranges(ranges)))
}

/// The value that was read. Refuses it at its place if there is none.
fn accepted<T>(item: &Field<'_>, read: Result<T, impl ToString>) -> Option<T> {
    read.map_err(|why| item.refuse(why.to_string())).ok()
}

fn prefixes(field: &Field<'_>) -> Option<(Vec<String>, Values)> {
    let (texts, prefixes) = values(field, |item, text| accepted(item, text.parse::<Prefix>()))?;
    Some((texts, Values::Prefixes(prefixes)))
}

/// Reads names of networks.
fn networks(field: &Field<'_>, config: &Config) -> Option<(Vec<String>, Values)> {
    let (texts, names) = values(field, |item, text| {
        let names = || config.networks.iter().map(|network| network.name.as_str());
        if names().any(|name| name == text) {
            return Some(text.to_owned());
        }
        let way_out = match nearest(text, names()) {
            Some(meant) => format!("did you mean {meant}?"),
            None if config.networks.is_empty() => "name some under `networks:`".to_owned(),
            None => format!("there are: {}", names().collect::<Vec<_>>().join(", ")),
        };
        item.refuse(format!("there is no network {:?}: {way_out}", short(text)));
        None
    })?;
    Some((texts, Values::Networks(names)))
}

/// Reads countries by their two-letter codes, as in databases.
fn countries(field: &Field<'_>) -> Option<(Vec<String>, Values)> {
    let (texts, countries) = values(field, |item, text| match text.as_bytes() {
        [first, second] if first.is_ascii_alphabetic() && second.is_ascii_alphabetic() => {
            let number = u16::from_be_bytes([first.to_ascii_uppercase(), second.to_ascii_uppercase()]).into();
            Some((number, number))
        }
        _ => {
            item.refuse(format!("{:?} is not a country: expected its two letters (ISO 3166), such as DE", short(text)));
            None
        }
    })?;
    Some((texts, Values::Ranges(countries)))
}

/// Checks that the configuration has the names or databases that these fields need.
fn check_needs(fields: &[field::Field], at: &Field<'_>, config: &Config) {
    for field in fields {
        let missing = match field.row().source {
            Some(Source::Networks | Source::OwnNetworks) if config.networks.is_empty() => {
                "the names of your networks under `networks:`"
            }
            Some(Source::Systems) if config.geo.asn.is_none() => "a database: `geo: {asn: FILE}`",
            Some(Source::Countries) if config.geo.country.is_none() => "a database: `geo: {country: FILE}`",
            _ => continue,
        };
        at.refuse(format!("{field} needs {missing}"));
    }
}
