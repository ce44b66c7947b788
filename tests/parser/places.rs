//! Interfaces find their slots in the kernel, with any index.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use weir_common::{
    control::{INTERFACE_PROBES, InterfaceSlot, OTHERS, SLOTS_MAX, egress},
    cpu::HISTOGRAMS,
    ledger::{Counters, Tally},
    size::{EXACT, SIZE_CLASSES, size_class},
};
use weir_config::interface::Way;
use weir_datapath::Plan;
use weir_tests::object::{LOOPBACK, Object, PLAN, Window};

use crate::frame::{IPV4, ethernet, ipv4, tcp};

const BYTES: usize = 100;

/// Keys of other interfaces that hash to the same places as this one.
fn in_the_way_of(key: u32) -> impl Iterator<Item = u32> {
    let first = InterfaceSlot::place(key, 0);
    (2..1 << 31).filter(move |other| *other != key && InterfaceSlot::place(*other, 0) == first)
}

/// Runs one packet in each direction of the loopback interface, and closes the window.
fn window(object: &mut Object<'_>) -> Result<Window> {
    let mut frame = ethernet(&[], IPV4, &ipv4(6, 0, 0, &tcp(0x10)));
    frame.resize(BYTES, 0);
    object.pass_at_tc(Way::Ingress, &frame)?;
    object.pass_at_tc(Way::Egress, &frame)?;
    object.pass_at_tc(Way::Egress, &frame)?;
    Ok(object.close()?.0)
}

/// Checks that one account has one packet, another one has two, and all others have none.
fn check(window: &Window, received: usize, sent: usize) -> Result<()> {
    for (slot, counters) in window.edge.counters.iter().enumerate() {
        let packets = u64::from(slot == received) + 2 * u64::from(slot == sent);
        let expected = Tally::new(packets, packets * BYTES as u64);
        ensure!(counters.seen == expected, "slot {slot}: {:?} and not {expected:?}", counters.seen);
    }
    Ok(())
}

pub fn the_worst_set_of_interfaces_finds_its_slots() -> Result<()> {
    let keys = [LOOPBACK, egress(LOOPBACK)];
    Object::load(Plan { interfaces: SLOTS_MAX, ..PLAN }, |object| {
        object.take_slot(LOOPBACK)?;
        check(&window(object)?, OTHERS as usize, OTHERS as usize)?;
        let mut slot = 0;
        for key in keys {
            for other in in_the_way_of(key).take(OTHERS as usize / 2 - 1) {
                object.give_slot(other, slot)?;
                slot += 1;
            }
        }
        for (key, slot) in keys.into_iter().zip(slot..) {
            object.give_slot(key, slot)?;
        }
        check(&window(object)?, slot as usize, slot as usize + 1)?;
        object.take_slot(LOOPBACK)?;
        check(&window(object)?, OTHERS as usize, slot as usize + 1)?;
        // Freed places do not make weir find a wrong slot for an interface that is next to them.
        for other in in_the_way_of(keys[1]).take(INTERFACE_PROBES as usize) {
            object.take_slot(other)?;
        }
        check(&window(object)?, OTHERS as usize, slot as usize + 1)?;
        object.give_slot(LOOPBACK, 3)?;
        object.give_slot(keys[1], 4)?;
        check(&window(object)?, 3, 4)
    })
}

/// Interfaces of the first slots have histograms, which count packets up to some length; counters count all others.
pub fn each_interface_counts_every_size() -> Result<()> {
    let slots = [0, 1, HISTOGRAMS - 1, HISTOGRAMS, OTHERS - 1];
    let lengths = [60, 64, 65, 127, 1514, 1519, EXACT as usize - 1, EXACT as usize, 3_000];
    Object::load(Plan { interfaces: SLOTS_MAX, ..PLAN }, |object| {
        let mut seen = HashMap::new();
        for nth in 0..4 {
            let mut sizes = vec![0; SIZE_CLASSES];
            let mut counted: Vec<_> = (0..SLOTS_MAX).map(|_| Counters::default()).collect();
            // Each window has other interfaces, and some have one that the window before had.
            for slot in slots.into_iter().skip(nth % 3) {
                object.give_slot(LOOPBACK, slot)?;
                for bytes in lengths {
                    let mut frame = ethernet(&[], IPV4, &ipv4(6, 0, 0, &tcp(0x10)));
                    frame.resize(bytes, 0);
                    object.pass(&frame)?;
                    let class = size_class(bytes as u64);
                    counted[slot as usize].seen.add(Tally::new(1, bytes as u64));
                    counted[slot as usize].sizes.count(class, 1);
                    sizes[class] += 1;
                }
                seen.entry(slot).or_insert_with(Tally::default).add(counted[slot as usize].seen);
            }
            let Window { edge, .. } = object.close()?.0;
            ensure!(edge.counters == counted, "window {nth}: {:?}", edge.counters);
            ensure!(edge.sizes == sizes && edge.largest == 3_000, "window {nth}: {}", edge.largest);
            for slot in slots {
                let (live, seen) = (object.seen(slot as usize), seen.get(&slot).copied().unwrap_or_default());
                ensure!(live == seen, "slot {slot} after window {nth}: {live:?} and not {seen:?}");
            }
        }
        Ok(())
    })
}

pub fn an_interface_without_a_slot_is_counted() -> Result<()> {
    Object::load(PLAN, |object| {
        let of_both = |window: &Window| [window.edge.counters[0].seen, window.edge.others.seen];
        let tally = |packets| Tally::new(packets, packets * BYTES as u64);
        let first = window(object)?;
        ensure!(of_both(&first) == [tally(1), tally(2)], "{:?}", of_both(&first));
        object.take_slot(LOOPBACK)?;
        for _ in 0..3 {
            let next = window(object)?;
            ensure!(of_both(&next) == [tally(0), tally(3)], "{:?}", of_both(&next));
        }
        Ok(())
    })
}
