//! The maps: all memory that the kernel side uses, allocated when it is loaded.

use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, PerCpuArray, RingBuf},
    macros::btf_map,
};
use weir_common::{
    control::{CPUS_MAX, INTERFACE_TABLE, INTERFACES_MAX, InterfaceSlot},
    hash::Key,
    record::{InterfaceEdge, Record, SizeEdge},
};

/// Flow-cache slots unless the loader says otherwise.
const CACHE_SLOTS: usize = 4096;
/// The inner maps are made by userspace with the configured size; this only tells their type.
const RING_PROTOTYPE_BYTES: usize = 4096;

/// Which slot an interface index has.
#[btf_map]
pub static INTERFACES: Array<InterfaceSlot, { INTERFACE_TABLE as usize }> = Array::new();

/// Each CPU's place in the windows.
#[btf_map]
pub static STATE: PerCpuArray<State, 1> = PerCpuArray::new();

/// Each CPU's counters, by epoch's parity and interface slot, ready to be sent as an edge.
#[btf_map]
pub static COUNTERS: PerCpuArray<InterfaceEdge, { 2 * INTERFACES_MAX as usize }> = PerCpuArray::new();

/// Each CPU's packet sizes, by epoch's parity, ready to be sent as an edge.
#[btf_map]
pub static SIZES: PerCpuArray<SizeEdge, 2> = PerCpuArray::new();

/// Each CPU's flow cache.
#[btf_map]
pub static CACHE: PerCpuArray<Record, CACHE_SLOTS> = PerCpuArray::new();

/// Each CPU's ring.
#[btf_map]
pub static RINGS: ArrayOfMaps<RingBuf<Record, RING_PROTOTYPE_BYTES>, { CPUS_MAX as usize }> = ArrayOfMaps::new();

/// What one CPU remembers between packets.
#[repr(C)]
pub struct State {
    /// The number of the open window.
    pub epoch: u32,
    /// Not 0 while `flush` is inside the cache.
    pub busy: u32,
    /// Not 0 from the first call of `flush` for a window until it is closed.
    pub closing: u32,
    /// How far `flush` came.
    pub cursor: u32,
    /// Entries written to the ring, to wake its reader now and then.
    pub written: u32,
}

/// Set by the loader: the key of [`weir_common::hash::slot`].
#[unsafe(no_mangle)]
static SLOT_KEY: [u64; 2] = [0; 2];

/// Set by the loader: the flow cache's slots, less one.
#[unsafe(no_mangle)]
static CACHE_MASK: u32 = CACHE_SLOTS as u32 - 1;

/// Set by the loader: interfaces configured.
#[unsafe(no_mangle)]
static INTERFACE_COUNT: u32 = 1;

/// Set by the loader: not 0 where the kernel knows packets in several pieces (Linux 5.18).
#[unsafe(no_mangle)]
static FRAGMENTS: u32 = 1;

/// The key of [`weir_common::hash::slot`].
#[inline(always)]
pub fn slot_key() -> Key {
    // SAFETY: read-only data of this program; volatile, because the loader changes it after compilation.
    Key(unsafe { core::ptr::read_volatile(&raw const SLOT_KEY) })
}

/// The flow cache's slots, less one.
#[inline(always)]
pub fn cache_mask() -> u32 {
    // SAFETY: as in `slot_key`.
    unsafe { core::ptr::read_volatile(&raw const CACHE_MASK) }
}

/// Interfaces configured.
#[inline(always)]
pub fn interface_count() -> u32 {
    // SAFETY: as in `slot_key`.
    unsafe { core::ptr::read_volatile(&raw const INTERFACE_COUNT) }
}

/// Whether the kernel knows packets in several pieces.
#[inline(always)]
pub fn has_fragments() -> bool {
    // SAFETY: as in `slot_key`.
    unsafe { core::ptr::read_volatile(&raw const FRAGMENTS) != 0 }
}
