//! Reads the fields of records. This is the only place that knows where a field is in a record.

use weir_common::{flow::class, record::Record};
use weir_config::{
    names::Facts,
    view::{Field, Side},
};

/// A loop over records that uses the number of a field.
pub(crate) trait FieldLoop {
    /// The result of the loop.
    type Out;

    /// Runs it. `number` returns the field's number in a record.
    fn run(self, number: impl Fn(&Record) -> u64) -> Self::Out;
}

/// Runs a loop for a field. The loop is compiled once for each field, so it decides nothing for each record.
#[inline]
pub(crate) fn run<L: FieldLoop>(field: Field, facts: Facts<'_>, each: L) -> L::Out {
    let net = |record: &Record, side: Side| facts.networks.of(side.address(&record.key), record.key.is_v6());
    let ip = |record: &Record, side| if side == Side::Dst { record.key.dst_ip() } else { record.key.src_ip() };
    let system =
        |record: &Record, side| facts.geo.autonomous_system(ip(record, side)).map_or(0, |(number, _)| number.into());
    let country = |record: &Record, side| {
        facts.geo.country(ip(record, side)).map_or(0, |letters| u16::from_be_bytes(letters).into())
    };
    match field {
        // Addresses have words of their own.
        Field::Ip(..) => each.run(|_| 0),
        Field::SrcPort => each.run(|record| record.key.src_port().into()),
        Field::DstPort => each.run(|record| record.key.dst_port().into()),
        Field::Port => each.run(|record| record.key.port().into()),
        Field::Proto => each.run(|record| record.key.proto().into()),
        Field::IpVersion => each.run(|record| record.key.is_v6().into()),
        Field::Fragment => each.run(|record| (record.key.class() & class::FRAGMENT != 0).into()),
        Field::Interface => each.run(|record| record.key.interface().into()),
        Field::Direction => each.run(|record| facts.directions.number(record.key.interface()).into()),
        Field::Vlan => each.run(|record| (record.vlan & 0xfff).into()),
        Field::Dscp => each.run(|record| (record.tos >> 2).into()),
        Field::Ecn => each.run(|record| (record.tos & 3).into()),
        Field::TcpFlags => each.run(|record| record.tcp_flags.into()),
        Field::Net(side) => each.run(|record| net(record, side).into()),
        Field::As(side) => each.run(|record| system(record, side)),
        Field::Country(side) => each.run(|record| country(record, side)),
        Field::Scope => each.run(|record| facts.networks.scope(net(record, Side::Src), net(record, Side::Dst)) as u64),
    }
}
