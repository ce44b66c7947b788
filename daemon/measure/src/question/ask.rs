//! A query for one key, such as `src_ip=192.0.2.7`. Every list and view that has such keys answers it.
//!
//! Any row of a list can be queried as the report shows it: its fields, each with its value. An address without a
//! field, and `host`, may be on either side. [`short`] has short forms, such as `:443`.

pub mod short;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use weir_common::flow::Address;
use weir_config::{
    Addresses,
    interface::Way,
    names::Facts,
    view::{Field, Lengths, Side, ViewKey, lengths::network},
};

use super::{Question, Structure, Views};

/// A key of one view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyQuery {
    /// The index of the view that has the key.
    pub view: usize,
    /// The key, without the slot of an interface.
    pub key: ViewKey,
    /// The interfaces, if the view distinguishes them.
    pub of: OfInterface,
}

/// The interfaces that a query is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfInterface {
    /// The name of an interface; `None` means all.
    pub name: Option<String>,
    /// The direction; `None` means both.
    pub way: Option<Way>,
}

/// The name of the pseudo-field that selects a view.
const VIEW: &str = "view";
/// The name of the field that the lists of networks show.
const PREFIX: &str = "prefix";

impl KeyQuery {
    /// Parses `FIELD=VALUE,...`, an address or prefix alone, or a short form ([`short::meant`]). `interfaces` has the
    /// names that are in the report. The views that cover all packets come first.
    ///
    /// # Errors
    ///
    /// What is wrong with it or, if no view has such keys, which keys can be queried.
    pub fn parse(text: &str, views: &Views, interfaces: &[&str]) -> Result<Vec<Self>, String> {
        let Some(meant) = short::meant(text) else { return Self::parse_fields(text, views, interfaces) };
        let (mut asks, mut refused) = (Vec::new(), Vec::new());
        for fields in &meant {
            match Self::parse_fields(fields, views, interfaces) {
                Ok(more) => asks.extend(more),
                Err(why) => refused.push(why),
            }
        }
        if asks.is_empty() { Err(refused.swap_remove(0)) } else { Ok(asks) }
    }

    /// Parses the queries of a client who may see this much of addresses.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`], with the query. A query that has more of an address than the client may see is refused, too:
    /// its answer would show who is there to everyone who tries addresses out.
    pub fn parse_all(
        keys: &[String],
        views: &Views,
        interfaces: &[&str],
        addresses: Addresses,
    ) -> Result<Vec<Self>, String> {
        let mut asks = Vec::new();
        for key in keys {
            let known = Self::parse(key, views, interfaces).map_err(|why| format!("{key}: {why}"))?;
            let (shown, hidden): (Vec<_>, Vec<_>) = known.into_iter().partition(|ask| ask.is_shown(views, addresses));
            if shown.is_empty() && !hidden.is_empty() {
                return Err(format!("{key}: {}", addresses.refusal()));
            }
            asks.extend(shown);
        }
        Ok(asks)
    }

    /// Returns true if the key has no more of an address than may be shown.
    fn is_shown(&self, views: &Views, addresses: Addresses) -> bool {
        let Some(Question { by, view, .. }) = views.questions.get(self.view) else { return false };
        let is_v6 = by.layout.is_v6(&self.key);
        let like = if is_v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        view.by.iter().all(|field| match field {
            Field::Ip(_, lengths) => lengths.of(is_v6) <= addresses.bits(like),
            _ => true,
        })
    }

    /// Parses `FIELD=VALUE,...`, or an address or prefix alone.
    fn parse_fields(text: &str, views: &Views, interfaces: &[&str]) -> Result<Vec<Self>, String> {
        let asked = QueryTerms::parse(text, views, interfaces)?;
        let mut questions: Vec<(usize, &Question)> = views.questions.iter().enumerate().collect();
        questions.sort_by_key(|(_, question)| {
            let is_of_prefixes = matches!(question.structure, Structure::Prefixes { .. });
            (!question.view.conditions.is_empty(), question.view.per_interface, is_of_prefixes)
        });
        let mut asks: Vec<Self> = Vec::new();
        for sides in asked.sides()? {
            for (view, question) in &questions {
                let Some((key, of)) = asked.key(question, &sides) else { continue };
                asks.push(Self { view: *view, key, of });
            }
        }
        if asks.is_empty() { Err(asked.refusal(views)) } else { Ok(asks) }
    }
}

/// A query, part by part.
struct QueryTerms<'a> {
    /// The selected view, if any.
    view: Option<&'a str>,
    parts: Vec<Term>,
    of: OfInterface,
}

impl<'a> QueryTerms<'a> {
    fn parse(text: &'a str, views: &Views, interfaces: &[&str]) -> Result<Self, String> {
        let mut asked = Self { view: None, parts: Vec::new(), of: OfInterface::default() };
        for text in text.split(',').map(str::trim) {
            if let Some(name) = text.strip_prefix(VIEW).and_then(|rest| rest.trim_start().strip_prefix('=')) {
                asked.view = Some(known_view(name.trim(), views)?);
                continue;
            }
            let part = Term::parse(text, views.facts())?;
            // Two addresses of unknown side are a pair.
            if asked.parts.iter().any(|known| known.field == part.field && !part.is_of_either_side()) {
                return Err(format!("{} is there twice", part.field));
            }
            match &part.value {
                Value::Interface(name) => {
                    asked.of.name = Some(known_interface(name, interfaces)?);
                }
                Value::Number(number) if part.field == Field::Direction => asked.of.way = Way::of_number(*number),
                _ => {}
            }
            asked.parts.push(part);
        }
        let mut versions = asked.parts.iter().filter_map(Term::is_v6);
        if versions.next().is_some_and(|first| versions.any(|other| other != first)) {
            return Err("one address is IPv4 and the other IPv6: no packet has both".to_owned());
        }
        Ok(asked)
    }

    /// The possible sides of the addresses that may be on either side, in their order.
    fn sides(&self) -> Result<Vec<Vec<Side>>, String> {
        let either = self.parts.iter().filter(|part| part.is_of_either_side()).count();
        match either {
            0 => Ok(vec![Vec::new()]),
            1 => Ok([Side::Src, Side::Dst, Side::Host].map(|side| vec![side]).to_vec()),
            2 => Ok(vec![vec![Side::Src, Side::Dst], vec![Side::Dst, Side::Src]]),
            _ => Err(format!("{either} addresses: a key has at most two")),
        }
    }

    /// The key of a view that the query means, if the view has such a key.
    fn key(&self, question: &Question, sides: &[Side]) -> Option<(ViewKey, OfInterface)> {
        let Question { by, view, .. } = question;
        if self.view.is_some_and(|name| name != view.name) {
            return None;
        }
        let mut sides = sides.iter().copied();
        let parts: Vec<(&Term, Field)> = self
            .parts
            .iter()
            .map(|part| (part, if part.is_of_either_side() { part.field_on(sides.next()) } else { part.field }))
            .collect();
        let tells_interfaces = by.layout.slots().is_some();
        let is_known = |(part, field): &(&Term, Field)| {
            let tells_interface = tells_interfaces && matches!(field, Field::Interface | Field::Direction);
            tells_interface || view.by.iter().any(|of| part.is_of(*field, *of))
        };
        if !parts.iter().all(is_known) {
            return None;
        }
        let (mut key, mut addresses, mut is_v6) = (ViewKey::default(), 0, false);
        for of in &view.by {
            match (of, parts.iter().find(|(part, field)| part.is_of(*field, *of)).map(|(part, _)| &part.value)) {
                (Field::Ip(_, lengths), Some(Value::Address(ip, _))) => {
                    let Address(words) = network(*ip, *lengths).into();
                    key.0[2 * addresses..2 * addresses + 2].copy_from_slice(&words);
                    (addresses, is_v6) = (addresses + 1, ip.is_ipv6());
                }
                (_, Some(Value::Number(number))) => by.layout.set(&mut key, *of, *number),
                (Field::Interface, Some(_)) => {}
                // Rows omit these fields if they are unknown.
                (field, None) if field.row().zero_is_unknown => {}
                _ => return None,
            }
        }
        by.layout.set_version(&mut key, is_v6);
        Some((key, if tells_interfaces { self.of.clone() } else { OfInterface::default() }))
    }

    /// Why no view answers, and what can be queried instead.
    fn refusal(&self, views: &Views) -> String {
        let fields: Vec<_> = self.parts.iter().map(Term::wanted).collect();
        let fields = fields.join(", ");
        if let Some(view) = self.view {
            let own = views.questions.iter().find(|question| question.view.name == view);
            let has = own.map_or_else(String::new, |question| fields_of(&question.view.by));
            let has = if has.is_empty() { "no fields".to_owned() } else { has };
            let asked = if fields.is_empty() { "none".to_owned() } else { fields };
            return format!("the keys of `{view}` have {has}, but the query has {asked}");
        }
        let known: BTreeSet<_> = views.questions.iter().map(|question| fields_of(&question.view.by)).collect();
        let known: Vec<_> = known.into_iter().filter(|fields| !fields.is_empty()).collect();
        let known = known.join(" or ");
        format!("no list or view has keys of {fields}: add a view with `by: [{fields}]`, or ask by {known}")
    }
}

fn fields_of(fields: &[Field]) -> String {
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn known_view<'a>(name: &'a str, views: &Views) -> Result<&'a str, String> {
    let names = || views.questions.iter().map(|question| question.view.name.as_str());
    if names().any(|known| known == name) {
        return Ok(name);
    }
    Err(format!("there is no view {name:?} (there are: {})", names().collect::<Vec<_>>().join(", ")))
}

fn known_interface(name: &str, interfaces: &[&str]) -> Result<String, String> {
    if interfaces.contains(&name) {
        return Ok(name.to_owned());
    }
    let mut known = interfaces.to_vec();
    known.dedup();
    Err(format!("the last report has no interface {name:?} (it has: {})", known.join(", ")))
}

/// `FIELD=VALUE`, or an address alone.
struct Term {
    field: Field,
    value: Value,
}

/// The value of a field.
enum Value {
    /// An address and its prefix length.
    Address(IpAddr, u8),
    /// The name of an interface.
    Interface(String),
    /// A number, as it is in a key.
    Number(u64),
}

impl Term {
    fn parse(text: &str, facts: Facts<'_>) -> Result<Self, String> {
        let either = Field::Ip(Side::Host, Lengths::WHOLE);
        let Some((name, value)) = text.split_once('=') else {
            let value = address(text, either, Lengths::WHOLE).map_err(|_| {
                format!("{text:?} is neither FIELD=VALUE, as src_ip=192.0.2.7, nor an address, nor a port, as :443")
            })?;
            return Ok(Self { field: either, value });
        };
        let (name, value) = (name.trim(), value.trim());
        let field = if name == PREFIX { Ok(either) } else { Field::parse(name) };
        let field = field.map_err(|why| {
            why.unwrap_or_else(|| {
                let names: Vec<_> = Field::names().collect();
                format!("there is no field {name:?} (there are: {})", names.join(", "))
            })
        })?;
        let value = match field {
            Field::Ip(_, lengths) => address(value, field, lengths)?,
            Field::Interface => Value::Interface(value.to_owned()),
            _ => {
                let number = field.row().parse(value, facts);
                Value::Number(
                    number.ok_or_else(|| format!("{value:?} is not a value of {field}{}", field.row().example))?,
                )
            }
        };
        Ok(Self { field, value })
    }

    const fn is_of_either_side(&self) -> bool {
        matches!(self.field, Field::Ip(Side::Host, _))
    }

    const fn is_v6(&self) -> Option<bool> {
        if let Value::Address(ip, _) = &self.value { Some(ip.is_ipv6()) } else { None }
    }

    /// Returns the same field on this side.
    fn field_on(&self, side: Option<Side>) -> Field {
        match (self.field, side) {
            (Field::Ip(_, lengths), Some(side)) => Field::Ip(side, lengths),
            (field, _) => field,
        }
    }

    /// Returns true if the term gives the value of the field `of` of a key. `field` is the term's own field. The fields
    /// must be equal, or both addresses with the same number of bits.
    fn is_of(&self, field: Field, of: Field) -> bool {
        match (field, of, &self.value) {
            (Field::Ip(side, _), Field::Ip(of, lengths), Value::Address(ip, length)) => {
                side == of && lengths.of(ip.is_ipv6()) == *length
            }
            _ => field == of,
        }
    }

    /// The field that a view needs to answer it.
    fn wanted(&self) -> String {
        match (self.field, &self.value) {
            (Field::Ip(_, Lengths::WHOLE), Value::Address(ip, length))
                if *length != Lengths::WHOLE.of(ip.is_ipv6()) =>
            {
                let v4 = if ip.is_ipv6() { "24/" } else { "" };
                format!("{}/{v4}{length}", self.field)
            }
            _ => self.field.to_string(),
        }
    }
}

/// Parses an address or a prefix, for a field whose values have these lengths.
fn address(text: &str, field: Field, lengths: Lengths) -> Result<Value, String> {
    let (ip, length) = text.split_once('/').map_or((text, None), |(ip, length)| (ip, Some(length)));
    let ip: IpAddr = ip.parse().map_err(|_| format!("{text:?} is not an address"))?;
    let (most, of_field) = (Lengths::WHOLE.of(ip.is_ipv6()), lengths.of(ip.is_ipv6()));
    let Some(length) = length else { return Ok(Value::Address(ip, of_field)) };
    let number = length.parse().ok().filter(|length| *length <= most);
    let length = number.ok_or_else(|| format!("{text:?}: {length:?} is not a prefix length, 0 to {most}"))?;
    if lengths != Lengths::WHOLE && length != of_field {
        return Err(format!("{field} has prefixes of {of_field} bits, and {text} has others: leave one length out"));
    }
    Ok(Value::Address(ip, length))
}

#[cfg(test)]
mod tests {
    use weir_config::Config;

    use super::*;

    fn views(own: &str) -> std::sync::Arc<Views> {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus");
        let names = format!(
            "geo: {{asn: {corpus}/asn.mmdb, country: {corpus}/country.mmdb}}\n\
             networks: {{lan: {{prefixes: [10.0.0.0/8], own: true}}}}"
        );
        Views::new(&Config::parse(&format!("{names}\nviews: [{own}]"), "test").unwrap(), 4).unwrap()
    }

    /// The names of the answering views, each with the key of its row.
    fn asked(text: &str, views: &Views) -> Result<Vec<(String, serde_json::Value)>, String> {
        let of = |KeyQuery { view, key, of }: &KeyQuery| {
            let question = &views.questions[*view];
            let mut shown = question.by.layout.show(key, views.facts(), |_, _| ());
            shown.extend(of.name.iter().map(|name| ("interface".to_owned(), name.as_str().into())));
            (question.view.name.clone(), shown.into())
        };
        Ok(KeyQuery::parse(text, views, &["eth0", "ppp0"])?.iter().map(of).collect())
    }

    fn names(text: &str, views: &Views) -> Vec<String> {
        asked(text, views).unwrap_or_else(|why| panic!("{text}: {why}")).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn every_list_that_has_such_keys_answers() {
        let views = views("{name: some, by: [src_ip], match: {proto: udp}}, {name: all, by: [src_ip], top: 50}");
        let of_source = ["sources", "destinations_per_source", "ports_per_source", "all", "some"];
        assert_eq!(names("src_ip=192.0.2.1", &views), of_source, "views that match everything come first");
        assert_eq!(names("dst_ip=192.0.2.1", &views), ["destinations", "sources_per_destination"]);
        assert_eq!(names("view=all, src_ip=192.0.2.1", &views), ["all"]);
        assert_eq!(names("proto=tcp,port=443", &views), ["services"]);
        assert_eq!(names("proto=tcp", &views), ["protocols"], "a table for each interface");
        assert_eq!(names("src_ip=10.0.0.0/24", &views), ["source_prefixes"]);
        let flow = "src_port=1,dst_port=2,proto=17,src_ip=2001:db8::1,dst_ip=2001:db8::2";
        assert_eq!(names(flow, &views), ["flows"], "in any order");
    }

    #[test]
    fn an_address_alone_may_be_on_either_side() {
        let views = views("{name: everyone, by: [host]}, {name: host_ports, by: [host, dst_port]}");
        let sides = |text: &str| asked(text, &views).unwrap().into_iter().map(|(name, key)| format!("{name} {key}"));
        let of_address = [
            r#"sources {"src_ip":"192.0.2.1"}"#,
            r#"destinations_per_source {"src_ip":"192.0.2.1"}"#,
            r#"ports_per_source {"src_ip":"192.0.2.1"}"#,
            r#"destinations {"dst_ip":"192.0.2.1"}"#,
            r#"sources_per_destination {"dst_ip":"192.0.2.1"}"#,
            r#"hosts {"host":"192.0.2.1"}"#,
            r#"everyone {"host":"192.0.2.1"}"#,
        ];
        assert_eq!(sides("192.0.2.1").collect::<Vec<_>>(), of_address);
        assert_eq!(sides("host=192.0.2.1").collect::<Vec<_>>(), of_address);
        let of_network =
            [r#"source_prefixes {"src_ip":"192.0.2.0/24"}"#, r#"destination_prefixes {"dst_ip":"192.0.2.0/24"}"#];
        for text in ["192.0.2.0/24", "prefix=192.0.2.0/24", "host=192.0.2.7/24"] {
            assert_eq!(sides(text).collect::<Vec<_>>(), of_network, "{text}");
        }
        let pairs: Vec<_> = sides("192.0.2.1, 192.0.2.2").filter(|row| row.starts_with("pairs")).collect();
        let both = [
            r#"pairs {"dst_ip":"192.0.2.2","src_ip":"192.0.2.1"}"#,
            r#"pairs {"dst_ip":"192.0.2.1","src_ip":"192.0.2.2"}"#,
        ];
        let sorted = |rows: &[&str]| rows.iter().map(|row| row.chars().collect::<BTreeSet<_>>()).collect::<Vec<_>>();
        assert_eq!(pairs.len(), 2, "{pairs:?}");
        assert_eq!(sorted(&pairs.iter().map(String::as_str).collect::<Vec<_>>()), sorted(&both));
        assert_eq!(names("host=192.0.2.1,dst_port=80", &views), ["host_ports"]);
    }

    #[test]
    fn a_query_with_more_of_an_address_than_a_client_may_see_is_refused() {
        let views = views("{name: hosts, by: [host, dst_port]}, {name: wide, by: [src_ip/16/32]}");
        let asked = |text: &str, addresses| {
            let asks = KeyQuery::parse_all(&[text.to_owned()], &views, &["eth0"], addresses)?;
            Ok::<_, String>(asks.iter().map(|ask| views.questions[ask.view].view.name.clone()).collect::<Vec<_>>())
        };
        let addresses = ["192.0.2.1", "src_ip=192.0.2.1", "192.0.2.1, 192.0.2.2", "2001:db8::1", "192.0.2.7:443"];
        for text in addresses {
            assert!(asked(text, Addresses::Full).is_ok(), "{text}");
            for hides in [Addresses::Prefix, Addresses::None] {
                let why = asked(text, hides).unwrap_err();
                assert!(why.contains(&format!("{text}: the configuration has `addresses: {}`", hides.name())), "{why}");
            }
        }
        for text in ["192.0.2.0/24", "2001:db8::/48", "192.0.0.0/16", "2001:db8::/32"] {
            assert_eq!(asked(text, Addresses::Prefix), asked(text, Addresses::Full), "{text}");
            assert!(asked(text, Addresses::None).unwrap_err().contains("no question about an address"), "{text}");
        }
        for text in [":443", "tcp", "tcp/443"] {
            assert_eq!(asked(text, Addresses::None), asked(text, Addresses::Full), "{text}");
        }
    }

    #[test]
    fn ports_services_and_protocols_have_short_forms() {
        let views = views("{name: to, by: [dst_port]}, {name: hosts, by: [host, dst_port]}");
        let asked = |text: &str| asked(text, &views).unwrap().into_iter().map(|(name, key)| format!("{name} {key}"));
        let services = [
            r#"services {"port":443,"proto":"tcp"}"#,
            r#"services {"port":443,"proto":"udp"}"#,
            r#"to {"dst_port":443}"#,
        ];
        assert_eq!(asked(":443").collect::<Vec<_>>(), services);
        assert_eq!(asked("tcp/443").collect::<Vec<_>>(), services[..1]);
        assert_eq!(asked("tcp").collect::<Vec<_>>(), [r#"protocols {"proto":"tcp"}"#]);
        assert_eq!(asked("192.0.2.7:443").collect::<Vec<_>>(), [r#"hosts {"dst_port":443,"host":"192.0.2.7"}"#]);
    }

    #[test]
    fn every_value_that_a_row_shows_can_be_queried() {
        let fields = "src_as dst_as src_net dst_net src_country dst_country scope tcp_flags dscp ecn vlan fragment \
                      ip_version proto port src_port dst_port direction";
        let own: Vec<_> = fields.split(' ').map(|field| format!("{{name: v_{field}, by: [{field}]}}")).collect();
        let views = views(&own.join(", "));
        for (asked_for, shown) in [
            ("src_as=64496", r#"{"src_as":64496}"#),
            ("dst_as=AS64496", r#"{"dst_as":64496}"#),
            ("src_net=lan", r#"{"src_net":"lan"}"#),
            ("src_net=", "{}"),
            ("dst_country=de", r#"{"dst_country":"DE"}"#),
            ("dst_country=", "{}"),
            ("scope=out", r#"{"scope":"out"}"#),
            ("tcp_flags=SA", r#"{"tcp_flags":"SA"}"#),
            ("tcp_flags=", r#"{"tcp_flags":""}"#),
            ("dscp=ef", r#"{"dscp":46}"#),
            ("dscp=46", r#"{"dscp":46}"#),
            ("ecn=ce", r#"{"ecn":3}"#),
            ("vlan=7", r#"{"vlan":7}"#),
            ("fragment=true", r#"{"fragment":true}"#),
            ("ip_version=6", r#"{"ip_version":6}"#),
            ("proto=253", r#"{"proto":"253"}"#),
            ("proto=TCP", r#"{"proto":"tcp"}"#),
            ("direction=egress", r#"{"direction":"egress"}"#),
        ] {
            let (field, _) = asked_for.split_once('=').unwrap();
            let answers = asked(asked_for, &views).unwrap_or_else(|why| panic!("{asked_for}: {why}"));
            let own = answers.iter().find(|(name, _)| *name == format!("v_{field}"));
            assert_eq!(own.map(|(_, key)| key.to_string()), Some(shown.to_owned()), "{asked_for}");
        }
        for (wrong, why) in [
            ("tcp_flags=x", "\"x\" is not a value of tcp_flags: write the letters"),
            ("src_net=wan", "\"wan\" is not a value of src_net: write the name of a network"),
            ("scope=up", "in, out, transit or internal"),
            ("dst_port=65536", "\"65536\" is not a value of dst_port"),
            ("dst_country=DEU", "two letters"),
        ] {
            let error = asked(wrong, &views).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn rows_with_unknown_fields_can_be_queried() {
        let views = views("{name: nets, by: [src_net, dst_net]}, {name: sum, match: {proto: tcp}}");
        assert_eq!(asked("dst_net=lan", &views).unwrap(), [("nets".to_owned(), serde_json::json!({"dst_net": "lan"}))]);
        assert_eq!(asked("view=nets", &views).unwrap(), [("nets".to_owned(), serde_json::json!({}))]);
        assert_eq!(asked("view=sum", &views).unwrap(), [("sum".to_owned(), serde_json::json!({}))]);
    }

    #[test]
    fn interfaces_are_queried_by_name() {
        let views = views("{name: ports, by: [dst_port], per: interface}, {name: each, by: [interface, proto]}");
        let key = |shown| [("ports".to_owned(), shown)];
        let named = serde_json::json!({"dst_port": 443, "interface": "ppp0"});
        assert_eq!(asked("interface=ppp0,direction=egress,dst_port=443", &views).unwrap(), key(named));
        assert_eq!(asked("dst_port=443", &views).unwrap(), key(serde_json::json!({"dst_port": 443})));
        assert_eq!(names("interface=eth0,direction=ingress,proto=tcp", &views), ["each", "protocols"]);
        let why = asked("interface=eth1,proto=tcp", &views).unwrap_err();
        assert_eq!(why, "the last report has no interface \"eth1\" (it has: eth0, ppp0)");
    }

    #[test]
    fn the_error_names_each_possible_key_once() {
        let views = views("{name: a, by: [vlan], per: interface}, {name: b, by: [dst_ip]}");
        let known = "dscp or dst_ip or dst_ip/24/48 or host or ip_version or proto or proto,port or src_ip or src_ip,dst_ip or \
                     src_ip,dst_ip,src_port,dst_port,proto or src_ip/24/48 or vlan";
        assert_eq!(
            asked("dst_port=3", &views).unwrap_err(),
            format!("no list or view has keys of dst_port: add a view with `by: [dst_port]`, or ask by {known}")
        );
        let why = asked("view=b,src_ip=192.0.2.1", &views).unwrap_err();
        assert_eq!(why, "the keys of `b` have dst_ip, but the query has src_ip");
        assert!(
            asked("view=c,src_ip=192.0.2.1", &views).unwrap_err().starts_with("there is no view \"c\" (there are: ")
        );
    }

    #[test]
    fn a_prefix_is_queried_with_its_length_in_either_place() {
        let views = views("{name: host, by: [host/16, proto]}, {name: whole, by: [dst_ip/32/64]}");
        let ask = |text: &str| asked(text, &views);
        let prefixes = ask("src_ip/24/48=10.0.0.0").unwrap();
        assert_eq!(prefixes[0].0, "source_prefixes");
        for same in ["src_ip=10.0.0.0/24", "src_ip=10.0.0.9/24", "src_ip/24=10.0.0.0/24"] {
            assert_eq!(ask(same).unwrap(), prefixes, "{same}");
        }
        assert_eq!(ask("src_ip=2001:db8::/48").unwrap()[0].0, "source_prefixes");
        assert_eq!(ask("src_ip=10.0.0.1/32").unwrap(), ask("src_ip=10.0.0.1").unwrap());
        assert_eq!(ask("proto=tcp,host=10.0.0.1/16").unwrap(), ask("host/16=10.0.0.0,proto=6").unwrap());
        assert_eq!(ask("dst_ip=2001:db8:1:2::/64").unwrap()[0].0, "whole");
        let of_v4: Vec<_> = ask("dst_ip=10.0.0.1").unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(of_v4.contains(&"whole".to_owned()), "a /32 is shown as an address: {of_v4:?}");
        for (wrong, why) in [
            ("src_ip=10.0.0.0/16", "no list or view has keys of src_ip/16: add a view with `by: [src_ip/16]`"),
            ("src_ip=2001:db8::/56", "no list or view has keys of src_ip/24/56"),
            ("src_ip/24=10.0.0.0/16", "src_ip/24/48 has prefixes of 24 bits, and 10.0.0.0/16 has others"),
            ("src_ip=10.0.0.1/99", "\"10.0.0.1/99\": \"99\" is not a prefix length, 0 to 32"),
            ("src_ip=10.0.0.1/x", "\"x\" is not a prefix length"),
            ("src_ip=10.0.0/8", "\"10.0.0/8\" is not an address"),
            ("src_ip=10.0.0.1,src_ip=10.0.0.2", "src_ip is there twice"),
            ("10.0.0.1,2001:db8::1", "one address is IPv4 and the other IPv6"),
            ("10.0.0.1,10.0.0.2,10.0.0.3", "3 addresses: a key has at most two"),
            ("443", "\"443\" is neither FIELD=VALUE, as src_ip=192.0.2.7, nor an address, nor a port, as :443"),
        ] {
            let error = ask(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
