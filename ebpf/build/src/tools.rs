//! What compiling needs: a Rust compiler with the source of its standard library, and bpf-linker.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::{PACKAGE, PACKAGE_DIR, Target};

/// Rustup's toolchains that may have the source of the standard library, the better one first. `scripts/setup` links
/// the first to Debian's compiler if there is no fitting nightly.
const TOOLCHAINS: [&str; 2] = ["weir-bpf", "nightly"];

/// A file of the standard library's source, seen from a sysroot.
const LIBRARY: &str = "lib/rustlib/src/rust/library/core/Cargo.toml";

/// The end of every message about a missing tool.
const WAY_OUT: &str = "run scripts/setup (as root on Debian; elsewhere it says what to install)";

/// aya-ebpf wants to know whose registers probes read. weir has no probes: it is the same object for every processor.
const PROCESSOR: &str = "--cfg=bpf_target_arch=\"x86_64\"";

/// Separates the flags of `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

/// The compiler, and how to call it.
pub struct Tools {
    path: OsString,
    /// The toolchain of rustup's; `None`: the compiler on `path`, where there is no rustup.
    toolchain: Option<&'static str>,
    sysroot: PathBuf,
    /// Where cargo unpacks crates.
    sources: PathBuf,
}

impl Tools {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// Which one is missing, and the way out.
    pub fn find() -> Result<Self, String> {
        let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
        // sudo's `PATH` lacks the folder of what `cargo install` brings.
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(env::split_paths(&path).chain(cargo_home.iter().map(|home| home.join("bin"))))
            .map_err(|error| format!("the folder of cargo's programs cannot be on PATH: {error}"))?;
        let (toolchain, sysroot) = compiler(&path).ok_or_else(|| {
            format!("weir needs a Rust toolchain with the `rust-src` component to build its eBPF programs: {WAY_OUT}")
        })?;
        if !env::split_paths(&path).any(|folder| folder.join("bpf-linker").is_file()) {
            return Err(format!("weir needs bpf-linker to build its eBPF programs: {WAY_OUT}"));
        }
        Ok(Self { path, toolchain, sysroot, sources: cargo_home.unwrap_or_default().join("registry/src") })
    }

    /// The call of cargo that compiles the package, without the name of a binary.
    pub fn cargo(&self, target: Target) -> Command {
        let mut command = self.command("cargo");
        // What cargo tells the build script that this runs in is about another build.
        for (variable, _) in env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("CARGO_") && name != "CARGO_HOME" || name.starts_with("RUSTC") || name == "RUSTFLAGS" {
                command.env_remove(&variable);
            }
        }
        command
            .env("RUSTC_BOOTSTRAP", "1")
            // bpf-linker optimises across crates.
            .env("CARGO_PROFILE_RELEASE_LTO", "thin")
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags())
            .current_dir(Path::new(PACKAGE_DIR).join(".."))
            .args(["build", "--quiet", "--locked", "--release", "-Z", "build-std=core"])
            .args(["--package", PACKAGE, "--target", target.triple()]);
        command
    }

    fn command(&self, program: &str) -> Command {
        let mut command = match self.toolchain {
            Some(toolchain) => {
                let mut command = Command::new("rustup");
                command.args(["run", toolchain, program]);
                command
            }
            None => Command::new(program),
        };
        command.env("PATH", &self.path);
        command
    }

    /// Names of files are the same on every machine, so that the object is, too.
    fn flags(&self) -> OsString {
        let mut flags = OsString::from(PROCESSOR);
        for flag in ["-Cdebuginfo=2", "-Clink-arg=--btf", "-Ctarget-cpu=v2"] {
            flags.push(SEPARATOR);
            flags.push(flag);
        }
        let unpacked = fs::read_dir(&self.sources).into_iter().flatten().filter_map(Result::ok);
        let crates = unpacked.map(|folder| (folder.path(), "crates"));
        let library = (self.sysroot.join("lib/rustlib/src/rust"), "rust");
        let own = fs::canonicalize(Path::new(PACKAGE_DIR).join("..")).map(|folder| (folder, "weir"));
        for (folder, name) in crates.chain([library]).chain(own) {
            flags.push(SEPARATOR);
            flags.push("--remap-path-prefix=");
            flags.push(folder);
            flags.push("=");
            flags.push(name);
        }
        flags
    }
}

/// A toolchain of rustup's that can compile eBPF, or the compiler on `path` where there is no rustup; and its sysroot.
fn compiler(path: &OsStr) -> Option<(Option<&'static str>, PathBuf)> {
    let command = |program: &str| {
        let mut command = Command::new(program);
        command.env("PATH", path);
        command
    };
    match command("rustup").arg("--version").output() {
        Ok(_) => TOOLCHAINS.into_iter().find_map(|name| {
            let sysroot = sysroot_with_library(command("rustup").args(["run", name, "rustc"]))?;
            Some((Some(name), sysroot))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some((None, sysroot_with_library(&mut command("rustc"))?))
        }
        Err(_) => None,
    }
}

/// The sysroot of this compiler, if it runs and has the standard library's source.
fn sysroot_with_library(rustc: &mut Command) -> Option<PathBuf> {
    let output = rustc.args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    sysroot.join(LIBRARY).is_file().then_some(sysroot)
}
