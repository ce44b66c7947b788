//! Sampling in the kernel: see [`weir_common::sampling`].

use aya_ebpf::helpers::bpf_get_prandom_u32;
use weir_common::{cpu::Cpu, sampling::Valve};

use crate::maps::VALVES;

/// How many packets this one stands for; `None` if it is left out. Each packet that is taken makes one draw, which
/// determines how many are left out after it.
#[inline(always)]
pub fn take(id: u32, cpu: &mut Cpu) -> Option<u16> {
    if cpu.rate == 0 {
        draw(id, cpu)?;
    }
    if cpu.left_out > 0 {
        cpu.left_out -= 1;
        return None;
    }
    let rate = cpu.rate as u16;
    draw(id, cpu)?;
    Some(rate)
}

/// The rate of the pending draw; before the first draw, the rate that it will use.
#[inline(always)]
pub fn pending(id: u32, cpu: &Cpu) -> Option<u32> {
    if cpu.rate == 0 { Some(VALVES.get(id)?.rate) } else { Some(cpu.rate) }
}

#[inline(always)]
fn draw(id: u32, cpu: &mut Cpu) -> Option<()> {
    // One load for both numbers, because userspace may change them at any time.
    // SAFETY: the aligned first eight bytes of a map element.
    let word = unsafe { VALVES.get_ptr(id)?.cast::<u64>().read_volatile() };
    let valve = Valve { rate: word as u32, scale: (word >> 32) as u32, padding: [0; 7] };
    cpu.rate = valve.rate;
    cpu.left_out = if valve.scale == 0 {
        0
    } else {
        // SAFETY: the helper takes no argument.
        valve.left_out(unsafe { bpf_get_prandom_u32() })
    };
    Some(())
}
