//! The generator's program, assembled by hand: some eighty instructions.
//!
//! ```text
//! nth = counter++
//! paced, and the first of a batch?  wait until the batch is due; the next batch is due one step later
//! write the whole frame: the kernel reuses frames, with the bytes that their last user left in them
//! random = splitmix64(nth)
//! Zipf:   level = random's upper bits, 0 to 16; flow = 2^level + random's lower `level` bits
//!         source = 10.64.0.0 + flow; destination = 198.18.0.0 + flow's last byte; header checksum
//! Flood:  lower half of the source = random, or the number of a heavy flow
//! redirect to the interface
//! ```

use anyhow::Result;
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    write::{Object, Relocation, RelocationFlags, StandardSection, Symbol, SymbolId, SymbolSection},
};

use super::{BATCH, Flows, HEAVY_EVERY, HEAVY_FLOWS, ZIPF_LEVELS};

/// The program's name in its object.
pub const NAME: &str = "generator";
/// Two words: how many packets were made, and when the next batch is due, in nanoseconds of the monotonic clock.
const STATE: &str = "state";
const STATE_BYTES: u64 = 16;
const DUE: i16 = 8;

/// The generators' own Ethernet address; no host answers to it.
const MAC: [u8; 6] = [2, 0x77, 0, 0, 0, 0x99];
const UDP: u8 = 17;
const PORTS: [u8; 4] = [0xc0, 0x01, 0x01, 0xbb];
/// The first source of [`Flows::Zipf`], less one: 10.64.0.0.
const SOURCES: i32 = 0x0a40_0000;

/// How late a batch may be and still catch up, in nanoseconds: about the content of a deep queue.
const BEHIND_MAX: i32 = 1 << 26;

// Offsets in a frame.
const IPV4_CHECKSUM: i16 = 24;
const IPV4_SOURCE: i16 = 26;
const IPV4_DESTINATION_LAST: i16 = 33;
const IPV6_SOURCE_LOWER: i16 = 30;

/// The frame that is sent; the parts that vary are 0. Its length is a multiple of 4.
pub fn frame(flows: Flows, to: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, MAC].concat();
    match flows {
        Flows::Zipf => {
            let payload = 18;
            frame.extend([8, 0]);
            frame.extend([0x45, 0, 0, 28 + payload, 0, 0, 0x40, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 198, 18, 0, 0]);
            frame.extend(udp(payload));
        }
        Flows::Flood => {
            let payload = 2;
            frame.extend([0x86, 0xdd]);
            frame.extend([0x60, 0, 0, 0, 0, 8 + payload, UDP, 64]);
            frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            frame.extend(udp(payload));
        }
    }
    frame
}

/// A UDP header without a checksum, and `payload` zeros. Nothing on the path checks the checksum.
fn udp(payload: u8) -> Vec<u8> {
    let mut datagram = PORTS.to_vec();
    datagram.extend([0, 8 + payload, 0, 0]);
    datagram.resize(8 + usize::from(payload), 0);
    datagram
}

/// The part of the IPv4 header checksum (RFC 791) over the fields that do not vary.
fn ipv4_sum(frame: &[u8]) -> i32 {
    frame[14..34].chunks_exact(2).map(|pair| i32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

/// An object with the program, as a compiler would write it. `step` is the time from one batch to the next, in
/// nanoseconds; without it, batches do not wait.
pub fn elf(flows: Flows, frame: &[u8], ifindex: u32, step: Option<i32>) -> Result<Vec<u8>> {
    let Code { bytes, state } = assemble(flows, frame, ifindex, step);
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = object.add_section(Vec::new(), b"xdp".to_vec(), SectionKind::Text);
    object.append_section_data(text, &bytes, 8);
    let licence = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(licence, b"GPL\0", 1);
    let bss = object.section_id(StandardSection::UninitializedData);
    object.append_section_bss(bss, STATE_BYTES, 8);
    let mut symbol = |name: &str, kind, section, size| -> SymbolId {
        object.add_symbol(Symbol {
            name: name.into(),
            value: 0,
            size,
            kind,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        })
    };
    symbol(NAME, SymbolKind::Text, text, bytes.len() as u64);
    let symbol = symbol(STATE, SymbolKind::Data, bss, STATE_BYTES);
    // `R_BPF_64_64`: the address of a map's value in a load of 64 bits.
    let flags = RelocationFlags::Elf { r_type: object::elf::R_BPF_64_64 };
    object.add_relocation(text, Relocation { offset: state, symbol, addend: 0, flags })?;
    Ok(object.write()?)
}

/// Instructions, and the places where the state's address must be filled in.
#[derive(Default)]
struct Code {
    bytes: Vec<u8>,
    state: u64,
}

/// The registers of eBPF.
#[derive(Clone, Copy)]
enum R {
    Result = 0,
    Context = 1,
    Second = 2,
    Value = 3,
    A = 4,
    B = 5,
    Frame = 6,
    /// The packet's end; after it is checked, the number of remaining looks at the clock.
    End = 7,
    State = 8,
    Nth = 9,
}

/// 64-bit arithmetic, with the upper bits of its operation code.
#[derive(Clone, Copy)]
enum Do {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    Left = 0x60,
    Right = 0x70,
    Xor = 0xa0,
    Set = 0xb0,
}

/// Widths of stores, with the operation code of a register's store.
#[derive(Clone, Copy)]
enum Width {
    Byte = 0x73,
    Two = 0x6b,
    Four = 0x63,
    Eight = 0x7b,
}

impl Code {
    /// One instruction (RFC 9669 section 3): operation, registers, offset, immediate.
    fn put(&mut self, operation: u8, destination: R, source: u8, offset: i16, immediate: i32) {
        self.bytes.extend([operation, destination as u8 | source << 4]);
        self.bytes.extend(offset.to_le_bytes());
        self.bytes.extend(immediate.to_le_bytes());
    }

    fn by(&mut self, what: Do, destination: R, immediate: i32) {
        self.put(0x07 | what as u8, destination, 0, 0, immediate);
    }

    fn with(&mut self, what: Do, destination: R, source: R) {
        self.put(0x0f | what as u8, destination, source as u8, 0, 0);
    }

    fn wide(&mut self, destination: R, value: u64) {
        self.put(0x18, destination, 0, 0, value as u32 as i32);
        self.put(0x00, R::Result, 0, 0, (value >> 32) as u32 as i32);
    }

    fn store(&mut self, width: Width, base: R, offset: i16, source: R) {
        self.put(width as u8, base, source as u8, offset, 0);
    }

    /// Converts a register to network byte order.
    fn big_endian(&mut self, register: R, bits: i32) {
        self.put(0xdc, register, 0, 0, bits);
    }

    fn call(&mut self, helper: i32) {
        self.put(0x85, R::Result, 0, 0, helper);
    }

    fn exit(&mut self) {
        self.put(0x95, R::Result, 0, 0, 0);
    }
}

const LOAD_EIGHT: u8 = 0x79;
const JUMP_IF_NOT: u8 = 0x55;

fn assemble(flows: Flows, frame: &[u8], ifindex: u32, step: Option<i32>) -> Code {
    const XDP_DROP: i32 = 1;
    const LOAD_FOUR: u8 = 0x61;
    const STORE_FOUR_IMMEDIATE: u8 = 0x62;
    const JUMP_IF_NOT_ABOVE: u8 = 0xbd;
    const REDIRECT: i32 = 23; // `bpf_redirect`
    let mut code = Code::default();
    code.put(LOAD_FOUR, R::Frame, R::Context as u8, 0, 0);
    code.put(LOAD_FOUR, R::End, R::Context as u8, 4, 0);
    code.with(Do::Set, R::A, R::Frame);
    code.by(Do::Add, R::A, frame.len() as i32);
    code.put(JUMP_IF_NOT_ABOVE, R::A, R::End as u8, 2, 0);
    code.by(Do::Set, R::Result, XDP_DROP);
    code.exit();
    code.state = code.bytes.len() as u64;
    code.wide(R::State, 0);
    code.put(LOAD_EIGHT, R::Nth, R::State as u8, 0, 0);
    code.with(Do::Set, R::A, R::Nth);
    code.by(Do::Add, R::A, 1);
    code.store(Width::Eight, R::State, 0, R::A);
    if let Some(step) = step {
        wait(&mut code, step);
    }
    for (word, at) in frame.chunks_exact(4).zip((0..).step_by(4)) {
        let word = i32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        code.put(STORE_FOUR_IMMEDIATE, R::Frame, 0, at, word);
    }
    splitmix(&mut code);
    match flows {
        Flows::Zipf => zipf(&mut code, ipv4_sum(frame)),
        Flows::Flood => flood(&mut code),
    }
    code.by(Do::Set, R::Context, ifindex as i32);
    code.by(Do::Set, R::Second, 0);
    code.call(REDIRECT);
    code.exit();
    code
}

/// Waits until the first packet of a batch is due. A late generator catches up, but no further back than
/// [`BEHIND_MAX`].
fn wait(code: &mut Code, step: i32) {
    const CLOCK: i32 = 5; // `bpf_ktime_get_ns`
    /// Maximum number of looks at the clock. Each takes some 30 ns, and the verifier follows no more than 8,192 jumps.
    const LOOKS_MAX: i32 = 8_000;
    const JUMP_IF_NOT_ABOVE: u8 = 0xbd;
    const JUMP_IF_NOT_ABOVE_IMMEDIATE: u8 = 0xb5;
    code.with(Do::Set, R::A, R::Nth);
    code.by(Do::And, R::A, BATCH as i32 - 1);
    code.put(JUMP_IF_NOT, R::A, 0, 12, 0);
    code.by(Do::Set, R::End, LOOKS_MAX);
    code.call(CLOCK);
    code.put(LOAD_EIGHT, R::A, R::State as u8, DUE, 0);
    code.put(JUMP_IF_NOT_ABOVE, R::A, R::Result as u8, 2, 0);
    code.by(Do::Sub, R::End, 1);
    code.put(JUMP_IF_NOT, R::End, 0, -5, 0);
    code.with(Do::Set, R::B, R::Result);
    code.with(Do::Sub, R::B, R::A);
    code.put(JUMP_IF_NOT_ABOVE_IMMEDIATE, R::B, 0, 1, BEHIND_MAX);
    code.with(Do::Set, R::A, R::Result);
    code.by(Do::Add, R::A, step);
    code.store(Width::Eight, R::State, DUE, R::A);
}

/// Computes a different random value for each number (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
fn splitmix(code: &mut Code) {
    code.wide(R::Value, 0x9e37_79b9_7f4a_7c15);
    code.with(Do::Mul, R::Value, R::Nth);
    for (shift, factor) in [(30, Some(0xbf58_476d_1ce4_e5b9)), (27, Some(0x94d0_49bb_1331_11eb)), (31, None)] {
        code.with(Do::Set, R::A, R::Value);
        code.by(Do::Right, R::A, shift);
        code.with(Do::Xor, R::Value, R::A);
        if let Some(factor) = factor {
            code.wide(R::A, factor);
            code.with(Do::Mul, R::Value, R::A);
        }
    }
}

fn zipf(code: &mut Code, sum: i32) {
    // The level, out of the upper 16 bits.
    code.with(Do::Set, R::A, R::Value);
    code.by(Do::Right, R::A, 48);
    code.by(Do::Mul, R::A, ZIPF_LEVELS as i32);
    code.by(Do::Right, R::A, 16);
    // Choose the flow.
    code.by(Do::Set, R::B, 1);
    code.with(Do::Left, R::B, R::A);
    code.with(Do::Set, R::A, R::B);
    code.by(Do::Sub, R::A, 1);
    code.with(Do::And, R::Value, R::A);
    code.with(Do::Or, R::Value, R::B);
    code.store(Width::Byte, R::Frame, IPV4_DESTINATION_LAST, R::Value);
    code.by(Do::Add, R::Value, SOURCES);
    // The checksum: the source's halves, the destination's last byte, and the rest.
    code.with(Do::Set, R::A, R::Value);
    code.by(Do::Right, R::A, 16);
    code.with(Do::Set, R::B, R::Value);
    code.by(Do::And, R::B, 0xffff);
    code.with(Do::Add, R::A, R::B);
    code.by(Do::And, R::B, 0xff);
    code.with(Do::Add, R::A, R::B);
    code.by(Do::Add, R::A, sum);
    for _ in 0..2 {
        code.with(Do::Set, R::B, R::A);
        code.by(Do::Right, R::B, 16);
        code.by(Do::And, R::A, 0xffff);
        code.with(Do::Add, R::A, R::B);
    }
    code.by(Do::Xor, R::A, 0xffff);
    code.big_endian(R::A, 16);
    code.store(Width::Two, R::Frame, IPV4_CHECKSUM, R::A);
    code.big_endian(R::Value, 32);
    code.store(Width::Four, R::Frame, IPV4_SOURCE, R::Value);
}

fn flood(code: &mut Code) {
    code.with(Do::Set, R::A, R::Nth);
    code.by(Do::And, R::A, HEAVY_EVERY as i32 - 1);
    code.put(JUMP_IF_NOT, R::A, 0, 5, 0);
    code.with(Do::Set, R::Value, R::Nth);
    code.by(Do::Right, R::Value, HEAVY_EVERY.ilog2() as i32);
    code.by(Do::And, R::Value, HEAVY_FLOWS as i32 - 1);
    code.by(Do::Add, R::Value, 1);
    // The number of the heavy flow goes into the last byte on the wire.
    code.by(Do::Left, R::Value, 56);
    code.store(Width::Eight, R::Frame, IPV6_SOURCE_LOWER, R::Value);
}
