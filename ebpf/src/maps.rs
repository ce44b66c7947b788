//! The maps: all memory of the kernel side, allocated when it is loaded.
//!
//! Data of one CPU is an element of a plain array, not of a per-CPU array. Then it is contiguous and aligned to a cache
//! line (a mappable array starts at a page), and its address needs no load.

use core::arch::asm;

use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray, RingBuf},
    helpers::bpf_get_smp_processor_id,
    macros::btf_map,
};
use weir_common::{
    control::{CPUS_MAX, INTERFACE_TABLE, InterfaceSlot, PASSING_MAX},
    cpu::{Cpu, HandedOver},
    hash::SlotKey,
    packet::{Look, Tunnels, UdpTunnel},
    record::{Record, Slot},
    sampling::Valve,
};

use crate::packet::Scratch;

/// Flow cache slots of all CPUs; the loader sets the actual number.
const CACHE_SLOTS: usize = 4096;
/// Userspace creates the inner maps with the configured size. This prototype only defines their type.
const RING_PROTOTYPE_BYTES: usize = 4096;
/// `BPF_F_MMAPABLE`: the array starts at a page.
const PAGE_ALIGNED: usize = 1 << 10;
/// `BPF_F_NO_PREALLOC`: an element takes memory only once it exists.
const NO_PREALLOCATION: usize = 1;

/// The slot of each interface index. It is a map with this one value, so an entry has a known address and takes no
/// lookup.
#[unsafe(link_section = ".data.interfaces")]
#[unsafe(no_mangle)]
static mut INTERFACES: [InterfaceSlot; INTERFACE_TABLE as usize] =
    [InterfaceSlot { ifindex: 0, slot: 0 }; INTERFACE_TABLE as usize];

/// The entry at a key's `probe`th place of the interface table.
#[inline(always)]
pub fn interface_entry(key: u32, probe: u32) -> InterfaceSlot {
    // This is `InterfaceSlot::place`.
    let place = masked::<{ INTERFACE_TABLE as usize }>(InterfaceSlot::spread(key) as usize + probe as usize);
    // SAFETY: the place is within the table. The daemon replaces whole words, at any time.
    unsafe {
        let entry = (&raw const INTERFACES).cast::<InterfaceSlot>().add(place);
        InterfaceSlot {
            ifindex: (&raw const (*entry).ifindex).read_volatile(),
            slot: (&raw const (*entry).slot).read_volatile(),
        }
    }
}

/// A [`weir_common::control::Passing`] by interface index, where it is not the default.
#[btf_map]
pub static PASSING: HashMap<u32, u32, { PASSING_MAX as usize }, NO_PREALLOCATION> = HashMap::new();

/// Each CPU's block; the loader sets the number of CPUs.
#[btf_map]
pub static CPUS: Array<Cpu, 1, PAGE_ALIGNED> = Array::new();

/// The flow caches of all CPUs, one after the other; the loader sets the total number of slots.
#[btf_map]
pub static CACHE: Array<Slot, CACHE_SLOTS, PAGE_ALIGNED> = Array::new();

/// Each CPU's valve, which userspace sets; the loader sets the number of CPUs.
#[btf_map]
pub static VALVES: Array<Valve, 1, PAGE_ALIGNED> = Array::new();

/// The records that `flush` took from each CPU's cache in its last call; the loader sets the number of CPUs.
#[btf_map]
pub static HANDED_OVER: Array<HandedOver, 1> = Array::new();

/// A copy of a packet's headers per CPU, for packets that cannot be read in place.
#[btf_map]
pub static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();

/// Each CPU's ring.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<Record, RING_PROTOTYPE_BYTES>, { CPUS_MAX as usize }> = ArrayOfMaps::new();

/// Set by the loader: the key of the flow cache's hash.
#[unsafe(no_mangle)]
static SLOT_KEY: SlotKey = SlotKey([0; 10]);

/// Set by the loader: not 0 if packets may be left out.
#[unsafe(no_mangle)]
static SAMPLING: u32 = 0;

/// Set by the loader: not 0 if tunnels are looked into.
#[unsafe(no_mangle)]
static LOOK_INTO_TUNNELS: u32 = 0;

/// Set by the loader: the [`UdpTunnel`] of each UDP destination port, or 0. A lookup takes one load, however many ports
/// there are.
#[unsafe(no_mangle)]
static TUNNEL_PORTS: [u8; 1 << 16] = [0; 1 << 16];

/// Reads a constant that the loader sets: one load, where the value is needed. The compiler can neither move nor drop a
/// volatile read; for a plain read it would use the initial value given here.
macro_rules! constant {
    ($name:ident, $instruction:literal, $at:expr) => {{
        let value: u64;
        // SAFETY: read-only data of this program, within bounds.
        unsafe {
            asm!($instruction, out(reg) value, in(reg) &raw const $name, const $at, options(pure, readonly, nostack));
        }
        value
    }};
    ($name:ident) => {{
        const { assert!(size_of_val(&$name) == 4) };
        constant!($name, "{0} = *(u32 *)({1} + {2})", 0)
    }};
    ($name:ident[$nth:literal]) => {
        constant!($name, "{0} = *(u64 *)({1} + {2})", 8 * $nth)
    };
}

/// The key of the flow cache's hash.
#[inline(always)]
pub fn slot_key() -> SlotKey {
    SlotKey([
        constant!(SLOT_KEY[0]),
        constant!(SLOT_KEY[1]),
        constant!(SLOT_KEY[2]),
        constant!(SLOT_KEY[3]),
        constant!(SLOT_KEY[4]),
        constant!(SLOT_KEY[5]),
        constant!(SLOT_KEY[6]),
        constant!(SLOT_KEY[7]),
        constant!(SLOT_KEY[8]),
        constant!(SLOT_KEY[9]),
    ])
}

/// Whether packets may be left out. The verifier knows this constant, too, and drops unreachable code.
#[inline(always)]
pub fn is_sampling() -> bool {
    constant!(SAMPLING) != 0
}

/// Look as far as the loader has set.
#[derive(Clone, Copy)]
pub struct Configured;

impl Look for Configured {
    /// The verifier knows this constant, too, and skips unreachable code.
    #[inline(always)]
    fn tunnels(self) -> Tunnels {
        match constant!(LOOK_INTO_TUNNELS) {
            0 => Tunnels::Outer,
            _ => Tunnels::Inner,
        }
    }

    #[inline(always)]
    fn udp(self, port: u16) -> Option<UdpTunnel> {
        let number: u64;
        // SAFETY: read-only data of this program; a port is less than the length.
        unsafe {
            asm!("{0} = {1}", "{0} &= 0xffff", "{0} += {2}", "{0} = *(u8 *)({0} + 0)",
                out(reg) number, in(reg) u64::from(port), in(reg) &raw const TUNNEL_PORTS,
                options(pure, readonly, nostack));
        }
        UdpTunnel::from_number(number as u8)
    }
}

/// The number of the CPU that the program runs on.
#[inline(always)]
pub fn this_cpu() -> u32 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_get_smp_processor_id() }
}

/// A slot of a CPU's flow cache.
#[inline(always)]
pub fn cache_slot(cpu: &Cpu, slot: u32) -> Option<*mut Slot> {
    CACHE.get_ptr_mut(cpu.first_slot + slot)
}

/// The slot of a CPU's flow cache at a flow's [`place`](weir_common::hash::place).
#[inline(always)]
pub fn cache_place(cpu: &Cpu, place: u64) -> Option<*mut Slot> {
    let (mut slot, shift) = (place, u64::from(cpu.place_shift));
    // A single instruction; LLVM would mask the shift.
    // SAFETY: register arithmetic only; the shift is less than 64.
    unsafe { asm!("{0} >>= {1}", inout(reg) slot, in(reg) shift, options(pure, nomem, nostack)) };
    CACHE.get_ptr_mut(cpu.first_slot + slot as u32)
}

/// The element at `index`, modulo the array's length, which must be a power of two.
#[inline(always)]
pub fn at<T, const N: usize>(array: &mut [T; N], index: usize) -> &mut T {
    // SAFETY: masked to be below `N`.
    unsafe { array.get_unchecked_mut(masked::<N>(index)) }
}

/// A number modulo `N`, a power of two. The mask is in assembly: LLVM would compare one register and use another, or
/// drop the mask where it can prove that the mask is redundant but the verifier cannot.
#[inline(always)]
pub fn masked<const N: usize>(mut number: usize) -> usize {
    const { assert!(N.is_power_of_two()) };
    // SAFETY: register arithmetic only.
    unsafe { asm!("{0} &= {1}", inout(reg) number, const N - 1, options(pure, nomem, nostack)) };
    // SAFETY: the mask has no other bits.
    unsafe { core::hint::assert_unchecked(number < N) };
    number
}

/// Stores a value into the field at `OFFSET` of a CPU's block, which an interrupt on this CPU reads. This is one
/// instruction, and a compiler barrier: nothing is moved across it.
#[inline(always)]
pub fn store<const OFFSET: usize>(cpu: &mut Cpu, value: u32) {
    const { assert!(OFFSET.is_multiple_of(4) && OFFSET < core::mem::offset_of!(Cpu, evicted)) };
    // SAFETY: a field of the block, which is aligned to words.
    unsafe {
        asm!("*(u32 *)({0} + {2}) = {1}", in(reg) core::ptr::from_mut(cpu), in(reg) u64::from(value), const OFFSET,
            options(nostack));
    }
}
