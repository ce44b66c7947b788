//! A question to the flow records of the past, as people type it: `src_ip=10.1.0.0/16,dst_port=443`.
//!
//! It has conditions as the `match` of a view, on the fields that a record itself has. Names of networks, autonomous
//! systems and interfaces are not in a record, and may have meant something else then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_system::text::short;

use crate::{
    Addresses,
    names::Prefix,
    view::{
        Condition, Field, KeyLayout, Lengths, Side, Unpackable, Values,
        condition::{range, small},
        field::{Comparison, FIELDS, FieldRow},
    },
    yaml::suggest::nearest,
};

/// The most conditions of a question, and the most fields by which its answer is divided.
const CONDITIONS_MAX: usize = 32;
const BY_MAX: usize = 8;
const V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
/// An example for messages.
const EXAMPLE: &str = "src_ip=10.1.0.0/16,dst_port=443";

/// A question to flow records.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowQuestion {
    /// The conditions that a record has to meet.
    pub conditions: Vec<Condition>,
    /// The fields of the rows of its answer; empty if only the sum is asked for.
    pub by: Vec<Field>,
}

impl FlowQuestion {
    /// Reads a question: conditions `FIELD=VALUE` or `FIELD!=VALUE`, separated by commas. Values of the same field are
    /// alternatives. `by` are fields such as `dst_ip` or `dst_ip/24`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and the way out.
    pub fn parse(text: &str, by: &[String]) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        if parts.len() > CONDITIONS_MAX {
            return Err(format!("{} conditions: a question has at most {CONDITIONS_MAX}", parts.len()));
        }
        let mut conditions = Vec::new();
        for part in parts {
            add(&mut conditions, part)?;
        }
        let fields = by.iter().flat_map(|names| names.split(',')).map(|name| field_of_row(name.trim()));
        let by = fields.collect::<Result<Vec<Field>, String>>()?;
        if conditions.is_empty() && by.is_empty() {
            return Err(format!("the question is empty: write conditions such as {EXAMPLE}"));
        }
        if by.len() > BY_MAX {
            return Err(format!("by {} fields: at most {BY_MAX}", by.len()));
        }
        if let Some((nth, twice)) =
            by.iter().enumerate().find(|(nth, one)| by[..*nth].iter().any(|of| of.name() == one.name()))
        {
            return Err(format!(
                "{} and {twice}: a row shows one {}, so leave one of them out",
                by[nth - 1],
                twice.name()
            ));
        }
        match KeyLayout::new(&by, 1) {
            Ok(_) => Ok(Self { conditions, by }),
            Err(Unpackable::Addresses) => Err("a row has at most two addresses: leave one field out".to_owned()),
            Err(Unpackable::Bits(_)) => Err("these fields are too many for a row: leave one out".to_owned()),
        }
    }

    /// The question, if it is about no more of addresses than may be shown. Its rows have no more of them.
    ///
    /// # Errors
    ///
    /// It is about more.
    pub fn if_shown(mut self, addresses: Addresses) -> Result<Self, String> {
        for field in &mut self.by {
            if let Field::Ip(_, Lengths { v4, v6 }) = field {
                (*v4, *v6) = ((*v4).min(addresses.bits(V4)), (*v6).min(addresses.bits(V6)));
            }
        }
        if self.can_be_answered_with(addresses) { Ok(self) } else { Err(addresses.refusal()) }
    }

    /// Returns true if records whose addresses are masked like this have all that it is about.
    pub fn can_be_answered_with(&self, addresses: Addresses) -> bool {
        let knows = |prefix: &Prefix| prefix.length() <= addresses.bits(prefix.first());
        let knows_values = |condition: &Condition| match &condition.values {
            Values::Prefixes(prefixes) => prefixes.iter().all(knows),
            _ => true,
        };
        let knows_field = |field: &Field| match field {
            Field::Ip(_, Lengths { v4, v6 }) => *v4 <= addresses.bits(V4) && *v6 <= addresses.bits(V6),
            _ => true,
        };
        self.conditions.iter().all(knows_values) && self.by.iter().all(knows_field)
    }

    /// The key of a row of a standard list that the conditions are, as `src_ip=192.0.2.7`, with these further values.
    /// `None` if the question selects something else.
    pub fn key_with(&self, further: &[(String, String)]) -> Option<String> {
        let mut fields = Vec::new();
        for Condition { field, is_negated, texts, values } in &self.conditions {
            let is_one = match values {
                Values::Prefixes(prefixes) => matches!(prefixes[..], [prefix] if prefix.first() == prefix.last()),
                Values::Ranges(ranges) => matches!(ranges[..], [(first, last)] if first == last),
                Values::Numbers(numbers) => numbers.len() == 1,
                _ => false,
            };
            // Either of two fields is no field of a row.
            if *is_negated || !is_one || field.row().either.is_some() {
                return None;
            }
            let text = match values {
                Values::Prefixes(prefixes) => prefixes[0].first().to_string(),
                _ => texts[0].clone(),
            };
            fields.push(format!("{}={text}", field.name()));
        }
        fields.extend(further.iter().map(|(name, value)| format!("{name}={value}")));
        Some(fields.join(","))
    }
}

/// Adds a condition, or a value of a field that has one already.
fn add(conditions: &mut Vec<Condition>, part: &str) -> Result<(), String> {
    let Some((name, value)) = part.split_once('=') else {
        // As keys of `weir ask` are written.
        if part.parse::<Prefix>().is_ok() {
            return add(conditions, &format!("host={part}"));
        }
        if let Some(port) = part.strip_prefix(':') {
            return add(conditions, &format!("port={port}"));
        }
        if let Some((proto, port)) = part.split_once('/').filter(|(proto, _)| proto.parse::<IpAddr>().is_err()) {
            add(conditions, &format!("proto={proto}"))?;
            return add(conditions, &format!("port={port}"));
        }
        return Err(format!("{:?} is no condition: write FIELD=VALUE, such as {EXAMPLE}", short(part)));
    };
    let (name, is_negated) = match name.strip_suffix('!') {
        Some(name) => (name.trim(), true),
        None => (name.trim(), false),
    };
    let row = row(name)?;
    let values = values(row, value.trim()).map_err(|why| format!("{name}: {why}"))?;
    let known = conditions.iter_mut().find(|known| known.field == row.field && known.is_negated == is_negated);
    let Some(known) = known else {
        conditions.push(Condition { field: row.field, is_negated, texts: vec![value.trim().to_owned()], values });
        return Ok(());
    };
    known.texts.push(value.trim().to_owned());
    match (&mut known.values, values) {
        (Values::Prefixes(known), Values::Prefixes(more)) => known.extend(more),
        (Values::Ranges(known), Values::Ranges(more)) => known.extend(more),
        (Values::Numbers(known), Values::Numbers(more)) | (Values::Flags(known), Values::Flags(more)) => {
            known.extend(more);
        }
        // Values of one field are of one kind.
        _ => {}
    }
    Ok(())
}

/// Returns true if a record has this field itself.
fn is_of_record(row: &FieldRow) -> bool {
    row.source.is_none() && !matches!(row.condition, Comparison::Interfaces | Comparison::Direction)
}

fn row(name: &str) -> Result<&'static FieldRow, String> {
    let names = || FIELDS.iter().filter(|row| is_of_record(row)).map(|row| row.name);
    if let Some(row) = FieldRow::named(name) {
        if is_of_record(row) {
            return Ok(row);
        }
        let known = names().collect::<Vec<_>>().join(", ");
        return Err(format!("the flow records of the past do not have {name}: they have {known}"));
    }
    Err(match nearest(name, names()) {
        Some(meant) => format!("there is no field {:?}, did you mean {meant}?", short(name)),
        None => {
            format!("there is no field {:?} (there are: {})", short(name), names().collect::<Vec<_>>().join(", "))
        }
    })
}

fn values(row: &FieldRow, text: &str) -> Result<Values, String> {
    match row.condition {
        Comparison::Prefixes => {
            text.parse::<Prefix>().map(|prefix| Values::Prefixes(vec![prefix])).map_err(|why| why.to_string())
        }
        Comparison::Ranges { most, what, read } => {
            range(text, most, what, read).map(|range| Values::Ranges(vec![range]))
        }
        Comparison::Numbers { what, read } => small(text, what, read).map(|number| Values::Numbers(vec![number])),
        Comparison::Flags { what, read } => small(text, what, read).map(|bit| Values::Flags(vec![bit])),
        _ => Err("no condition can be on it".to_owned()),
    }
}

/// Reads a field of rows.
fn field_of_row(text: &str) -> Result<Field, String> {
    let name = text.split('/').next().unwrap_or_default();
    row(name)?;
    let field = Field::parse(text).map_err(|why| why.unwrap_or_else(|| format!("rows cannot have {name}")))?;
    match field {
        Field::Ip(Side::Host, _) => Err("by host a packet counts twice: use src_ip or dst_ip".to_owned()),
        field => Ok(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, by: &[&str]) -> Result<FlowQuestion, String> {
        FlowQuestion::parse(text, &by.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_of_a_field_are_alternatives() {
        let asked = parse("src_ip=10.1.0.0/16, dst_port=443,dst_port=8000-8080,proto!=udp,tcp_flags=syn", &[]).unwrap();
        let values: Vec<_> = asked.conditions.iter().map(|of| (of.field.name(), of.is_negated, &of.values)).collect();
        assert_eq!(
            values,
            [
                ("src_ip", false, &Values::Prefixes(vec!["10.1.0.0/16".parse().unwrap()])),
                ("dst_port", false, &Values::Ranges(vec![(443, 443), (8000, 8080)])),
                ("proto", true, &Values::Numbers(vec![17])),
                ("tcp_flags", false, &Values::Flags(vec![1])),
            ]
        );
        let same = |short: &str, long: &str| assert_eq!(parse(short, &[]), parse(long, &[]), "{short}");
        same("10.0.0.0/8,:443", "host=10.0.0.0/8,port=443");
        same("tcp/443,192.0.2.7", "proto=tcp,port=443,host=192.0.2.7");
        assert_eq!(parse("", &["dst_ip/24,dst_port", "proto"]).unwrap().by.len(), 3);
    }

    #[test]
    fn mistakes_are_named_with_the_way_out() {
        for (text, by, message) in [
            ("", &[][..], "the question is empty: write conditions such as src_ip=10.1.0.0/16,dst_port=443"),
            ("443", &[], "\"443\" is no condition: write FIELD=VALUE, such as src_ip=10.1.0.0/16,dst_port=443"),
            ("scr_ip=10.0.0.1", &[], "there is no field \"scr_ip\", did you mean src_ip?"),
            (
                "src_ip=10.0.0.1/8",
                &[],
                "src_ip: 10.0.0.1/8 is an address within a prefix: write 10.0.0.0/8 for the prefix, or \
                                       10.0.0.1 for the address alone",
            ),
            ("dst_port=70000", &[], "dst_port: 70000 is not a valid port: the largest is 65535"),
            ("dst_port=90-80", &[], "dst_port: the range 90-80 is reversed: did you mean 80-90?"),
            ("proto=tpc", &[], "proto: \"tpc\" is not a valid protocol such as tcp, udp, icmp or 47"),
            (
                "src_as=64496",
                &[],
                "the flow records of the past do not have src_as: they have src_ip, dst_ip, host, src_port, \
                                   dst_port, port, proto, ip_version, fragment, vlan, dscp, ecn, tcp_flags",
            ),
            ("proto=tcp", &["host"], "by host a packet counts twice: use src_ip or dst_ip"),
            (
                "proto=tcp",
                &["dst_ip", "dst_ip/24"],
                "dst_ip and dst_ip/24/48: a row shows one dst_ip, so leave one of them out",
            ),
        ] {
            assert_eq!(parse(text, by).unwrap_err(), message, "{text} by {by:?}");
        }
    }

    #[test]
    fn no_question_is_about_more_of_an_address_than_is_shown() {
        let ask = |text: &str, addresses| parse(text, &[]).unwrap().if_shown(addresses).is_ok();
        assert!(ask("src_ip=10.1.2.3", Addresses::Full) && ask("src_ip=10.1.0.0/16,dst_port=443", Addresses::Prefix));
        assert!(!ask("src_ip=10.1.2.3", Addresses::Prefix) && !ask("dst_ip!=2001:db8:1:2::/64", Addresses::Prefix));
        assert!(!ask("host=10.0.0.0/8", Addresses::None) && ask("dst_port=443", Addresses::None));
        let rows = parse("proto=tcp", &["dst_ip"]).unwrap();
        assert!(!rows.can_be_answered_with(Addresses::Prefix));
        assert_eq!(rows.if_shown(Addresses::Prefix).unwrap().by[0].to_string(), "dst_ip/24/48");
    }

    #[test]
    fn single_values_are_the_key_of_a_row() {
        let key = |text: &str| parse(text, &["dst_ip"]).unwrap().key_with(&[("dst_ip".to_owned(), "::1".to_owned())]);
        assert_eq!(key("src_ip=10.1.2.3").unwrap(), "src_ip=10.1.2.3,dst_ip=::1");
        for other in ["src_ip=10.1.2.0/24", "src_ip!=10.1.2.3", "src_port=1-2", "port=443", "src_port=1,src_port=2"] {
            assert_eq!(key(other), None, "{other}");
        }
    }
}
