//! The interfaces of several windows, each with the sum of its ledgers.

use weir_common::ledger::Loss;

use super::{Union, add, all_hold};
use crate::{Bounds, Interface, Ledger, Length, Tally, TcpBounds, TcpPackets, UnreadLinkType, is_measured};

/// An interface of a report, for a union: whether it was measured must not get lost among other windows.
pub(super) fn of_window(interface: &Interface, length: Length) -> Interface {
    let unmeasured_seconds = (!is_measured(&interface.mode)).then(|| length.seconds().unwrap_or_default());
    Interface { unmeasured_seconds, ..interface.clone() }
}

/// Each interface and direction, in the order of the first appearance.
pub(super) fn interfaces(parts: &[Union]) -> Vec<Interface> {
    let mut all: Vec<Vec<&Interface>> = Vec::new();
    for interface in parts.iter().flat_map(|part| &part.interfaces) {
        let is_same = |known: &Vec<&Interface>| {
            known.iter().all(|known| known.name == interface.name && known.direction == interface.direction)
        };
        match all.iter_mut().find(|known| is_same(known)) {
            Some(known) => known.push(interface),
            None => all.push(vec![interface]),
        }
    }
    all.iter().filter_map(|parts| interface(parts)).collect()
}

pub(super) fn interface(parts: &[&Interface]) -> Option<Interface> {
    let (last, earlier) = parts.split_last()?;
    let mut sum = (*last).clone();
    for part in earlier {
        add(&mut sum.repeated, part.repeated);
        add_ledger(&mut sum.ledger, &part.ledger);
        sum.sampling = sum.sampling.max(part.sampling);
        for (size, packets) in &part.packet_sizes {
            match sum.packet_sizes.iter_mut().find(|(known, _)| known == size) {
                Some((_, known)) => *known = known.saturating_add(*packets),
                None => sum.packet_sizes.push((*size, *packets)),
            }
        }
    }
    sum.earlier_name = parts.iter().find_map(|part| part.earlier_name.clone());
    sum.unread_link_types = unread_link_types(parts);
    sum.tcp = tcp(parts);
    sum.kept = sum.ledger.kept();
    sum.coverage = together_covered(parts, own_packets, |part| part.coverage);
    sum.coverage_lower = together_covered(parts, own_packets, |part| part.coverage_lower);
    sum.coverage_upper = together_covered(parts, own_packets, |part| part.coverage_upper);
    sum.coverage_bytes = together_covered(parts, own_bytes, |part| part.coverage_bytes);
    sum.coverage_bytes_lower = together_covered(parts, own_bytes, |part| part.coverage_bytes_lower);
    sum.coverage_bytes_upper = together_covered(parts, own_bytes, |part| part.coverage_bytes_upper);
    sum.unseen = parts.iter().filter_map(|part| part.unseen).reduce(|mut sum, more| {
        sum.add(more);
        sum
    });
    sum.blind_seconds = parts.iter().filter_map(|part| part.blind_seconds).reduce(|one, other| one + other);
    sum.unmeasured_seconds = parts.iter().filter_map(|part| part.unmeasured_seconds).reduce(|one, other| one + other);
    Some(sum)
}

fn own_bytes(ledger: &Ledger) -> u64 {
    seen_itself(ledger).bytes
}

fn own_packets(ledger: &Ledger) -> u64 {
    seen_itself(ledger).packets
}

/// The link types that were not read in any of the windows.
fn unread_link_types(parts: &[&Interface]) -> Vec<UnreadLinkType> {
    let mut all: Vec<UnreadLinkType> = Vec::new();
    for next in parts.iter().flat_map(|part| &part.unread_link_types) {
        match all.iter_mut().find(|known| known.link_type == next.link_type) {
            Some(known) => {
                known.packets = known.packets.saturating_add(next.packets);
                known.bytes = known.bytes.saturating_add(next.bytes);
            }
            None => all.push(next.clone()),
        }
    }
    all
}

/// The packets that weir itself saw, without those that it missed while it was blind.
fn seen_itself(Ledger { seen, lost, .. }: &Ledger) -> Tally {
    let missed = lost.get(Loss::Blind.name()).copied().unwrap_or_default();
    Tally { packets: seen.packets.saturating_sub(missed.packets), bytes: seen.bytes.saturating_sub(missed.bytes) }
}

/// The coverage of all windows that have one, weighted by the interface's own count.
fn together_covered(
    parts: &[&Interface],
    seen: impl Fn(&Ledger) -> u64,
    coverage: impl Fn(&Interface) -> Option<f64>,
) -> Option<f64> {
    let (mut covered, mut own) = (0.0, 0.0);
    for part in parts {
        let Some(value) = part.coverage else { continue };
        let missed = part.ledger.seen.packets.saturating_sub(seen_itself(&part.ledger).packets);
        let counted = if value > 0.0 { seen(&part.ledger) as f64 / value } else { missed as f64 };
        covered += coverage(part)? * counted;
        own += counted;
    }
    (own > 0.0).then(|| covered / own)
}

fn add_ledger(sum: &mut Ledger, more: &Ledger) {
    let Ledger { seen, attributed, sampled_out, skipped, lost, uncertain } = more;
    add(&mut sum.seen, *seen);
    add(&mut sum.attributed, *attributed);
    add(&mut sum.sampled_out, *sampled_out);
    for (sums, more) in [(&mut sum.skipped, skipped), (&mut sum.lost, lost)] {
        for (reason, tally) in more {
            add(sums.entry(reason.clone()).or_default(), *tally);
        }
    }
    match (&mut sum.uncertain, uncertain) {
        (Some(sum), Some(more)) => sum.add(*more),
        (none, more) => *none = none.or(*more),
    }
}

fn tcp(parts: &[&Interface]) -> TcpPackets {
    let sum = |of: &dyn Fn(&Interface) -> u64| parts.iter().fold(0_u64, |sum, part| sum.saturating_add(of(part)));
    let bounded = |count: fn(&TcpPackets) -> u64, bounds: fn(&TcpBounds) -> Bounds| Bounds {
        lower: sum(&|part| part.tcp.bounds.map_or(count(&part.tcp), |known| bounds(&known).lower)),
        upper: sum(&|part| part.tcp.bounds.map_or(count(&part.tcp), |known| bounds(&known).upper)),
    };
    let confidences = || parts.iter().filter_map(|part| Some(part.tcp.bounds?.confidence));
    TcpPackets {
        syn: sum(&|part| part.tcp.syn),
        syn_ack: sum(&|part| part.tcp.syn_ack),
        rst: sum(&|part| part.tcp.rst),
        fin: sum(&|part| part.tcp.fin),
        bounds: confidences().next().is_some().then(|| TcpBounds {
            confidence: all_hold(confidences()),
            syn: bounded(|tcp| tcp.syn, |bounds| bounds.syn),
            syn_ack: bounded(|tcp| tcp.syn_ack, |bounds| bounds.syn_ack),
            rst: bounded(|tcp| tcp.rst, |bounds| bounds.rst),
            fin: bounded(|tcp| tcp.fin, |bounds| bounds.fin),
        }),
    }
}
