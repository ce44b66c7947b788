//! Makes the object that is kept in `ebpf/object/`: `scripts/ebpf` calls it.
//!
//!     weir-ebpf-object BUILD-FOLDER FOLDER
//!
//! Without debug information (DWARF), which nothing loads: it is most of what the compiler leaves. BTF stays, by which
//! the kernel names types and functions, but not the numbers of lines: they are half of what is left, the loader copies
//! them for each function, and only the log of a verifier that refuses a program shows them. Packed by gzip.

#![expect(clippy::print_stderr, reason = "a program's errors")]

use std::{
    env,
    error::Error,
    fs::{self, File},
    path::Path,
    process::ExitCode,
};

use flate2::{Compression, GzBuilder};
use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};
use weir_ebpf_build::{FINGERPRINT, compile_kept, fingerprint};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [build, folder] = arguments.as_slice() else {
        eprintln!("usage: weir-ebpf-object BUILD-FOLDER FOLDER");
        return ExitCode::from(2);
    };
    match make(Path::new(build), Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-ebpf-object: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(build: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let object = without_debug_information(&fs::read(compile_kept(build)?)?)?;
    fs::create_dir_all(folder)?;
    // Without a name and a time: the same bytes each time.
    let mut packed = GzBuilder::new().write(File::create(folder.join("weir-ebpf.o.gz"))?, Compression::best());
    std::io::Write::write_all(&mut packed, &object)?;
    packed.finish()?;
    fs::write(folder.join("weir-ebpf.o"), &object)?;
    fs::write(folder.join(FINGERPRINT), format!("{}\n", fingerprint()?))?;
    Ok(())
}

/// Names of functions have a number for each crate, which follows from the versions of all crates of a build, also of
/// those that are not in the object. All of its digits become 0 (Rust's RFC 2603: `Cs`, digits of base 62, `_`).
fn without_numbers(names: &mut [u8]) {
    /// A name may have these two letters without being one of a crate.
    const DIGITS_MIN: usize = 8;
    let mut at = 0;
    while at + 2 < names.len() {
        let digits = names[at + 2..].iter().take_while(|digit| digit.is_ascii_alphanumeric()).count();
        let end = at + 2 + digits;
        if names[at..].starts_with(b"Cs") && digits >= DIGITS_MIN && names.get(end) == Some(&b'_') {
            names[at + 2..end].fill(b'0');
        }
        at += 1;
    }
}

/// The content of `.BTF.ext` without numbers of lines. Its header (`struct btf_ext_header`) has the offset and length
/// of each of its three parts: functions, lines, relocations.
fn without_lines(ext: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    const HEADER: usize = 4;
    const LINES: usize = 16;
    const LINES_LENGTH: usize = 20;
    const RELOCATIONS: usize = 24;
    let word = |at: usize| {
        let bytes = ext.get(at..).and_then(|rest| rest.first_chunk()).ok_or("a short section .BTF.ext")?;
        Ok::<_, Box<dyn Error>>(u32::from_le_bytes(*bytes))
    };
    let (header, lines, length, relocations) = (word(HEADER)?, word(LINES)?, word(LINES_LENGTH)?, word(RELOCATIONS)?);
    let first = (header + lines) as usize;
    let after = ext.get(first + length as usize..).ok_or("a short section .BTF.ext")?;
    let mut rest = [&ext[..first], after].concat();
    let relocations = if relocations > lines { relocations - length } else { relocations };
    rest[LINES_LENGTH..RELOCATIONS].copy_from_slice(&[0; 4]);
    rest[RELOCATIONS..RELOCATIONS + 4].copy_from_slice(&relocations.to_le_bytes());
    Ok(rest)
}

/// The relocations of `.BTF.ext` go, too: loaders know what its offsets mean.
fn without_debug_information(object: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut elf = Builder::read(object)?;
    for section in &mut elf.sections {
        let name = section.name.as_slice();
        let name = name.strip_prefix(b".rel").unwrap_or(name);
        section.delete = name.starts_with(b".debug_") || section.name.as_slice() == b".rel.BTF.ext";
        match (section.name.as_slice(), &mut section.data) {
            (b".BTF", SectionData::Data(types)) => without_numbers(types.to_mut()),
            (b".BTF.ext", SectionData::Data(ext)) => *ext = without_lines(ext)?.into(),
            _ => {}
        }
    }
    for symbol in &mut elf.symbols {
        without_numbers(symbol.name.to_mut());
    }
    // LLVM keeps the names of sections with those of symbols; `object` writes a section of their own.
    let names = elf.sections.add();
    names.name = ".shstrtab".into();
    names.sh_type = SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut bytes = Vec::new();
    elf.write(&mut bytes)?;
    Ok(bytes)
}
