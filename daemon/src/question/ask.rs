//! A question about one key: `src_ip=192.0.2.7`, answered by the view that groups by these fields.

use std::{collections::BTreeSet, net::IpAddr};

use weir_common::flow::Address;

use super::{Question, Structure, Views};
use crate::{
    names::protocol::protocol_number,
    view::{By, Field, Lengths, ViewKey, field::network},
};

/// A key to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The number of the view that knows.
    pub view: usize,
    /// The key.
    pub key: ViewKey,
}

impl Ask {
    /// Reads `FIELD=VALUE,...`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or which views there are if none has these fields.
    pub fn parse(text: &str, views: &Views) -> Result<Self, String> {
        let mut asked: Vec<Part<'_>> = Vec::new();
        for part in text.split(',') {
            let part = Part::parse(part)?;
            if asked.iter().any(|known| known.field == part.field) {
                return Err(format!("{} is there twice", part.field));
            }
            asked.push(part);
        }
        let are_these = |fields: &[Field]| {
            fields.len() == asked.len() && fields.iter().all(|field| asked.iter().any(|part| part.is_of(*field)))
        };
        let can_be_asked = |question: &Question| !question.view.per_interface && question.view.measure.is_tally();
        let askable = || views.questions.iter().enumerate().filter(|(_, question)| can_be_asked(question));
        // One that matches everything is best. A view of the user's knows a prefix better than the standard one.
        let best = askable().filter(|(_, question)| are_these(question.by.fields())).min_by_key(|(_, question)| {
            (!question.view.conditions.is_empty(), matches!(question.structure, Structure::Prefixes { .. }))
        });
        let Some((view, Question { by, .. })) = best else {
            let fields: Vec<_> = asked.iter().map(Part::wanted).collect();
            let fields = fields.join(", ");
            let known: BTreeSet<_> = askable().map(|(_, question)| by_name(&question.by)).collect();
            let known = Vec::from_iter(known).join(" or ");
            let of_interfaces = views.questions.iter().find(|question| {
                question.view.per_interface && question.view.measure.is_tally() && are_these(&question.view.by)
            });
            let but = of_interfaces.map_or_else(String::new, |question| {
                format!(" (`{}` has a table for each interface, and cannot be asked)", question.view.name)
            });
            return Err(format!(
                "no view has bytes and packets by {fields}{but}: add a view with `by: [{fields}]`, or ask by {known}"
            ));
        };
        let mut key = Key { key: ViewKey::default(), addresses: 0, is_v6: None };
        for field in by.fields() {
            let Some(part) = asked.iter().find(|part| part.is_of(*field)) else { continue };
            match (field, part.prefix) {
                (Field::Ip(_, lengths), Some(prefix)) => key.address(network(prefix.ip, *lengths))?,
                _ => by.set(&mut key.key, *field, number(*field, part.value)?),
            }
        }
        by.set_version(&mut key.key, key.is_v6.unwrap_or(false));
        Ok(Self { view, key: key.key })
    }
}

fn by_name(by: &By) -> String {
    by.fields().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

struct Key {
    key: ViewKey,
    addresses: usize,
    is_v6: Option<bool>,
}

impl Key {
    fn address(&mut self, ip: IpAddr) -> Result<(), String> {
        if self.is_v6.is_some_and(|is_v6| is_v6 != ip.is_ipv6()) {
            return Err("one address is IPv4 and the other IPv6: no packet has both".to_owned());
        }
        self.is_v6 = Some(ip.is_ipv6());
        let Address(words) = ip.into();
        self.key.0[2 * self.addresses..2 * self.addresses + 2].copy_from_slice(&words);
        self.addresses += 1;
        Ok(())
    }
}

/// `FIELD=VALUE`.
struct Part<'a> {
    field: Field,
    value: &'a str,
    /// Of a field that is an address.
    prefix: Option<Asked>,
}

/// An address, or a prefix.
#[derive(Clone, Copy)]
struct Asked {
    ip: IpAddr,
    /// The length, if it is written behind the address.
    length: Option<u8>,
}

impl<'a> Part<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} has no `=`: write FIELD=VALUE, as src_ip=192.0.2.7"))?;
        let (name, value) = (name.trim(), value.trim());
        let field = Field::parse(name).map_err(|why| {
            why.unwrap_or_else(|| {
                let names: Vec<_> = Field::names().collect();
                format!("there is no field {name:?} (there are: {})", names.join(", "))
            })
        })?;
        let prefix = match field {
            Field::Ip(_, lengths) => Some(Asked::parse(value, field, lengths)?),
            _ => None,
        };
        Ok(Self { field, value, prefix })
    }

    /// Whether it tells this field of a key: the same, or the prefix of an address that has such a length.
    fn is_of(&self, field: Field) -> bool {
        match (self.field, field, self.prefix) {
            (Field::Ip(side, Lengths::WHOLE), Field::Ip(of, lengths), Some(Asked { ip, length: Some(length) })) => {
                side == of && lengths.of(ip.is_ipv6()) == length
            }
            _ => self.field == field,
        }
    }

    /// The field that a view needs for it.
    fn wanted(&self) -> String {
        match (self.field, self.prefix) {
            (Field::Ip(_, Lengths::WHOLE), Some(Asked { ip, length: Some(length) })) => {
                let v4 = if ip.is_ipv6() { "24/" } else { "" };
                format!("{}/{v4}{length}", self.field)
            }
            _ => self.field.to_string(),
        }
    }
}

impl Asked {
    fn parse(text: &str, field: Field, lengths: Lengths) -> Result<Self, String> {
        let (ip, length) = text.split_once('/').map_or((text, None), |(ip, length)| (ip, Some(length)));
        let ip: IpAddr = ip.parse().map_err(|_| format!("{text:?} is no address"))?;
        let most = Lengths::WHOLE.of(ip.is_ipv6());
        let length = length
            .map(|length| {
                let number = length.parse().ok().filter(|length| *length <= most);
                number.ok_or_else(|| format!("{text:?}: {length:?} is no length of a prefix, 0 to {most}"))
            })
            .transpose()?;
        let of_field = lengths.of(ip.is_ipv6());
        if length.is_some_and(|length| lengths != Lengths::WHOLE && length != of_field) {
            return Err(format!(
                "{field} has prefixes of {of_field} bits, and {text} has others: leave one length out"
            ));
        }
        Ok(Self { ip, length })
    }
}

/// The number of a value, as [`Field::number`] has it.
fn number(field: Field, text: &str) -> Result<u64, String> {
    let below = |limit: u64| text.parse().ok().filter(|number| *number < limit);
    let number = match field {
        Field::SrcPort | Field::DstPort | Field::Port => below(1 << 16),
        Field::Proto => protocol_number(text).map(u64::from).or_else(|| below(256)),
        Field::IpVersion => match text {
            "4" => Some(0),
            "6" => Some(1),
            _ => None,
        },
        Field::Fragment => text.parse().ok().map(|is_fragment: bool| is_fragment.into()),
        Field::Vlan => below(4096),
        Field::Dscp => below(64),
        Field::Ecn => below(4),
        _ => return Err(format!("{field} cannot be asked for by its value")),
    };
    number.ok_or_else(|| format!("{text:?} is no value of {field}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn views(own: &str) -> std::sync::Arc<Views> {
        Views::new(&Config::parse(&format!("views: [{own}]"), "test").unwrap(), 1).unwrap()
    }

    #[test]
    fn the_way_out_names_what_can_be_asked_each_once() {
        let views = views(
            "{name: a, by: [vlan], per: interface}, {name: b, by: [dst_ip]}, {name: c, measure: flows, by: [ecn]}",
        );
        let why = Ask::parse("vlan=3", &views).unwrap_err();
        let known = "dst_ip or dst_ip/24/48 or proto,port or src_ip or src_ip,dst_ip or \
                     src_ip,dst_ip,src_port,dst_port,proto or src_ip/24/48";
        assert_eq!(
            why,
            format!(
                "no view has bytes and packets by vlan (`a` has a table for each interface, and cannot be asked): add a \
                 view with `by: [vlan]`, or ask by {known}"
            )
        );
        for known in ["src_ip=192.0.2.1", "dst_ip=192.0.2.1,src_ip=192.0.2.2", "src_ip/24/48=192.0.2.0"] {
            Ask::parse(known, &views).unwrap();
        }
    }

    #[test]
    fn a_prefix_is_asked_for_by_its_length_in_either_place() {
        let views = views("{name: host, by: [host/16, proto]}, {name: whole, by: [dst_ip/32/64]}");
        let ask = |text: &str| {
            let Ask { view, key } = Ask::parse(text, &views)?;
            Ok::<_, String>((views.questions[view].view.name.clone(), key))
        };
        let prefixes = ask("src_ip/24/48=10.0.0.0").unwrap();
        assert_eq!(prefixes.0, "source_prefixes");
        for same in ["src_ip=10.0.0.0/24", "src_ip=10.0.0.9/24", "src_ip/24=10.0.0.0/24"] {
            assert_eq!(ask(same).unwrap(), prefixes, "{same}");
        }
        assert_eq!(ask("src_ip=2001:db8::/48").unwrap().0, "source_prefixes");
        assert_eq!(ask("src_ip=10.0.0.1/32").unwrap(), ask("src_ip=10.0.0.1").unwrap());
        assert_eq!(ask("proto=tcp,host=10.0.0.1/16").unwrap(), ask("host/16=10.0.0.0,proto=6").unwrap());
        assert_eq!(ask("dst_ip=2001:db8:1:2::/64").unwrap().0, "whole");
        for (wrong, why) in [
            ("src_ip=10.0.0.0/16", "no view has bytes and packets by src_ip/16: add a view with `by: [src_ip/16]`"),
            ("src_ip=2001:db8::/56", "no view has bytes and packets by src_ip/24/56"),
            ("src_ip/24=10.0.0.0/16", "src_ip/24/48 has prefixes of 24 bits, and 10.0.0.0/16 has others"),
            ("src_ip=10.0.0.1/99", "\"10.0.0.1/99\": \"99\" is no length of a prefix, 0 to 32"),
            ("src_ip=10.0.0.1/x", "\"x\" is no length of a prefix"),
            ("src_ip=10.0.0/8", "\"10.0.0/8\" is no address"),
            ("src_ip/24=10.0.0.0,src_ip=10.0.0.0/24", "no view has bytes and packets by"),
        ] {
            let error = ask(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn the_view_that_knows_best_answers() {
        let asked = |own: &str, key: &str| {
            let views = views(own);
            views.questions[Ask::parse(key, &views).unwrap().view].view.name.clone()
        };
        assert_eq!(asked("", "src_ip=192.0.2.1"), "sources");
        assert_eq!(asked("", "src_ip/24/48=192.0.2.0"), "source_prefixes");
        assert_eq!(asked("{name: own, by: [src_ip/24]}", "src_ip/24/48=192.0.2.0"), "own");
        let some = "{name: some, match: {proto: udp}, by: [src_ip/24]}";
        assert_eq!(asked(some, "src_ip/24/48=192.0.2.0"), "source_prefixes", "it knows all packets");
        assert_eq!(asked("{name: some, match: {proto: udp}, by: [vlan]}", "vlan=7"), "some", "better than nothing");
    }
}
