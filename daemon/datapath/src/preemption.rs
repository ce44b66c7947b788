//! Finds out whether packet programs on one CPU can interrupt each other. weir counts without atomic instructions
//! because they usually cannot: the kernel runs them with softirqs disabled, and each CPU runs one softirq at a time.
//!
//! On a real-time kernel (`PREEMPT_RT`) softirqs are threads, which can be preempted. Up to Linux 6.17 a per-CPU lock
//! still keeps them apart. From 6.18 on that lock exists only with `CONFIG_PREEMPT_RT_NEEDS_BH_LOCK`. Without it, one
//! packet could be counted in the middle of another, and counts would be lost silently.

use std::{fs, io::Read as _};

use flate2::read::GzDecoder;
use rustix::system::uname;

/// The first Linux version on which the lock is optional.
const CHOICE: (u32, u32) = (6, 18);
/// The line in the kernel's configuration that enables it.
const LOCK: &str = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y";
/// The most bytes that are read of a kernel's configuration. A typical one has about 300,000.
const CONFIG_MAX: u64 = 4 << 20;

/// Tells if programs can interrupt each other on one CPU of this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// They cannot.
    None,
    /// They cannot: this is a real-time kernel, but it has the lock.
    Locked,
    /// They can.
    Possible,
    /// They can, unless the kernel was built with the lock. Its configuration could not be read.
    Unknown,
}

impl Preemption {
    /// The answer for this kernel.
    pub fn of_this_kernel() -> Self {
        let uname = uname();
        let release = uname.release().to_string_lossy();
        Self::of(&release, &uname.version().to_string_lossy(), || configuration(&release))
    }

    /// The answer for a kernel with this release (`6.18.1-rt1`), version (`#1 SMP PREEMPT_RT ...`) and configuration.
    fn of(release: &str, version: &str, configuration: impl FnOnce() -> Option<String>) -> Self {
        if !version.split_whitespace().any(|word| word == "PREEMPT_RT") {
            return Self::None;
        }
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) if (major, minor) < CHOICE => Self::Locked,
            _ => match configuration() {
                Some(text) if text.lines().any(|line| line == LOCK) => Self::Locked,
                Some(_) => Self::Possible,
                None => Self::Unknown,
            },
        }
    }

    /// Returns true if counts are exact.
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::None | Self::Locked)
    }

    /// A description for messages.
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "packet programs do not interrupt each other",
            Self::Locked => "a real-time kernel with a lock that keeps packet programs of a CPU apart",
            Self::Possible => {
                "this real-time kernel was built without CONFIG_PREEMPT_RT_NEEDS_BH_LOCK, so packet programs interrupt \
                 each other, and counts would be lost"
            }
            Self::Unknown => {
                "this real-time kernel may have been built without CONFIG_PREEMPT_RT_NEEDS_BH_LOCK (its configuration is \
                 neither in /proc/config.gz nor in /boot), so packet programs may interrupt each other, and counts would \
                 be lost"
            }
        }
    }
}

/// This kernel's build configuration, if it can be read.
fn configuration(release: &str) -> Option<String> {
    let mut text = String::new();
    if let Ok(packed) = fs::File::open("/proc/config.gz") {
        GzDecoder::new(packed).take(CONFIG_MAX).read_to_string(&mut text).ok()?;
        return Some(text);
    }
    let files = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    let file = files.iter().find_map(|path| fs::File::open(path).ok())?;
    file.take(CONFIG_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_real_time_kernel_without_the_lock_is_refused() {
        let realtime = "#1 SMP PREEMPT_RT Debian 6.18.2-1 (2026-01-05)";
        let of = |release, version, configuration: Option<&str>| {
            Preemption::of(release, version, || configuration.map(str::to_owned))
        };
        let without = "CONFIG_PREEMPT_RT=y\n# CONFIG_PREEMPT_RT_NEEDS_BH_LOCK is not set\n";
        let with = "CONFIG_PREEMPT_RT=y\nCONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y\n";
        for (release, version, configuration, expected) in [
            ("6.18.44", "#1 SMP PREEMPT_DYNAMIC Debian 6.18.44-1", Some(without), Preemption::None),
            ("6.18.44", "#1 SMP Debian", None, Preemption::None),
            ("6.1.0-56-rt-amd64", realtime, None, Preemption::Locked),
            ("6.17.9", realtime, Some(without), Preemption::Locked),
            ("6.18.2-rt", realtime, Some(with), Preemption::Locked),
            ("6.18.2-rt", realtime, Some(without), Preemption::Possible),
            ("7.0", realtime, Some(without), Preemption::Possible),
            ("6.18.2-rt", realtime, None, Preemption::Unknown),
            ("unknown", realtime, None, Preemption::Unknown),
        ] {
            let found = of(release, version, configuration);
            assert_eq!(found, expected, "{release}, {version}");
            assert_eq!(found.is_safe(), !matches!(expected, Preemption::Possible | Preemption::Unknown));
        }
    }
}
