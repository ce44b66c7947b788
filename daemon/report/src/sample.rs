//! The sample of a window's records that the history keeps, out of those of its shards.

use weir_common::{flow::class, ledger::Tally, record::Record, sketch::Metric};
use weir_measure::{closed::Closed, sampler::Sampled, uncertainty::Uncertainty};
use weir_schema::{
    FlowSample,
    flow_sample::{RecordKey, SampleError, SampledRecord},
};

/// The sample of a window whose shards are in the order of their merge. `None` if none was drawn.
pub fn sample(window: &mut [Closed], uncertainty: &Uncertainty) -> Option<Box<FlowSample>> {
    let total = window.iter().map(|closed| closed.shard.total).sum();
    let (first, others) = window.split_first_mut()?;
    let sampler = &mut first.shard.sampler;
    if !sampler.is_on() {
        return None;
    }
    for other in others {
        sampler.merge(&other.shard.sampler);
    }
    let Sampled { records, threshold, coins } = sampler.finish();
    let mut records: Vec<SampledRecord> = records.into_iter().map(sampled).collect();
    records.sort_unstable_by_key(SampledRecord::place);
    Some(Box::new(FlowSample { threshold, coins, total, error: error(uncertainty), records }))
}

fn sampled(record: &Record) -> SampledRecord {
    let Record { key, tos, vlan, tcp_flags, sampling, .. } = record;
    let key = RecordKey {
        src: key.src_ip(),
        dst: key.dst_ip(),
        src_port: key.src_port(),
        dst_port: key.dst_port(),
        // The other bits are a priority.
        vlan: vlan & 0xfff,
        proto: key.proto(),
        tos: *tos,
        tcp_flags: *tcp_flags,
        is_fragment: key.class() & class::FRAGMENT != 0,
    };
    let (taken, rate) = (record.tally(), u64::from(*sampling));
    SampledRecord { key, tally: Tally::new(taken.packets * rate, taken.bytes * rate) }
}

/// How far the records of a window may differ from its packets, each of which is fed once.
fn error(uncertainty: &Uncertainty) -> SampleError {
    let Uncertainty { lost, in_buffers, drawn, sampling, once, .. } = uncertainty;
    let rate = sampling.map_or(1, |sampling| sampling.rate);
    SampleError {
        lost: Metric::each(|metric| metric.of(*lost).saturating_add(metric.of(*in_buffers))),
        drawn: Metric::each(|metric| metric.of(*drawn).saturating_mul(rate.into())),
        most: once.most,
        rate,
        largest: sampling.map_or_else(Tally::default, |sampling| sampling.largest),
    }
}
