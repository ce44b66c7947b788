//! Executes a program of the eBPF object, one instruction after the other, and counts them.
//!
//! Time depends on the machine and on what else it does. A count of instructions does not: the same object and the same
//! packet give the same number everywhere, without privileges. The hot path takes about 0.065 ns per instruction on a
//! Xeon of 2023, so the count says what a change costs.
//!
//! The count is that of the object's own instructions. The kernel replaces some calls of helpers by a few instructions
//! when it loads a program. These calls count as what Linux 6.18 makes of them on x86-64; all other calls count as one.
//! Fields of the context count as one load each; the kernel makes up to four loads of some. It also drops branches of
//! which it knows the outcome. On the whole the kernel executes as many as counted here, give or take 3 %.

mod context;
mod linked;
mod memory;

use anyhow::{Context as _, Result, bail, ensure};
use aya_obj::generated::bpf_insn;

pub use self::context::{Arrival, Hook};
use self::{
    linked::{Kind, Linked, Map, link},
    memory::Memory,
};

/// The stack of a function, and how many may call each other (`MAX_BPF_STACK`, `MAX_CALL_FRAMES`).
const STACK_BYTES: u64 = 512;
const CALLS_MAX: usize = 8;
/// More than any program executes for a packet.
const ENDLESS: u64 = 1 << 20;
/// Arrival time, in the kernel's ticks.
const JIFFIES: u64 = 0x1_0000_2000;

/// The numbers of helpers (`enum bpf_func_id`).
mod helper {
    pub const MAP_LOOKUP: i32 = 1;
    pub const RANDOM: i32 = 7;
    pub const PROCESSOR: i32 = 8;
    pub const SKB_LOAD: i32 = 26;
    pub const SKB_LOAD_RELATIVE: i32 = 68;
    pub const JIFFIES: i32 = 118;
    pub const RING_OUTPUT: i32 = 130;
    pub const RING_QUERY: i32 = 134;
    pub const XDP_LENGTH: i32 = 188;
}

/// The instructions that the kernel executes in place of a call: see `array_map_gen_lookup` and `do_misc_fixups` in its
/// source.
mod replaced {
    pub const ARRAY_LOOKUP: u64 = 6;
    pub const JIFFIES: u64 = 2;
    pub const PROCESSOR: u64 = 3;
}

/// A program with its maps, whose content stays from one packet to the next.
#[derive(Clone)]
pub struct Interpreter {
    program: Linked,
    memory: Memory,
    packet: u64,
    context: u64,
    stack: u64,
    random: u64,
    records: Vec<u8>,
}

/// The outcome of a program for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The return value of the program.
    pub result: u32,
    /// How many instructions it executed.
    pub instructions: u64,
}

impl Interpreter {
    /// Links a program of an object. `constants` are the values that the loader sets, by name; `entries` the number of
    /// entries of maps for which the loader sets it.
    ///
    /// # Errors
    ///
    /// The object has no such program, or it cannot be linked.
    pub fn new(object: &[u8], program: &str, constants: &[(&str, &[u8])], entries: &[(&str, u32)]) -> Result<Self> {
        let mut memory = Memory::default();
        let program = link(object, program, constants, entries, &mut memory)?;
        let [packet, context] = [(); 2].map(|()| memory.add(Vec::new()));
        let stack = memory.add(vec![0; STACK_BYTES as usize * CALLS_MAX]);
        Ok(Self { program, memory, packet, context, stack, random: 1, records: Vec::new() })
    }

    /// Writes at this offset of a map's values, which are one after the other.
    ///
    /// # Errors
    ///
    /// There is no such map, or the offset is outside of it.
    pub fn set(&mut self, map: &str, offset: usize, value: &[u8]) -> Result<()> {
        let values = self.values(map)?;
        self.memory.bytes_mut(values + offset as u64, value.len())?.copy_from_slice(value);
        Ok(())
    }

    /// Reads there.
    ///
    /// # Errors
    ///
    /// See [`Interpreter::set`].
    pub fn get(&self, map: &str, offset: usize, length: usize) -> Result<&[u8]> {
        self.memory.bytes(self.values(map)? + offset as u64, length)
    }

    fn values(&self, name: &str) -> Result<u64> {
        let map = self.program.maps.iter().find(|map| map.name == name);
        Ok(map.with_context(|| format!("the object has no map {name}"))?.values)
    }

    /// Takes what the program has written to its ring.
    pub fn take_records(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records)
    }

    /// Runs the program for a packet.
    ///
    /// # Errors
    ///
    /// The program does what no verifier would accept, or what this interpreter does not know.
    pub fn run(&mut self, arrival: &Arrival<'_>) -> Result<Executed> {
        self.memory.replace(self.packet, arrival.frame)?;
        let mut run = Run { registers: [0; 11], callers: Vec::new(), at: 0, count: 0 };
        run.registers[1] = self.context;
        run.registers[10] = self.stack + STACK_BYTES;
        loop {
            ensure!(run.count < ENDLESS, "the program does not end");
            let at = run.at;
            let instruction = *self.program.code.get(at).with_context(|| format!("no instruction {at}"))?;
            if self
                .step(&mut run, instruction, arrival)
                .with_context(|| format!("instruction {at}: {instruction:?}"))?
            {
                return Ok(Executed { result: run.registers[0] as u32, instructions: run.count });
            }
        }
    }

    /// Executes an instruction. Returns whether it ended the program.
    fn step(&mut self, run: &mut Run, instruction: bpf_insn, arrival: &Arrival<'_>) -> Result<bool> {
        const LOAD_WIDE: u8 = 0x18;
        const CALL: u8 = 0x85;
        const EXIT: u8 = 0x95;
        run.at += 1;
        run.count += 1;
        match (instruction.code, instruction.code & 7) {
            (LOAD_WIDE, _) => self.load_wide(run, instruction)?,
            (CALL, _) => self.call(run, instruction, arrival)?,
            (EXIT, _) => return Ok(run.leave()),
            (_, 1) => self.load(run, instruction, arrival)?,
            (_, 2 | 3) => self.store(run, instruction)?,
            (_, 4 | 7) => run.compute(instruction)?,
            (_, 5 | 6) => run.jump(instruction)?,
            _ => bail!("unknown"),
        }
        Ok(false)
    }

    /// A 64-bit number, a map, or the address of a value in a map of one value.
    fn load_wide(&self, run: &mut Run, instruction: bpf_insn) -> Result<()> {
        let next = self.program.code.get(run.at).context("cut off")?.imm;
        let map = || self.program.maps.get(instruction.imm as usize).context("no such map");
        run.registers[usize::from(instruction.dst_reg())] = match instruction.src_reg() {
            0 => u64::from(instruction.imm as u32) | u64::from(next as u32) << 32,
            1 => instruction.imm as u64,
            2 => map()?.values + next as u64,
            other => bail!("unknown kind {other}"),
        };
        run.at += 1;
        Ok(())
    }

    fn load(&self, run: &mut Run, instruction: bpf_insn, arrival: &Arrival<'_>) -> Result<()> {
        const MEMORY: u8 = 0x60;
        ensure!(instruction.code & 0xe0 == MEMORY, "unknown load");
        let (address, length) = run.place(instruction.src_reg(), instruction);
        let value = if address >= self.context && address < self.stack {
            self.program.hook.field(address - self.context, self.packet, arrival)?
        } else {
            self.memory.read(address, length)?
        };
        run.registers[usize::from(instruction.dst_reg())] = value;
        Ok(())
    }

    fn store(&mut self, run: &Run, instruction: bpf_insn) -> Result<()> {
        const MEMORY: u8 = 0x60;
        ensure!(instruction.code & 0xe0 == MEMORY, "unknown store");
        let (address, length) = run.place(instruction.dst_reg(), instruction);
        let value = match instruction.code & 7 {
            2 => instruction.imm as u64,
            _ => run.registers[usize::from(instruction.src_reg())],
        };
        self.memory.write(address, length, value)
    }

    /// Calls a function of the program, or a helper of the kernel.
    fn call(&mut self, run: &mut Run, instruction: bpf_insn, arrival: &Arrival<'_>) -> Result<()> {
        const OF_PROGRAM: u8 = 1;
        match instruction.src_reg() {
            OF_PROGRAM => run.enter(instruction.imm),
            0 => {
                run.registers[0] = self.help(run, instruction.imm, arrival)?;
                // A helper may change these; a program must not rely on them.
                run.registers[1..6].fill(0xdead);
                Ok(())
            }
            other => bail!("unknown kind of call {other}"),
        }
    }

    fn help(&mut self, run: &mut Run, helper: i32, arrival: &Arrival<'_>) -> Result<u64> {
        let [_, a, b, c, d, ..] = run.registers;
        Ok(match helper {
            helper::MAP_LOOKUP => {
                let map = self.program.maps.get(a as usize).context("no such map")?;
                let key = self.memory.read(b, 4)?;
                if map.kind == Kind::Array {
                    run.count += replaced::ARRAY_LOOKUP - 1;
                }
                element(map, key)
            }
            helper::JIFFIES => {
                run.count += replaced::JIFFIES - 1;
                JIFFIES
            }
            helper::PROCESSOR => {
                run.count += replaced::PROCESSOR - 1;
                0
            }
            helper::RANDOM => {
                self.random = weir_common::hash::mix(self.random);
                self.random & u64::from(u32::MAX)
            }
            helper::XDP_LENGTH => arrival.frame.len() as u64,
            helper::SKB_LOAD | helper::SKB_LOAD_RELATIVE => {
                let Some(bytes) = arrival.frame.get(b as usize..).and_then(|rest| rest.get(..d as usize)) else {
                    return Ok(-14_i64 as u64);
                };
                self.memory.bytes_mut(c, d as usize)?.copy_from_slice(bytes);
                0
            }
            helper::RING_OUTPUT => {
                self.records.extend_from_slice(self.memory.bytes(b, c as usize)?);
                0
            }
            // No record waits.
            helper::RING_QUERY => 0,
            other => bail!("unknown helper {other}"),
        })
    }
}

/// The address of a map's element, or 0.
const fn element(map: &Map, key: u64) -> u64 {
    match map.kind {
        Kind::Array | Kind::Rings if key < map.len => map.values + key * map.value_bytes,
        _ => 0,
    }
}

/// The state of a run.
struct Run {
    registers: [u64; 11],
    /// Where each function continues, and the registers that it keeps: 6 to 10.
    callers: Vec<(usize, [u64; 5])>,
    at: usize,
    count: u64,
}

impl Run {
    /// The address that a load or a store refers to, and how many bytes it takes.
    fn place(&self, register: u8, instruction: bpf_insn) -> (u64, usize) {
        let length = match instruction.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        };
        (self.registers[usize::from(register)].wrapping_add_signed(instruction.off.into()), length)
    }

    fn enter(&mut self, distance: i32) -> Result<()> {
        ensure!(self.callers.len() + 1 < CALLS_MAX, "too many calls");
        let mut kept = [0; 5];
        kept.copy_from_slice(&self.registers[6..]);
        self.callers.push((self.at, kept));
        self.registers[10] += STACK_BYTES;
        self.go(distance.into())
    }

    /// Ends a function. Returns whether it was the program.
    fn leave(&mut self) -> bool {
        let Some((at, kept)) = self.callers.pop() else { return true };
        self.at = at;
        self.registers[6..].copy_from_slice(&kept);
        false
    }

    fn go(&mut self, distance: i64) -> Result<()> {
        self.at = usize::try_from(self.at as i64 + distance).context("a jump to nowhere")?;
        Ok(())
    }

    /// Returns the second operand.
    fn operand(&self, instruction: bpf_insn) -> u64 {
        const IS_REGISTER: u8 = 8;
        if instruction.code & IS_REGISTER != 0 {
            self.registers[usize::from(instruction.src_reg())]
        } else {
            instruction.imm as u64
        }
    }

    fn compute(&mut self, instruction: bpf_insn) -> Result<()> {
        let is_wide = instruction.code & 7 == 7;
        let to = usize::from(instruction.dst_reg());
        let mask = if is_wide { u64::MAX } else { u32::MAX.into() };
        let shift_mask = if is_wide { 63 } else { 31 };
        let (a, b) = (self.registers[to] & mask, self.operand(instruction) & mask);
        let by = (b & shift_mask) as u32;
        let value = match instruction.code >> 4 {
            13 => {
                self.registers[to] = swapped(instruction, self.registers[to], is_wide)?;
                return Ok(());
            }
            11 => match instruction.off {
                0 => b,
                bits @ (8 | 16 | 32) => extended(b, bits as u32),
                _ => bail!("unknown move"),
            },
            _ if instruction.off != 0 => bail!("unknown arithmetic"),
            0 => a.wrapping_add(b),
            1 => a.wrapping_sub(b),
            2 => a.wrapping_mul(b),
            3 => a.checked_div(b).unwrap_or(0),
            4 => a | b,
            5 => a & b,
            6 => a << by,
            7 => a >> by,
            8 => a.wrapping_neg(),
            9 => a.checked_rem(b).unwrap_or(a),
            10 => a ^ b,
            12 if is_wide => (a as i64 >> by) as u64,
            12 => (a as u32 as i32 >> by) as u64,
            _ => bail!("unknown arithmetic"),
        };
        self.registers[to] = value & mask;
        Ok(())
    }

    fn jump(&mut self, instruction: bpf_insn) -> Result<()> {
        let is_wide = instruction.code & 7 == 5;
        let (a, b) = (self.registers[usize::from(instruction.dst_reg())], self.operand(instruction));
        let (a, b) = if is_wide { (a, b) } else { (a & u64::from(u32::MAX), b & u64::from(u32::MAX)) };
        let signed = |number: u64| if is_wide { number as i64 } else { i64::from(number as u32 as i32) };
        let is_taken = match instruction.code >> 4 {
            0 if is_wide => true,
            0 => return self.go(instruction.imm.into()),
            1 => a == b,
            2 => a > b,
            3 => a >= b,
            4 => a & b != 0,
            5 => a != b,
            6 => signed(a) > signed(b),
            7 => signed(a) >= signed(b),
            10 => a < b,
            11 => a <= b,
            12 => signed(a) < signed(b),
            13 => signed(a) <= signed(b),
            _ => bail!("unknown jump"),
        };
        if is_taken { self.go(instruction.off.into()) } else { Ok(()) }
    }
}

/// The lowest bytes of a number in another order: always for a 64-bit instruction, and to big-endian otherwise. Numbers
/// are little-endian here.
fn swapped(instruction: bpf_insn, number: u64, is_wide: bool) -> Result<u64> {
    const TO_BIG: u8 = 8;
    let is_swapped = is_wide || instruction.code & TO_BIG != 0;
    Ok(match (instruction.imm, is_swapped) {
        (16, true) => (number as u16).swap_bytes().into(),
        (32, true) => (number as u32).swap_bytes().into(),
        (64, true) => number.swap_bytes(),
        (16, false) => u64::from(number as u16),
        (32, false) => u64::from(number as u32),
        (64, false) => number,
        (bits, _) => bail!("{bits} bits cannot be swapped"),
    })
}

/// The lowest bits of a number, with their sign.
const fn extended(number: u64, bits: u32) -> u64 {
    let above = u64::BITS - bits;
    ((number << above) as i64 >> above) as u64
}
