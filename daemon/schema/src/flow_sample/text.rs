//! A sample as a JSON text: a column for each field, in the order of the keys. So numbers that follow each other
//! resemble each other, and the text compresses to some ten bytes a record.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use weir_common::ledger::Tally;

use super::{FlowSample, RecordKey, SampleError, SampledRecord};

/// A sample as it is written. Pairs are packets and bytes.
#[derive(Serialize, Deserialize)]
struct Written {
    threshold: f64,
    coins: u64,
    total: [u64; 2],
    lost: [u64; 2],
    drawn: [u64; 2],
    most: [u64; 2],
    rate: u32,
    largest: [u64; 2],
    v4: Columns,
    v6: Columns,
}

/// The records of an IP version. Each source is written as the difference from the one before.
#[derive(Default, Serialize, Deserialize)]
struct Columns {
    /// The first halves of IPv6 addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    src_net: Vec<u64>,
    src: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dst_net: Vec<u64>,
    dst: Vec<u64>,
    src_port: Vec<u16>,
    dst_port: Vec<u16>,
    proto: Vec<u8>,
    vlan: Vec<u16>,
    tos: Vec<u8>,
    tcp_flags: Vec<u8>,
    fragment: Vec<u8>,
    packets: Vec<u64>,
    bytes: Vec<u64>,
}

impl FlowSample {
    /// The JSON text that [`FlowSample::from_text`] reads.
    pub fn to_text(&self) -> String {
        let Self { threshold, coins, total, error, records } = self;
        let SampleError { lost, drawn, most, rate, largest } = *error;
        let of_version = |is_v6| records.iter().filter(move |record| record.key.src.is_ipv6() == is_v6);
        let written = Written {
            threshold: *threshold,
            coins: *coins,
            total: pair(*total),
            lost: pair(lost),
            drawn: pair(drawn),
            most: pair(most),
            rate,
            largest: pair(largest),
            v4: Columns::of(of_version(false)),
            v6: Columns::of(of_version(true)),
        };
        serde_json::to_string(&written).expect("it has text keys and is written into memory")
    }

    /// Reads a sample; `None` if the text is something else.
    pub fn from_text(json: &[u8]) -> Option<Self> {
        let Written { threshold, coins, total, lost, drawn, most, rate, largest, v4, v6 } =
            serde_json::from_slice(json).ok()?;
        let [total, lost, drawn, most, largest] = [total, lost, drawn, most, largest].map(tally);
        let mut records = v4.records(false)?;
        records.extend(v6.records(true)?);
        let error = SampleError { lost, drawn, most, rate: rate.max(1), largest };
        (threshold.is_finite() && threshold >= 0.0).then_some(Self { threshold, coins, total, error, records })
    }
}

const fn pair(Tally { packets, bytes }: Tally) -> [u64; 2] {
    [packets, bytes]
}

const fn tally([packets, bytes]: [u64; 2]) -> Tally {
    Tally::new(packets, bytes)
}

/// The halves of an address; that of an IPv4 address is the second one.
const fn halves(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(v4) => [0, v4.to_bits() as u64],
        IpAddr::V6(v6) => [(v6.to_bits() >> 64) as u64, v6.to_bits() as u64],
    }
}

fn address(net: u64, host: u64, is_v6: bool) -> Option<IpAddr> {
    if is_v6 {
        return Some(Ipv6Addr::from_bits(u128::from(net) << 64 | u128::from(host)).into());
    }
    Some(Ipv4Addr::from_bits(host.try_into().ok()?).into())
}

impl Columns {
    fn of<'a>(records: impl Iterator<Item = &'a SampledRecord>) -> Self {
        let (mut columns, mut before) = (Self::default(), [0; 2]);
        for SampledRecord { key, tally } in records {
            let RecordKey { src, dst, src_port, dst_port, vlan, proto, tos, tcp_flags, is_fragment } = *key;
            let (source, [net, host]) = (halves(src), halves(dst));
            if src.is_ipv6() {
                columns.src_net.push(source[0].wrapping_sub(before[0]));
                columns.dst_net.push(net);
            }
            columns.src.push(source[1].wrapping_sub(before[1]));
            before = source;
            columns.dst.push(host);
            columns.src_port.push(src_port);
            columns.dst_port.push(dst_port);
            columns.proto.push(proto);
            columns.vlan.push(vlan);
            columns.tos.push(tos);
            columns.tcp_flags.push(tcp_flags);
            columns.fragment.push(is_fragment.into());
            columns.packets.push(tally.packets);
            columns.bytes.push(tally.bytes);
        }
        columns
    }

    /// The records, or `None` if a column is too short.
    fn records(&self, is_v6: bool) -> Option<Vec<SampledRecord>> {
        let (mut records, mut before) = (Vec::with_capacity(self.src.len()), [0_u64; 2]);
        for (nth, src) in self.src.iter().enumerate() {
            let half = |column: &[u64]| if is_v6 { column.get(nth).copied() } else { Some(0) };
            before = [before[0].wrapping_add(half(&self.src_net)?), before[1].wrapping_add(*src)];
            let key = RecordKey {
                src: address(before[0], before[1], is_v6)?,
                dst: address(half(&self.dst_net)?, *self.dst.get(nth)?, is_v6)?,
                src_port: *self.src_port.get(nth)?,
                dst_port: *self.dst_port.get(nth)?,
                vlan: *self.vlan.get(nth)?,
                proto: *self.proto.get(nth)?,
                tos: *self.tos.get(nth)?,
                tcp_flags: *self.tcp_flags.get(nth)?,
                is_fragment: *self.fragment.get(nth)? != 0,
            };
            let tally = Tally::new(*self.packets.get(nth)?, *self.bytes.get(nth)?);
            records.push(SampledRecord { key, tally });
        }
        Some(records)
    }
}
