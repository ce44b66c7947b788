//! weir's eBPF objects, for the build scripts of `daemon/datapath` and `tests`.
//!
//! The object that the daemon loads is kept in `ebpf/object/`, so that building weir needs no eBPF tools.
//! `scripts/ebpf` makes it, and `scripts/check` makes it again and compares. A build script compiles the object itself
//! where that one does not fit: the sources have changed since, the processor is big-endian, or `WEIR_BUILD_EBPF=1`
//! asks for it.
//!
//! Compiling needs a Rust compiler with the source of its standard library, and bpf-linker. `RUSTC_BOOTSTRAP` lets a
//! stable compiler build `core` from source. All objects and profiles are compiled in one folder, because building
//! `core` takes a minute.
//!
//! A failure is a `cargo::error` line and exit code 0: cargo then ends the build with that one line. Any other exit
//! code would bury it under cargo's dump of the whole output.

#![expect(clippy::print_stdout, reason = "a build script talks to cargo by its standard output")]

mod kept;
mod tools;

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Output,
};

pub use self::kept::{FINGERPRINT, fingerprint};
use self::{kept::is_current, tools::Tools};

/// The package that all objects are built from, and its folder.
const PACKAGE: &str = "weir-ebpf";
const PACKAGE_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Everything that decides what a build script does, seen from the package's folder.
const WATCHED: [&str; 5] = ["", "../common/src", "../common/Cargo.toml", "../Cargo.toml", "../Cargo.lock"];

/// `1` asks for an object that is compiled from source, `0` for the one in `ebpf/object/`, whatever the sources are.
const CHOICE: &str = "WEIR_BUILD_EBPF";

/// An object that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// What the daemon loads: `$OUT_DIR/weir-ebpf`.
    Shipped,
    /// The same and the benchmark's programs: `$OUT_DIR/weir-ebpf-benchmark`.
    Benchmark,
}

impl Object {
    /// The file's name, which is the binary's in the package.
    const fn name(self) -> &'static str {
        match self {
            Self::Shipped => "weir-ebpf",
            Self::Benchmark => "weir-ebpf-benchmark",
        }
    }

    /// The package's features that it needs.
    const fn features(self) -> &'static str {
        match self {
            Self::Shipped => "",
            Self::Benchmark => "benchmark",
        }
    }
}

/// What an object is compiled for. Only the byte order of the processor matters: the programs read packets and maps,
/// and no registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    LittleEndian,
    BigEndian,
}

impl Target {
    /// That of the object in `ebpf/object/`.
    const KEPT: Self = Self::LittleEndian;

    /// That of the machine which cargo builds for.
    fn of_build_script() -> Result<Self, String> {
        let order = env::var("CARGO_CFG_TARGET_ENDIAN")
            .map_err(|_| "CARGO_CFG_TARGET_ENDIAN is not set: this is for build scripts".to_owned())?;
        Ok(if order == "big" { Self::BigEndian } else { Self::LittleEndian })
    }

    /// Rust's name for it.
    const fn triple(self) -> &'static str {
        match self {
            Self::LittleEndian => "bpfel-unknown-none",
            Self::BigEndian => "bpfeb-unknown-none",
        }
    }
}

/// A build script's whole work: leaves an object in `OUT_DIR`, or tells cargo why there is none.
pub fn leave(object: Object) {
    println!("cargo::rerun-if-env-changed={CHOICE}");
    for path in WATCHED {
        println!("cargo::rerun-if-changed={PACKAGE_DIR}/{path}");
    }
    if let Err(problem) = take(object) {
        println!("cargo::error={problem}");
    }
}

fn take(object: Object) -> Result<(), String> {
    let out_dir = env::var_os("OUT_DIR").map(PathBuf::from).ok_or("OUT_DIR is not set: this is for build scripts")?;
    let target = Target::of_build_script()?;
    let choice = env::var(CHOICE).unwrap_or_default();
    let is_kept = object == Object::Shipped
        && match &*choice {
            "1" => false,
            "0" => true,
            "" => target == Target::KEPT && is_current()?,
            _ => return Err(format!("{CHOICE}={choice}: it is 1 (compile), 0 (do not) or not set")),
        };
    let from = if is_kept { kept::object() } else { compile_for(object, target, &shared_folder(&out_dir)?)? };
    let to = out_dir.join(object.name());
    fs::copy(&from, &to)
        .map(drop)
        .map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

/// Compiles the object that is to be kept, in this folder; gives its path.
///
/// # Errors
///
/// Which tool is missing, or what the compiler says.
pub fn compile_kept(folder: &Path) -> Result<PathBuf, String> {
    compile_for(Object::Shipped, Target::KEPT, folder)
}

fn compile_for(object: Object, target: Target, folder: &Path) -> Result<PathBuf, String> {
    let tools = Tools::find()?;
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let lock = folder.join("lock");
    // Released when this process ends, by which time it has copied the object: no other build may come between.
    let locked = File::create(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("cannot lock {}: {error}", lock.display()))?;
    std::mem::forget(locked);
    let built = tools
        .cargo(target)
        .args(["--bin", object.name(), "--features", object.features()])
        .arg("--target-dir")
        .arg(folder)
        .output();
    let Output { status, stderr, .. } = built.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        for line in String::from_utf8_lossy(&stderr).lines() {
            println!("cargo::warning={line}");
        }
        return Err("weir's eBPF programs did not build; the warnings above say why".to_owned());
    }
    Ok(folder.join(target.triple()).join("release").join(object.name()))
}

/// The folder in cargo's target directory where all objects are compiled.
fn shared_folder(out_dir: &Path) -> Result<PathBuf, String> {
    // target/PROFILE/build/PACKAGE-HASH/out
    let target = out_dir.ancestors().nth(4).ok_or_else(|| format!("{} is no OUT_DIR of cargo's", out_dir.display()))?;
    Ok(target.join("ebpf"))
}

/// What a file has; an error names it.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error: io::Error| format!("cannot read {}: {error}", path.display()))
}
