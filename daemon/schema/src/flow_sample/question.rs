//! Which records a question selects, and the rows of its answer.

use serde_json::{Map, Value};
use weir_common::{flow::Address, proto};
use weir_config::{
    FlowQuestion,
    interface::Directions,
    names::{Facts, Geo, Networks},
    view::{Condition, Field, KeyLayout, Side, Values, ViewKey},
};

use super::RecordKey;

/// A question that is ready to be asked of records.
pub struct Selection {
    conditions: Vec<Condition>,
    layout: KeyLayout,
    networks: Networks,
    geo: Geo,
    directions: Directions,
}

impl Selection {
    /// Prepares a question. `None` if its rows have more fields than a key.
    pub fn new(question: &FlowQuestion) -> Option<Self> {
        Some(Self {
            conditions: question.conditions.clone(),
            layout: KeyLayout::new(&question.by, 1).ok()?,
            networks: Networks::new(&[]),
            geo: Geo::default(),
            directions: Directions::default(),
        })
    }

    /// Returns true if it selects this record.
    pub fn has(&self, record: &RecordKey) -> bool {
        self.conditions.iter().all(|condition| holds(condition, record) != condition.is_negated)
    }

    /// The row to which a record belongs.
    pub fn row(&self, record: &RecordKey) -> ViewKey {
        let mut key = ViewKey::default();
        let is_v6 = record.src.is_ipv6();
        for (words, (side, lengths)) in key.0.chunks_exact_mut(2).zip(self.layout.addresses()) {
            let address = if *side == Side::Dst { record.dst } else { record.src };
            let Address(network) = lengths.network(address.into(), is_v6);
            words.copy_from_slice(&network);
        }
        for packed in self.layout.packed() {
            self.layout.set(&mut key, packed.field, number(packed.field, record).into());
        }
        self.layout.set_version(&mut key, is_v6);
        key
    }

    /// The fields of a row with their names.
    pub fn show(&self, row: &ViewKey) -> Map<String, Value> {
        let Self { networks, geo, directions, .. } = self;
        self.layout.show(row, Facts { networks, geo, directions }, |_, _| {})
    }
}

fn holds(condition: &Condition, record: &RecordKey) -> bool {
    let field = condition.field;
    let either = field.row().either;
    let of_one = |field| match (&condition.values, field) {
        (Values::Prefixes(prefixes), Field::Ip(side, _)) => {
            let address = if side == Side::Dst { record.dst } else { record.src };
            prefixes.iter().any(|prefix| prefix.contains(address))
        }
        (Values::Ranges(ranges), field) => {
            let number = number(field, record);
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&number))
        }
        (Values::Numbers(numbers), field) => numbers.iter().any(|of| u32::from(*of) == number(field, record)),
        (Values::Flags(bits), field) => bits.iter().any(|bit| number(field, record) >> bit & 1 == 1),
        _ => false,
    };
    either.map_or_else(|| of_one(field), |fields| fields.into_iter().any(of_one))
}

/// The number of a field; 0 for fields that a record does not have.
fn number(field: Field, record: &RecordKey) -> u32 {
    let RecordKey { src, src_port, dst_port, vlan, proto: protocol, tos, tcp_flags, is_fragment, .. } = *record;
    match field {
        Field::SrcPort => src_port.into(),
        Field::DstPort => dst_port.into(),
        // The service's port, as in keys of views.
        Field::Port if matches!(protocol, proto::ICMP | proto::ICMPV6) => 0,
        Field::Port => src_port.min(dst_port).into(),
        Field::Proto => protocol.into(),
        Field::IpVersion => src.is_ipv6().into(),
        Field::Fragment => is_fragment.into(),
        Field::Vlan => vlan.into(),
        Field::Dscp => (tos >> 2).into(),
        Field::Ecn => (tos & 3).into(),
        Field::TcpFlags => tcp_flags.into(),
        Field::Ip(..)
        | Field::Interface
        | Field::Direction
        | Field::Net(_)
        | Field::As(_)
        | Field::Country(_)
        | Field::Scope => 0,
    }
}
