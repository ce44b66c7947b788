//! Where the running kernel keeps the flags of an XDP packet, from its description of its own types (BTF).
//!
//! One of these flags tells whether a packet has fragments. A program reads it through `bpf_cast_to_kern_ctx` (Linux
//! 6.2), which the kernel turns into a move. The alternative is to ask a helper for the length of each packet. A call
//! costs 4 to 10 ns on a processor whose returns may not be predicted (AMD up to Zen 4, Speculative Return Stack
//! Overflow).
//!
//! The format is described in the kernel's `Documentation/bpf/btf.rst`.

use weir_common::control::placeholder::{FLAGS, HAS_FRAGMENTS, KERNEL_CONTEXT};
use weir_system::bounded;

/// The offsets for the two instructions that replace [`KERNEL_CONTEXT`] and [`FLAGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFlags {
    /// The number of `bpf_cast_to_kern_ctx` among the kernel's types.
    pub function: u32,
    /// The offset of `flags` in `struct xdp_buff`, in bytes.
    pub offset: u16,
}

impl PacketFlags {
    /// Those of the running kernel. `None` if it has no such function, or does not say where the flags are.
    pub fn of_this_kernel() -> Option<Self> {
        Self::find(&Types::new(&bounded::read("/sys/kernel/btf/vmlinux").ok()?)?)
    }

    fn find(types: &Types<'_>) -> Option<Self> {
        let function = types.named(kind::FUNCTION, "bpf_cast_to_kern_ctx")?;
        let packet = types.named(kind::STRUCT, "xdp_buff")?;
        let values = types.named(kind::ENUM, "xdp_buff_flags")?;
        if types.value(values, "XDP_FLAGS_HAS_FRAGS")? != HAS_FRAGMENTS as u32 {
            return None;
        }
        let bits = types.member(packet, "flags", NESTED_MAX)?;
        Some(Self { function, offset: u16::try_from(bits / 8).ok().filter(|_| bits.is_multiple_of(8))? })
    }

    /// The same object with these instructions in place of the constants.
    pub fn put_into(self, mut object: Vec<u8>) -> Vec<u8> {
        let constants = [load_constant(KERNEL_CONTEXT), load_constant(FLAGS)].concat();
        // Instructions are aligned to 8 bytes, in memory and in the file.
        for at in (0..object.len().saturating_sub(constants.len() - 1)).step_by(8) {
            if object[at..].starts_with(&constants) {
                object[at..at + constants.len()].copy_from_slice(&self.instructions().concat());
            }
        }
        object
    }

    /// The call, and the load into the register that has its result.
    const fn instructions(self) -> [[u8; 8]; 2] {
        /// `BPF_JMP | BPF_CALL`, and `BPF_PSEUDO_KFUNC_CALL` as the source.
        const CALL: u8 = 0x85;
        const OF_KERNEL: u8 = if cfg!(target_endian = "little") { 2 << 4 } else { 2 };
        /// `BPF_LDX | BPF_MEM | BPF_W`.
        const LOAD: u8 = 0x61;
        [instruction(CALL, OF_KERNEL, 0, self.function), instruction(LOAD, 0, self.offset, 0)]
    }
}

/// Loads a constant into register 0: `BPF_ALU64 | BPF_MOV | BPF_K`.
const fn load_constant(constant: i32) -> [u8; 8] {
    instruction(0xb7, 0, 0, constant as u32)
}

/// An instruction as the kernel expects it (`struct bpf_insn`).
const fn instruction(code: u8, registers: u8, offset: u16, constant: u32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (offset.to_ne_bytes(), constant.to_ne_bytes());
    [code, registers, a, b, c, d, e, f]
}

/// The kinds of types that are looked for (`BTF_KIND_*`).
mod kind {
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FUNCTION: u32 = 12;
}

/// How many unnamed structs and unions may be around a member.
const NESTED_MAX: u32 = 4;

/// A description of types.
struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// The offset of each type in `types`. The first type has number 1.
    offsets: Vec<usize>,
}

impl<'a> Types<'a> {
    /// The length of a type without what follows it, and of a member of a struct.
    const TYPE: usize = 12;
    const MEMBER: usize = 12;
    const VALUE: usize = 8;

    /// `None` if it cannot be read.
    fn new(btf: &'a [u8]) -> Option<Self> {
        const MAGIC: u16 = 0xeb9f;
        if u16::from_ne_bytes(*btf.first_chunk()?) != MAGIC {
            return None;
        }
        let [header, types_at, types, strings_at, strings] = [4, 8, 12, 16, 20].map(|at| Some(word(btf, at)? as usize));
        let body = btf.get(header?..)?;
        let types = body.get(types_at?..)?.get(..types?)?;
        let strings = body.get(strings_at?..)?.get(..strings?)?;
        let (mut offsets, mut at) = (Vec::new(), 0);
        while at < types.len() {
            offsets.push(at);
            at += Self::TYPE + more_bytes(word(types, at + 4)?)?;
        }
        Some(Self { types, strings, offsets })
    }

    /// The number of the type with this name.
    fn named(&self, kind: u32, name: &str) -> Option<u32> {
        let is_it = |&at: &usize| self.kind(at) == Some(kind) && self.is_called(at, name);
        self.offsets.iter().position(is_it).map(|nth| nth as u32 + 1)
    }

    /// Where a member is in a struct or union, in bits. Members of an unnamed struct or union inside are members, too.
    fn member(&self, number: u32, name: &str, nested_max: u32) -> Option<u32> {
        const IS_BIT_FIELDS: u32 = 1 << 31;
        let at = self.offset(number)?;
        if !matches!(self.kind(at)?, kind::STRUCT | kind::UNION) {
            return None;
        }
        let has_bit_fields = word(self.types, at + 4)? & IS_BIT_FIELDS != 0;
        for nth in 0..count(word(self.types, at + 4)?) {
            let member = at + Self::TYPE + nth * Self::MEMBER;
            let bits = word(self.types, member + 8)?;
            if self.is_called(member, name) {
                return (!has_bit_fields || bits >> 24 == 0).then_some(bits);
            }
            if self.is_called(member, "")
                && nested_max > 0
                && let Some(inside) = self.member(word(self.types, member + 4)?, name, nested_max - 1)
            {
                return Some(inside + if has_bit_fields { bits & 0x00ff_ffff } else { bits });
            }
        }
        None
    }

    /// The value of a name in an enumeration.
    fn value(&self, number: u32, name: &str) -> Option<u32> {
        let at = self.offset(number)?;
        (0..count(word(self.types, at + 4)?))
            .map(|nth| at + Self::TYPE + nth * Self::VALUE)
            .find(|value| self.is_called(*value, name))
            .and_then(|value| word(self.types, value + 4))
    }

    fn offset(&self, number: u32) -> Option<usize> {
        self.offsets.get((number as usize).checked_sub(1)?).copied()
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(kind_of(word(self.types, at + 4)?))
    }

    /// Returns true if the type, member or value at this offset has this name.
    fn is_called(&self, at: usize, name: &str) -> bool {
        let text = word(self.types, at).and_then(|at| self.strings.get(at as usize..));
        text.and_then(|text| text.strip_prefix(name.as_bytes())).is_some_and(|rest| rest.first() == Some(&0))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The kind of a type, and how many members it has, from its second word.
const fn kind_of(info: u32) -> u32 {
    info >> 24 & 0x1f
}

const fn count(info: u32) -> usize {
    (info & 0xffff) as usize
}

/// Returns the number of bytes that follow the header of a type; `None` for a kind that was not known in 2026.
const fn more_bytes(info: u32) -> Option<usize> {
    Some(match kind_of(info) {
        // Pointer, forward declaration, other names, qualifiers, function, floating point, tag of a type.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, tag of a declaration.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Struct, union, section, enumeration of 64 bits.
        4 | 5 | 15 | 19 => 12 * count(info),
        // Enumeration, function's parameters.
        6 | 13 => 8 * count(info),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEGER: u32 = 1 << 24;
    const INFO: fn(u32, u32) -> u32 = |kind, count| kind << 24 | count;

    /// A description with an unsigned integer, the function, the flags' values, and the packet.
    fn described(fragments: u32, packet: &[u32]) -> Vec<u8> {
        let strings = b"\0bpf_cast_to_kern_ctx\0xdp_buff\0xdp_buff_flags\0XDP_FLAGS_HAS_FRAGS\0flags\0u32\0data\0";
        let types: Vec<u32> = [
            &[name(strings, "u32"), INTEGER, 4, 32][..],
            &[name(strings, "bpf_cast_to_kern_ctx"), INFO(kind::FUNCTION, 0), 0],
            &[name(strings, "xdp_buff_flags"), INFO(kind::ENUM, 1), 4, name(strings, "XDP_FLAGS_HAS_FRAGS"), fragments],
            packet,
        ]
        .concat();
        let header = [0x0001_eb9f, 24, 0, 4 * types.len() as u32, 4 * types.len() as u32, strings.len() as u32];
        let mut bytes: Vec<u8> = header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(strings);
        bytes
    }

    fn name(strings: &[u8], name: &str) -> u32 {
        let text = [&[0], name.as_bytes(), &[0]].concat();
        strings.windows(text.len()).position(|window| window == text).unwrap() as u32 + 1
    }

    const NAMES: &[u8] = b"\0bpf_cast_to_kern_ctx\0xdp_buff\0xdp_buff_flags\0XDP_FLAGS_HAS_FRAGS\0flags\0u32\0data\0";

    fn flags(btf: &[u8]) -> Option<PacketFlags> {
        PacketFlags::find(&Types::new(btf)?)
    }

    #[test]
    fn the_flags_are_found_inside_unnamed_members_as_well() {
        let (packet, flags_name, data) = (name(NAMES, "xdp_buff"), name(NAMES, "flags"), name(NAMES, "data"));
        let plain = [packet, INFO(kind::STRUCT, 2), 16, data, 1, 0, flags_name, 1, 96];
        assert_eq!(flags(&described(1, &plain)), Some(PacketFlags { function: 2, offset: 12 }));
        // As in Linux 6.18: a union of a word and a struct of two halves.
        let nested = [
            &[packet, INFO(kind::STRUCT, 2), 16, data, 1, 0, 0, 5, 64][..],
            &[0, INFO(kind::UNION, 1), 8, 0, 6, 0],
            &[0, INFO(kind::STRUCT, 2), 8, data, 1, 0, flags_name, 1, 32],
        ]
        .concat();
        assert_eq!(flags(&described(1, &nested)), Some(PacketFlags { function: 2, offset: 12 }));
    }

    #[test]
    fn without_certainty_nothing_is_replaced() {
        let (packet, flags_name, data) = (name(NAMES, "xdp_buff"), name(NAMES, "flags"), name(NAMES, "data"));
        let plain = [packet, INFO(kind::STRUCT, 1), 16, flags_name, 1, 96];
        assert!(flags(&described(1, &plain)).is_some());
        assert_eq!(flags(&described(2, &plain)), None, "the flag has another value");
        assert_eq!(flags(&described(1, &[packet, INFO(kind::STRUCT, 1), 16, data, 1, 96])), None, "no flags");
        let bit_field = [packet, INFO(kind::STRUCT, 1) | 1 << 31, 16, flags_name, 1, 4 << 24 | 96];
        assert_eq!(flags(&described(1, &bit_field)), None, "a bit field");
        let unknown = [packet, INFO(kind::STRUCT, 1), 16, flags_name, 1, 96, 0, INFO(31, 0), 0];
        assert_eq!(flags(&described(1, &unknown)), None, "an unknown kind of type");
        let whole = described(1, &plain);
        assert!((0..whole.len() - 8).all(|length| flags(&whole[..length]).is_none()), "cut off");
        // An unnamed member that contains itself.
        assert_eq!(flags(&described(1, &[packet, INFO(kind::STRUCT, 1), 16, 0, 4, 0])), None);
    }

    #[test]
    fn only_the_two_constants_are_replaced() {
        let flags = PacketFlags { function: 0x0102_0304, offset: 52 };
        let constants = [load_constant(KERNEL_CONTEXT), load_constant(FLAGS)].concat();
        let [call, load] = flags.instructions();
        let other = load_constant(7);
        let object = [&other[..], &constants, &other, &constants[..8], &other, &constants].concat();
        let expected = [&other[..], &call, &load, &other, &constants[..8], &other, &call, &load].concat();
        assert_eq!(flags.put_into(object[..7].to_vec()), object[..7]);
        assert_eq!(flags.put_into(object), expected);
    }

    /// The object that weir carries has the constants, so that a kernel which has the flags is asked for them.
    #[test]
    fn the_object_asks_for_the_flags() {
        let object = crate::object::object();
        assert_ne!(PacketFlags { function: 1, offset: 52 }.put_into(object.clone()), object);
    }
}
