//! A question about one key: `src_ip=192.0.2.7`, answered by the view that groups by these fields.

use std::net::IpAddr;

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
        // A view of the user's knows a prefix better than the standard one.
        let is_rough = |question: &Question| matches!(question.structure, Structure::Prefixes { .. });
        let fitting = |is_whole: bool, may_be_rough: bool| {
            views.questions.iter().position(|question| {
                has_these(&question.by)
                    && (may_be_rough || !is_rough(question))
                    && !question.view.per_interface
                    && question.view.conditions.is_empty() == is_whole
                    && question.view.measure.is_tally()
            })
        };
        let Some(view) = fitting(true, false).or_else(|| fitting(true, true)).or_else(|| fitting(false, true)) else {
            let fields: Vec<_> = asked.iter().map(|(field, _)| field.to_string()).collect();
            let known: Vec<_> = views.questions.iter().map(|question| by_name(&question.by)).collect();
            return Err(format!(
                "no view has bytes and packets by {}: add one (--view '{{by: [{}]}}'), or ask by {}",
                fields.join(", "),
                fields.join(", "),
                known.join(" or "),
            ));
        };
        let by = &views.questions[view].by;
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
