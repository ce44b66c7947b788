//! A question about one key: `src_ip=192.0.2.7`, answered by the view that groups by these fields.

use std::{collections::BTreeSet, net::IpAddr};

use weir_common::flow::Address;

use super::{Question, Structure, Views};
use crate::{
    names::protocol::protocol_number,
    view::{By, Field, ViewKey, field::network},
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
        let mut asked: Vec<(Field, &str)> = Vec::new();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} has no `=`: write FIELD=VALUE, as src_ip=192.0.2.7"))?;
            let field = Field::parse(name.trim()).map_err(|why| {
                why.unwrap_or_else(|| {
                    let names: Vec<_> = Field::names().collect();
                    format!("there is no field {:?} (there are: {})", name.trim(), names.join(", "))
                })
            })?;
            if asked.iter().any(|(known, _)| *known == field) {
                return Err(format!("{field} is there twice"));
            }
            asked.push((field, value.trim()));
        }
        let has_these =
            |by: &By| by.fields().len() == asked.len() && asked.iter().all(|(field, _)| by.fields().contains(field));
        let can_be_asked = |question: &Question| !question.view.per_interface && question.view.measure.is_tally();
        let askable = || views.questions.iter().enumerate().filter(|(_, question)| can_be_asked(question));
        // One that matches everything is best. A view of the user's knows a prefix better than the standard one.
        let best = askable().filter(|(_, question)| has_these(&question.by)).min_by_key(|(_, question)| {
            (!question.view.conditions.is_empty(), matches!(question.structure, Structure::Prefixes { .. }))
        });
        let Some((view, Question { by, .. })) = best else {
            let fields: Vec<_> = asked.iter().map(|(field, _)| field.to_string()).collect();
            let fields = fields.join(", ");
            let known: BTreeSet<_> = askable().map(|(_, question)| by_name(&question.by)).collect();
            let known = Vec::from_iter(known).join(" or ");
            return Err(format!(
                "no view has bytes and packets by {fields}: add a view with `by: [{fields}]`, or ask by {known}"
            ));
        };
        let value = |field: Field| asked.iter().find(|(known, _)| *known == field).map_or("", |(_, value)| value);
        let mut key = Key { key: ViewKey::default(), addresses: 0, is_v6: None };
        for field in by.fields() {
            match field {
                Field::Ip(_, lengths) => key.address(value(*field), |ip| network(ip, *lengths))?,
                field => {
                    let number = number(*field, value(*field))?;
                    by.set(&mut key.key, *field, number);
                }
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
    fn address(&mut self, text: &str, network: impl Fn(IpAddr) -> IpAddr) -> Result<(), String> {
        let plain = text.split('/').next().unwrap_or(text);
        let ip: IpAddr = plain.parse().map_err(|_| format!("{text:?} is no address"))?;
        if self.is_v6.is_some_and(|is_v6| is_v6 != ip.is_ipv6()) {
            return Err("one address is IPv4 and the other IPv6: no packet has both".to_owned());
        }
        self.is_v6 = Some(ip.is_ipv6());
        let Address(words) = network(ip).into();
        self.key.0[2 * self.addresses..2 * self.addresses + 2].copy_from_slice(&words);
        self.addresses += 1;
        Ok(())
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
            format!("no view has bytes and packets by vlan: add a view with `by: [vlan]`, or ask by {known}")
        );
        for known in ["src_ip=192.0.2.1", "dst_ip=192.0.2.1,src_ip=192.0.2.2", "src_ip/24/48=192.0.2.0"] {
            Ask::parse(known, &views).unwrap();
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
