//! Builds the eBPF program (`ebpf/`) for its own target and leaves the object at `$OUT_DIR/weir-ebpf`.
//!
//! aya-build does the work. It takes its wishes from the environment: `RUSTC_BOOTSTRAP` lets a stable compiler build
//! `core` from source, `PATH` leads to bpf-linker. A process may not change its own environment without `unsafe`, and
//! setting the variable in `.cargo/config.toml` would unlock unstable features in every crate of the daemon; so this
//! script runs itself a second time, with the name of a toolchain as its argument, in the environment that is needed.
//!
//! `AYA_BUILD_SKIP=1` leaves an empty object instead: everything compiles, and the daemon refuses to load it.
//!
//! A failure is a `cargo::error` line and exit code 0: cargo then ends the build with that one line. Any other exit
//! code would bury it under cargo's dump of the whole output.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of package [`PROGRAM`], beside the daemon's.
const PROGRAM_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ebpf");

/// The package, its binary, and the file in `OUT_DIR`.
const PROGRAM: &str = "weir-ebpf";

/// What the object is made of. A relative path is seen from the daemon's folder.
const SOURCES: [&str; 6] =
    ["build.rs", "../ebpf", "../common/src", "../common/Cargo.toml", "../Cargo.toml", "../Cargo.lock"];

/// Rustup's names for a toolchain that may have the standard library's source, best first. `scripts/setup` links the
/// first to Debian's compiler where there is no fitting nightly.
const TOOLCHAINS: [&str; 2] = ["weir-bpf", "nightly"];

/// Where the standard library's source lies below a sysroot.
const LIBRARY: &str = "lib/rustlib/src/rust/library/core/Cargo.toml";

/// Every message about a missing piece ends in this.
const WAY_OUT: &str = "run scripts/setup (as root on Debian; elsewhere it says what to install)";

fn main() {
    println!("cargo::rerun-if-env-changed=AYA_BUILD_SKIP");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let outcome = match env::args().nth(1) {
        Some(toolchain) => build(&toolchain),
        None if skipped() => leave_empty_object(),
        None => prepare(),
    };
    if let Err(problem) = outcome {
        println!("cargo::error={problem}");
    }
}

/// Finds the tools and hands over to a second run of this script that sees them.
fn prepare() -> Result<(), String> {
    let path = path_with_cargo_bin()?;
    let toolchain = toolchain(&path).ok_or_else(|| {
        format!("weir needs a Rust toolchain with the `rust-src` component to build its eBPF program: {WAY_OUT}")
    })?;
    if !env::split_paths(&path).any(|dir| dir.join("bpf-linker").is_file()) {
        return Err(format!("weir needs bpf-linker to build its eBPF program: {WAY_OUT}"));
    }
    let status = env::current_exe()
        .and_then(|this| {
            Command::new(this)
                .arg(toolchain)
                .env("PATH", &path)
                .env("RUSTC_BOOTSTRAP", "1")
                // aya-build passes cargo's stderr on as warnings: only what went wrong is worth one.
                .env("CARGO_TERM_QUIET", "true")
                .status()
        })
        .map_err(|error| format!("the build script could not run itself again: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the build of the eBPF program broke off: {status}")) }
}

/// The second run: builds the object. The compiler's messages appear as warnings above the error.
fn build(toolchain: &str) -> Result<(), String> {
    let program = aya_build::Package { name: PROGRAM, root_dir: PROGRAM_DIR, ..aya_build::Package::default() };
    aya_build::build_ebpf([program], aya_build::Toolchain::Custom(toolchain)).map_err(|error| {
        println!("cargo::warning={error:#}");
        "weir's eBPF program did not build; the warnings above say why".to_owned()
    })
}

/// aya-build's own reading of the variable: it returns without an object.
fn skipped() -> bool {
    env::var_os("AYA_BUILD_SKIP").is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
}

fn leave_empty_object() -> Result<(), String> {
    println!("cargo::warning=AYA_BUILD_SKIP is set: this weir has no eBPF program and can only replay");
    let out_dir = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: this script is for cargo to run")?;
    let object = PathBuf::from(out_dir).join(PROGRAM);
    fs::write(&object, []).map_err(|error| format!("cannot write {}: {error}", object.display()))
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
