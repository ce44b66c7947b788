//! Builds weir's eBPF objects (`ebpf/`) for their own target: what the build scripts of `daemon` and `tests` call.
//!
//! aya-build does the work. It takes its wishes from the environment:
//!
//! - `RUSTC_BOOTSTRAP` lets a stable compiler build `core` from source.
//! - `PATH` leads to bpf-linker.
//! - `OUT_DIR` is where it builds. It is one folder for all objects and profiles, because building `core` takes a
//!   minute.
//!
//! A process may not change its own environment without `unsafe`, and setting the variables in `.cargo/config.toml`
//! would unlock unstable features in every crate of the daemon. So a build script runs itself a second time, with the
//! name of a toolchain as its argument, in the environment that is needed.
//!
//! `AYA_BUILD_SKIP=1` leaves an empty object instead: everything compiles, and the daemon refuses to load it.
//!
//! A failure is a `cargo::error` line and exit code 0: cargo then ends the build with that one line. Any other exit
//! code would bury it under cargo's dump of the whole output.

#![expect(clippy::print_stdout, reason = "a build script talks to cargo by its standard output")]

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
};

/// The package that all objects are built from, and its folder.
const PACKAGE: &str = "weir-ebpf";
const PACKAGE_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What the objects are made of, seen from the package's folder.
const SOURCES: [&str; 5] = ["", "../common/src", "../common/Cargo.toml", "../Cargo.toml", "../Cargo.lock"];

/// Rustup's toolchains that may have the source of the standard library, the better one first. `scripts/setup` links
/// the first to Debian's compiler if there is no fitting nightly.
const TOOLCHAINS: [&str; 2] = ["weir-bpf", "nightly"];

/// A file of the standard library's source, seen from a sysroot.
const LIBRARY: &str = "lib/rustlib/src/rust/library/core/Cargo.toml";

/// The end of every message about a missing tool.
const WAY_OUT: &str = "run scripts/setup (as root on Debian; elsewhere it says what to install)";

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
    const fn features(self) -> &'static [&'static str] {
        match self {
            Self::Shipped => &[],
            Self::Benchmark => &["benchmark"],
        }
    }
}

/// A build script's whole work: leaves an object in `OUT_DIR`, or tells cargo why there is none.
pub fn leave(object: Object) {
    println!("cargo::rerun-if-env-changed=AYA_BUILD_SKIP");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={PACKAGE_DIR}/{source}");
    }
    let outcome = match env::args().nth(1) {
        Some(toolchain) => build(object, &toolchain),
        None if skipped() => leave_empty(object),
        None => prepare(object),
    };
    if let Err(problem) = outcome {
        println!("cargo::error={problem}");
    }
}

/// Finds the tools, hands over to a second run of this script that sees them, and takes what it built.
fn prepare(object: Object) -> Result<(), String> {
    let path = path_with_cargo_bin()?;
    let toolchain = toolchain(&path).ok_or_else(|| {
        format!("weir needs a Rust toolchain with the `rust-src` component to build its eBPF programs: {WAY_OUT}")
    })?;
    if !env::split_paths(&path).any(|dir| dir.join("bpf-linker").is_file()) {
        return Err(format!("weir needs bpf-linker to build its eBPF programs: {WAY_OUT}"));
    }
    let out_dir = out_dir()?;
    let shared = shared_folder(&out_dir)?;
    fs::create_dir_all(&shared).map_err(|error| format!("cannot make {}: {error}", shared.display()))?;
    let lock = shared.join("lock");
    // Released when this process ends. The second run builds in the shared folder and this one takes the object from
    // there: no other build script may come between.
    let _lock = File::create(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("cannot lock {}: {error}", lock.display()))?;
    let status = env::current_exe()
        .and_then(|this| {
            Command::new(this)
                .arg(toolchain)
                .env("PATH", &path)
                .env("OUT_DIR", &shared)
                .env("RUSTC_BOOTSTRAP", "1")
                // aya-build passes cargo's stderr on as warnings: only what went wrong is worth one.
                .env("CARGO_TERM_QUIET", "true")
                .status()
        })
        .map_err(|error| format!("the build script could not run itself again: {error}"))?;
    if !status.success() {
        return Err(format!("the build of the eBPF programs broke off: {status}"));
    }
    let (built, taken) = (shared.join(object.name()), out_dir.join(object.name()));
    match fs::copy(&built, &taken) {
        Ok(_) => Ok(()),
        // The second run has already said why it built none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("cannot copy {} to {}: {error}", built.display(), taken.display())),
    }
}

/// The second run: builds the object. The compiler's messages appear as warnings above the error.
fn build(object: Object, toolchain: &str) -> Result<(), String> {
    // What an earlier build left is not to be taken for the result of this one.
    let _ = fs::remove_file(out_dir()?.join(object.name()));
    let package = aya_build::Package {
        name: PACKAGE,
        root_dir: PACKAGE_DIR,
        features: object.features(),
        ..aya_build::Package::default()
    };
    aya_build::build_ebpf([package], aya_build::Toolchain::Custom(toolchain)).map_err(|error| {
        println!("cargo::warning={error:#}");
        "weir's eBPF programs did not build; the warnings above say why".to_owned()
    })
}

/// aya-build's own reading of the variable: it returns without an object.
fn skipped() -> bool {
    env::var_os("AYA_BUILD_SKIP").is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

fn leave_empty(object: Object) -> Result<(), String> {
    if object == Object::Shipped {
        println!("cargo::warning=AYA_BUILD_SKIP is set: this weir has no eBPF programs and can only replay");
    }
    let file = out_dir()?.join(object.name());
    fs::write(&file, []).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn out_dir() -> Result<PathBuf, String> {
    env::var_os("OUT_DIR").map(PathBuf::from).ok_or_else(|| "OUT_DIR is not set: this is for build scripts".to_owned())
}

/// The folder that all builds of eBPF objects share, in cargo's target directory.
fn shared_folder(out_dir: &Path) -> Result<PathBuf, String> {
    // target/PROFILE/build/PACKAGE-HASH/out
    let target = out_dir.ancestors().nth(4).ok_or_else(|| format!("{} is no OUT_DIR of cargo's", out_dir.display()))?;
    Ok(target.join("ebpf"))
}

/// The toolchain to build with: one of rustup's, or the compiler on `path` where there is no rustup (aya-build then
/// ignores the name).
fn toolchain(path: &OsStr) -> Option<&'static str> {
    let command = |program: &str| {
        let mut command = Command::new(program);
        command.env("PATH", path);
        command
    };
    match command("rustup").arg("--version").output() {
        Ok(_) => TOOLCHAINS.into_iter().find(|name| has_library(command("rustup").args(["run", name, "rustc"]))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => has_library(&mut command("rustc")).then_some("PATH"),
        Err(_) => None,
    }
}

/// Whether this compiler runs and has the standard library's source.
fn has_library(rustc: &mut Command) -> bool {
    rustc
        .args(["--print", "sysroot"])
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .is_some_and(|sysroot| Path::new(sysroot.trim_end()).join(LIBRARY).is_file())
}

/// `PATH`, and after it the folder of rustup and of what `cargo install` brings: sudo's `PATH` lacks it.
fn path_with_cargo_bin() -> Result<OsString, String> {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(env::split_paths(&path).chain(cargo_home.map(|home| home.join("bin"))))
        .map_err(|error| format!("the folder of cargo's programs cannot be on PATH: {error}"))
}
