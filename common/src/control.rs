//! What userspace and the kernel's programs tell each other besides records.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Slots of interfaces: as many as the byte of a key can tell apart, and a power of two.
pub const SLOTS_MAX: u32 = 256;
/// The slot of all interfaces that have none of their own. It is in use only where all slots are.
pub const OTHERS: u32 = SLOTS_MAX - 1;
/// Entries of the table that finds an interface's slot: a power of two. So many that hardly ever more interfaces want
/// the same places than there are.
pub const INTERFACE_TABLE: u32 = 4096;
/// How many places of that table an interface index may have.
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
    /// The interface's slot, in the order of the configuration; and above its eight bits the code of what [`Feeds`].
    pub slot: u32,
}

/// Which of an interface's packets feed totals and lists. A packet that several measured interfaces carry feeds once.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feeds {
    /// All of them.
    #[default]
    All = 0,
    /// Of the packets that it sends those that did not come by an interface on which they have fed: the router's own.
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

/// What the programs know of any interface, measured or not: whether packets that came by it have fed totals and lists,
/// and what it feeds itself, in case that it has no slot of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passing(pub u32);

impl Passing {
    /// Whether packets that came by this interface have fed; what it feeds of those that it receives and sends.
    pub const fn new(has_fed: bool, received: Feeds, sent: Feeds) -> Self {
        Self(has_fed as u32 | (received as u32) << 8 | (sent as u32) << 16)
    }

    /// Whether packets that came by this interface have fed.
    #[inline(always)]
    pub const fn has_fed(self) -> bool {
        self.0 & 1 != 0
    }

    /// What it feeds of one direction.
    #[inline(always)]
    pub const fn feeds(self, is_egress: bool) -> Feeds {
        match (self.0 >> if is_egress { 16 } else { 8 }) & 0xff {
            0 => Feeds::All,
            1 => Feeds::Local,
            _ => Feeds::None,
        }
    }
}

impl InterfaceSlot {
    /// The entry of a slot below 256.
    pub const fn new(ifindex: u32, slot: u32, feeds: Feeds) -> Self {
        Self { ifindex, slot: slot | (feeds as u32) << 8 }
    }

    /// The `probe`th place of an interface index in the table.
    #[inline(always)]
    pub const fn place(ifindex: u32, probe: u32) -> u32 {
        (ifindex ^ probe) & (INTERFACE_TABLE - 1)
    }
}

/// The table's key for packets that an interface sends. The interface index itself is the key for packets that it
/// receives. No interface has such an index, and the two keys are in different halves of the table.
#[inline(always)]
pub const fn egress(ifindex: u32) -> u32 {
    ifindex ^ ((1 << 31) | (INTERFACE_TABLE / 2))
}

/// What one call of the `flush` program is to do with the block of a CPU.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOrder {
    /// Close the window: the next part of it. For a call on that very CPU.
    Close = 0,
    /// End the window, and keep packets away from the cache: the CPU was offline a moment ago.
    Claim = 1,
    /// Close the window: the next part of it. For a call on another CPU. The CPU was offline after a [`Self::Claim`],
    /// so no packet is half counted there. If it comes online now, its packets leave the cache alone.
    CloseOffline = 2,
    /// Let packets use the cache again.
    Release = 3,
}

/// The result of one call of the `flush` program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// How far it came.
    pub state: Flush,
    /// How many records were handed over: the first so many of [`crate::cpu::HandedOver`].
    pub records: u32,
}

/// How far a call of the `flush` program came.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Call again.
    Again = 0,
    /// The call met a packet that is half counted, and did nothing: call again.
    Busy = 1,
    /// The window is closed on this CPU: its counters stand still. What is missing of its records is in the ring.
    Done = 2,
    /// This CPU has no block.
    NoBlock = 3,
}

impl Flushed {
    /// As the program's return value.
    #[inline(always)]
    pub const fn code(self) -> u32 {
        self.state as u32 | self.records << 8
    }

    /// The meaning of the program's return value.
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

/// The XDP metadata in front of a captured packet that is replayed through the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ReplayHeader {
    /// The packet's length on the wire, in bytes.
    pub wire_bytes: u32,
    /// How many bytes of it were captured. The rest of the frame is padding.
    pub captured: u32,
    /// The code of its [`crate::packet::Link`].
    pub link: u32,
    /// When it was captured: milliseconds modulo 2^32.
    pub tick: u32,
}

// XDP metadata comes in multiples of four bytes.
const _: () = assert!(size_of::<ReplayHeader>() == 16);
