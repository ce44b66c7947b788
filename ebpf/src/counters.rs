//! The open window's counters, which account for every packet.

use weir_common::{cpu::Cpu, flow::Scope, ledger::Counters};

use crate::maps::at;

/// An interface's counters in the window of this epoch.
#[inline(always)]
pub fn counters(cpu: &mut Cpu, scope: Scope) -> &mut Counters {
    let set = &mut cpu.counter_sets[usize::from(scope.epoch() & 1)];
    at(&mut set.interfaces, usize::from(scope.interface()))
}
