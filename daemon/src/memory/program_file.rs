//! How much memory this program's own file can have resident: code and data of the build that runs.
//!
//! A build for debugging has twice as much as a stripped one, so the size is read from the file itself. Its parts that
//! describe the code to a debugger are never loaded, and those that describe it to a panic are hardly ever touched.
//!
//! The format is that of the "ELF-64 Object File Format" (and elf(5)).

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::LazyLock};

/// The size that is planned if the file cannot be read: that of a build for debugging.
const UNKNOWN_BYTES: u64 = 24 << 20;
/// The most sections of a file that are read. Linkers make some thirty.
const SECTIONS_MAX: u16 = 256;
/// The most bytes of all names of sections.
const NAMES_MAX: u64 = 64 << 10;
/// Sections that say how to unwind the stack, which only a panic reads.
const UNWINDING: [&[u8]; 3] = [b".eh_frame", b".eh_frame_hdr", b".gcc_except_table"];
/// A section that is in memory while the program runs (`SHF_ALLOC`).
const ALLOCATED: u64 = 2;
/// The size of a section's entry.
const ENTRY: u64 = 64;

static RESIDENT: LazyLock<u64> =
    LazyLock::new(|| File::open("/proc/self/exe").and_then(|file| resident_of(&file)).unwrap_or(UNKNOWN_BYTES));

/// Bytes of this program that can be resident. Call it first before the sandbox closes: it reads the program's file
/// once.
pub fn resident_bytes() -> u64 {
    *RESIDENT
}

/// Returns the resident size of the program in `file`.
fn resident_of(file: &File) -> io::Result<u64> {
    let head = read::<64>(file, 0)?;
    if !head.starts_with(b"\x7fELF\x02") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (table, count, names) = (long(&head, 40), short(&head, 60), short(&head, 62));
    if count == 0 || count > SECTIONS_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let section = |nth: u16| read::<64>(file, table.saturating_add(u64::from(nth) * ENTRY));
    let of_names = section(names)?;
    let mut all = vec![0; long(&of_names, 32).min(NAMES_MAX) as usize];
    file.read_exact_at(&mut all, long(&of_names, 24))?;
    let mut bytes = 0_u64;
    for nth in 0..count {
        let section = section(nth)?;
        let name = all.get(word(&section, 0) as usize..).and_then(|rest| rest.split(|byte| *byte == 0).next());
        if long(&section, 8) & ALLOCATED != 0 && !name.is_some_and(|name| UNWINDING.contains(&name)) {
            bytes = bytes.saturating_add(long(&section, 32));
        }
    }
    Ok(bytes)
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn field<const N: usize>(entry: &[u8; 64], at: usize) -> [u8; N] {
    *entry[at..].first_chunk().expect("every field is inside of its entry")
}

fn short(entry: &[u8; 64], at: usize) -> u16 {
    u16::from_ne_bytes(field(entry, at))
}

fn word(entry: &[u8; 64], at: usize) -> u32 {
    u32::from_ne_bytes(field(entry, at))
}

fn long(entry: &[u8; 64], at: usize) -> u64 {
    u64::from_ne_bytes(field(entry, at))
}
