//! Reads `/sys` and `/proc` for an interface: its driver, its receive queues, and the CPUs that handle them.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use weir_attach::netlink::{Device, name};
use weir_system::bounded;

/// Returns the directory of an interface. `None` if `/sys` belongs to another network namespace.
fn directory(device: &Device) -> Option<PathBuf> {
    let directory = Path::new("/sys/class/net").join(OsStr::from_bytes(&name::to_bytes(&device.name)));
    let index = bounded::read_to_string(directory.join("ifindex")).ok()?.trim().parse().ok();
    (index == Some(device.ifindex)).then_some(directory)
}

/// The driver's name; for a virtual interface, its kind.
pub fn driver(device: &Device) -> Option<String> {
    let bound = directory(device).and_then(|directory| last(&fs::read_link(directory.join("device/driver")).ok()?));
    bound.or_else(|| device.kind.clone()).or_else(|| device.loopback.then(|| "loopback".to_owned()))
}

fn last(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// The receive queues of an interface, and the CPUs that handle them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// The number of queues.
    pub receive: usize,
    /// The CPUs that a packet may be handed to after its queue (RPS); empty if that is off.
    pub rps: BTreeSet<u32>,
    /// The CPUs that the interrupts of its card go to; `None` if it has no card, or if that is unknown.
    pub interrupts: Option<BTreeSet<u32>>,
}

/// Returns the receive queues of an interface, if `/sys` lists them.
pub fn queues(device: &Device) -> Option<Queues> {
    let directory = directory(device)?;
    let mut queues = Queues { interrupts: interrupts(&directory), ..Queues::default() };
    for queue in fs::read_dir(directory.join("queues")).ok()?.filter_map(Result::ok) {
        if queue.file_name().to_string_lossy().starts_with("rx-") {
            queues.receive += 1;
            queues
                .rps
                .extend(bounded::read_to_string(queue.path().join("rps_cpus")).iter().flat_map(|mask| of_mask(mask)));
        }
    }
    Some(queues)
}

fn interrupts(directory: &Path) -> Option<BTreeSet<u32>> {
    let card = fs::canonicalize(directory.join("device")).ok()?;
    // The interrupts of a virtio device are those of the card that it is on.
    let is_virtio =
        fs::read_link(card.join("subsystem")).ok().and_then(|path| last(&path)).as_deref() == Some("virtio");
    let card = if is_virtio { card.parent()? } else { &card };
    let mut cpus = BTreeSet::new();
    for interrupt in fs::read_dir(card.join("msi_irqs")).ok()?.filter_map(Result::ok) {
        let about = Path::new("/proc/irq").join(interrupt.file_name());
        let list = ["effective_affinity_list", "smp_affinity_list"].iter().find_map(|file| {
            // The first file is empty for an interrupt that has not been requested.
            bounded::read_to_string(about.join(file)).ok().filter(|list| !list.trim().is_empty())
        });
        cpus.extend(list.iter().flat_map(|list| of_list(list)));
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// The CPUs in a mask such as `00000001,80000000`, whose last digit is for the first four.
fn of_mask(mask: &str) -> Vec<u32> {
    let digits = mask.trim().chars().rev().filter_map(|digit| digit.to_digit(16));
    let cpus = (0..)
        .step_by(4)
        .zip(digits)
        .flat_map(|(first, digit)| (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| first + bit));
    cpus.collect()
}

/// The CPUs in a list such as `0-3,8`.
fn of_list(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// CPUs as a list such as `0-3,8`.
pub fn listed(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let one = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_lists_of_cpus_are_read_and_written() {
        assert_eq!(of_mask("0\n"), [0; 0]);
        assert_eq!(of_mask("f\n"), [0, 1, 2, 3]);
        assert_eq!(of_mask("00000001,80000002\n"), [1, 31, 32]);
        assert_eq!(of_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(of_list("\n"), [0; 0]);
        for list in ["0-3,8", "5", "", "1,3,5-6"] {
            assert_eq!(listed(&of_list(list).into_iter().collect()), list);
        }
    }
}
