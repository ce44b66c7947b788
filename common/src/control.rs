//! What userspace and the kernel programs exchange besides records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of interface slots: as many as a key's byte can tell apart, and a power of two.
pub const SLOTS_MAX: u32 = 256;
/// The shared slot of all interfaces without a slot of their own.
pub const OTHERS: u32 = SLOTS_MAX - 1;
/// Entries of the table that finds an interface's slot, a power of two. It is large enough that a key rarely finds all
/// its places taken. Such keys are found through their [`Passing`].
pub const INTERFACE_TABLE: u32 = 4096;
/// How many possible places an interface index has in that table.
pub const INTERFACE_PROBES: u32 = 4;
/// The most interfaces that have a [`Passing`].
pub const PASSING_MAX: u32 = 65_536;
/// The most CPUs that can have a ring.
pub const CPUS_MAX: u32 = 1024;

/// An entry of the interface table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct InterfaceSlot {
    /// The kernel's interface index, or its [`egress`]; 0 for a free entry.
    pub ifindex: u32,
    /// The interface's slot, in the order of the configuration; above its eight bits, the code of its [`Feeds`].
    pub slot: u32,
}

/// Which of an interface's packets feed totals and lists. A packet on several measured interfaces feeds once.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feeds {
    /// All packets.
    #[default]
    All = 0,
    /// Of the sent packets, those that did not arrive on an interface where they have fed: the router's own.
    Local = 1,
    /// None: they feed on another interface.
    None = 2,
}

impl Feeds {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Local => "local",
            Self::None => "none",
        }
    }
}

/// What the programs know about any interface, measured or not: whether packets that arrived on it have fed totals and
/// lists, and, if the interface table has no place for it, what it feeds and into which slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passing(pub u32);

impl Passing {
    /// Whether packets that arrived on this interface have fed, and what it feeds of the received and of the sent ones.
    /// Both directions count in [`OTHERS`], unless the interface table says otherwise.
    pub const fn new(has_fed: bool, received: Feeds, sent: Feeds) -> Self {
        Self(has_fed as u32 | (received as u32) << 2 | (sent as u32) << 4)
    }

    /// The same with another slot for one direction.
    pub const fn with_slot(self, is_egress: bool, slot: u32) -> Self {
        let shift = Self::shift(is_egress);
        Self(self.0 & !(0xff << shift) | (OTHERS - slot) << shift)
    }

    /// Whether packets that arrived on this interface have fed.
    #[inline(always)]
    pub const fn has_fed(self) -> bool {
        self.0 & 1 != 0
    }

    /// What it feeds of one direction.
    #[inline(always)]
    pub const fn feeds(self, is_egress: bool) -> Feeds {
        match (self.0 >> if is_egress { 4 } else { 2 }) & 3 {
            0 => Feeds::All,
            1 => Feeds::Local,
            _ => Feeds::None,
        }
    }

    /// The slot of one direction.
    #[inline(always)]
    pub const fn slot(self, is_egress: bool) -> u32 {
        OTHERS - ((self.0 >> Self::shift(is_egress)) & 0xff)
    }

    const fn shift(is_egress: bool) -> u32 {
        if is_egress { 16 } else { 8 }
    }
}

impl InterfaceSlot {
    /// The entry of a slot below 256.
    pub const fn new(ifindex: u32, slot: u32, feeds: Feeds) -> Self {
        Self { ifindex, slot: slot | (feeds as u32) << 8 }
    }

    /// The `probe`th place of a key in the table.
    #[inline(always)]
    pub const fn place(key: u32, probe: u32) -> u32 {
        Self::spread(key).wrapping_add(probe as u64) as u32 & (INTERFACE_TABLE - 1)
    }

    /// A number whose lowest bits are a key's first place. The arithmetic is 64-bit, because the kernel's programs have
    /// no other.
    #[inline(always)]
    pub const fn spread(key: u32) -> u64 {
        /// 2^32 divided by the golden ratio: it spreads equally spaced keys (Knuth, TAOCP volume 3, 6.4).
        const GOLDEN: u64 = 0x9e37_79b1;
        (key as u64).wrapping_mul(GOLDEN) >> (u32::BITS - INTERFACE_TABLE.ilog2())
    }
}

/// The table's key for packets that an interface sends. For received packets the key is the interface index itself,
/// which is below 2^31.
#[inline(always)]
pub const fn egress(ifindex: u32) -> u32 {
    ifindex ^ (1 << 31)
}

/// Whether a key of the table is for packets that an interface sends.
#[inline(always)]
pub const fn is_egress(key: u32) -> bool {
    key >> 31 != 0
}

/// What one call of the `flush` program does with a CPU's block.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOrder {
    /// Close the next part of the window. For a call on that CPU.
    Close = 0,
    /// End the window, and keep packets away from the cache: the CPU was just offline.
    Claim = 1,
    /// Close the next part of the window. For a call on another CPU. The CPU was still offline after a [`Self::Claim`],
    /// so no packet is half counted there. If it comes online now, its packets leave the cache alone.
    CloseOffline = 2,
    /// Let packets use the cache again.
    Release = 3,
}

/// The result of one call of the `flush` program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// How far it got.
    pub state: Flush,
    /// How many records were handed over, at the start of [`crate::cpu::HandedOver`].
    pub records: u32,
}

/// How far a call of the `flush` program got.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Call again.
    Again = 0,
    /// The call interrupted a half-counted packet and did nothing: call again.
    Busy = 1,
    /// The window is closed on this CPU: its counters no longer change. Its remaining records are in the ring.
    Done = 2,
    /// This CPU has no block.
    NoBlock = 3,
}

impl Flushed {
    /// The program's return value.
    #[inline(always)]
    pub const fn code(self) -> u32 {
        self.state as u32 | self.records << 8
    }

    /// Decodes the program's return value.
    pub const fn from_code(code: u32) -> Option<Self> {
        let state = match code & 0xff {
            0 => Flush::Again,
            1 => Flush::Busy,
            2 => Flush::Done,
            3 => Flush::NoBlock,
            _ => return None,
        };
        Some(Self { state, records: code >> 8 })
    }
}

/// The XDP metadata in front of a captured packet that is replayed in the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ReplayHeader {
    /// The packet's length on the wire, in bytes.
    pub wire_bytes: u32,
    /// How many bytes of it were captured. The rest of the frame is padding.
    pub captured: u32,
    /// The code of its [`crate::packet::Link`].
    pub link: u32,
    /// Capture time in milliseconds modulo 2^32.
    pub tick: u32,
}

// XDP metadata has a multiple of four bytes.
const _: () = assert!(size_of::<ReplayHeader>() == 16);

/// What stands in the XDP programs for two instructions that depend on the running kernel's types. Each placeholder
/// loads a constant into register 0. The loader replaces both, or neither.
pub mod placeholder {
    /// For a call of `bpf_cast_to_kern_ctx`, which gives the kernel's own context of a packet.
    pub const KERNEL_CONTEXT: i32 = i32::from_be_bytes(*b"cast");
    /// For a load of the flags in this context. It has [`HAS_FRAGMENTS`], so that a packet may have some.
    pub const FLAGS: i32 = i32::from_be_bytes(*b"flag");
    /// The flag of packets with fragments (`XDP_FLAGS_HAS_FRAGS`).
    pub const HAS_FRAGMENTS: u64 = 1;

    const _: () = assert!(FLAGS as u64 & HAS_FRAGMENTS != 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_interface_fits_a_word() {
        for (has_fed, received, sent) in
            [(true, Feeds::All, Feeds::None), (false, Feeds::Local, Feeds::Local), (true, Feeds::None, Feeds::All)]
        {
            let passing = Passing::new(has_fed, received, sent);
            assert_eq!([passing.slot(false), passing.slot(true)], [OTHERS; 2]);
            for slot in 0..OTHERS {
                let other = (slot + 1) % OTHERS;
                let passing = passing.with_slot(true, other).with_slot(false, slot).with_slot(true, slot / 2);
                assert_eq!((passing.slot(false), passing.slot(true)), (slot, slot / 2));
                assert_eq!((passing.has_fed(), passing.feeds(false), passing.feeds(true)), (has_fed, received, sent));
                assert_eq!(
                    passing.with_slot(false, OTHERS).with_slot(true, OTHERS),
                    Passing::new(has_fed, received, sent)
                );
            }
        }
        assert_eq!(Passing::new(false, Feeds::All, Feeds::All), Passing::default(), "what is in no map");
    }

    #[test]
    fn keys_at_equal_distances_have_places_of_their_own() {
        let mut first = [0_u32; INTERFACE_TABLE as usize];
        for distance in (0..23).map(|power| 1_u32 << power) {
            first.fill(0);
            for nth in 0..OTHERS {
                first[InterfaceSlot::place(10_006 + nth * distance, 0) as usize] += 1;
            }
            assert!(first.iter().all(|keys| *keys <= 1), "{distance}");
        }
    }
}
