//! Sampling in the kernel: see [`weir_common::sampling`].

use aya_ebpf::helpers::bpf_get_prandom_u32;
use weir_common::{cpu::Cpu, sampling::Valve};

use crate::maps::VALVES;

/// Whether the packet is taken, and then how many it stands for. A draw is made for each packet that is taken, not for
/// those that are left out.
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

/// The rate of the draw that is pending, or of the first one to come.
#[inline(always)]
pub fn pending(id: u32, cpu: &Cpu) -> Option<u32> {
    if cpu.rate == 0 { Some(VALVES.get(id)?.rate) } else { Some(cpu.rate) }
}

#[inline(always)]
fn draw(id: u32, cpu: &mut Cpu) -> Option<()> {
    // Both numbers by one load: userspace may be about to change them.
    // SAFETY: an element of the map, whose first eight bytes they are, aligned.
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
