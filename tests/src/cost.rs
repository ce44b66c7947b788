//! How many instructions the programs execute for a packet, of each kind of packet whose cost is of interest.

pub mod frames;

use std::mem::offset_of;

use anyhow::{Result, ensure};
use weir_common::{
    control::{InterfaceSlot, egress},
    cpu::Cpu,
    sampling::Valve,
};
use weir_config::Packets;
use weir_datapath::{Constants, Plan, maps::INTERFACES};
use zerocopy::IntoBytes as _;

use crate::interpreter::{Arrival, Interpreter};

/// The programs' return values that pass a packet on: `XDP_PASS` and `TCX_NEXT`.
const PASS: u32 = 2;
const NEXT: u32 = u32::MAX;
/// The loopback interface, which packets arrive on.
const LOOPBACK: u32 = 1;
/// How many packets are counted, and how many come before: so many that even if each packet is of another flow, hardly
/// a slot of the cache is empty.
const COUNTED: u32 = 1 << 12;
const BEFORE: u32 = 1 << 16;
/// If all packets are of one flow, the cost does not change after the first packet of the flow.
const BEFORE_ONE_FLOW: u32 = 1;

/// A kind of packet.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The name in the table.
    pub name: &'static str,
    /// The program that measures it.
    pub program: &'static str,
    /// The packet as it is on the wire.
    pub frame: Vec<u8>,
    /// The VLAN tag in the buffer's metadata.
    pub tag: Option<[u16; 2]>,
    /// The parameters of the kernel side.
    pub plan: Plan,
    /// Tells how packets differ from each other.
    pub flows: Flows,
}

/// How many flows the packets of a kind are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// All packets are of one flow.
    One,
    /// Each packet has a source address of its own, and evicts the record of another one.
    Evicting,
    /// The program itself changes the packets: see `ebpf/src/bin/benchmark.rs`.
    OfProgram,
}

impl Kind {
    /// The mean number of instructions that the program executes for such a packet.
    ///
    /// # Errors
    ///
    /// The object has no such program, or it does something wrong.
    pub fn instructions(&self, object: &[u8]) -> Result<f64> {
        let mut program = loaded(object, self.program, &self.plan)?;
        let before =
            if self.flows == Flows::One && self.plan.sampling == Packets::OneIn(1) { BEFORE_ONE_FLOW } else { BEFORE };
        let mut executed = 0;
        let mut frame = self.frame.clone();
        for nth in 0..before + COUNTED {
            if self.flows == Flows::Evicting {
                vary(&mut frame, nth);
            }
            let done = program.run(&Arrival { tag: self.tag, ..Arrival::new(&frame) })?;
            ensure!([PASS, NEXT].contains(&done.result), "{} returned {}", self.program, done.result);
            if nth >= before {
                executed += done.instructions;
            }
        }
        Ok(executed as f64 / f64::from(COUNTED))
    }
}

/// Gives a packet over IPv4 without tags another source address.
fn vary(frame: &mut [u8], nth: u32) {
    frame[26..30].copy_from_slice(&nth.to_be_bytes());
}

/// A program with its maps as the daemon sets them up on a machine with one CPU, where slot 0 has both directions of
/// the loopback interface.
///
/// # Errors
///
/// The object has no such program.
pub fn loaded(object: &[u8], program: &str, plan: &Plan) -> Result<Interpreter> {
    let constants = Constants::of(plan);
    let mut interpreter = Interpreter::new(object, program, &constants.named(), &[("CACHE", plan.cache_flows)])?;
    let shift = u64::BITS - plan.cache_flows.ilog2();
    interpreter.set("CPUS", offset_of!(Cpu, place_shift), shift.as_bytes())?;
    interpreter.set("CPUS", offset_of!(Cpu, ring_bytes), plan.ring_bytes.as_bytes())?;
    interpreter.set("VALVES", 0, Valve::one_in(plan.sampling.first_rate()).as_bytes())?;
    for key in [LOOPBACK, egress(LOOPBACK)] {
        let entry = InterfaceSlot { ifindex: key, slot: 0 };
        let place = InterfaceSlot::place(key, 0) as usize * size_of::<InterfaceSlot>();
        interpreter.set(INTERFACES, place, entry.as_bytes())?;
    }
    Ok(interpreter)
}
