//! Who reports: a name for people, an identity that survives restarts, and a number for each run and report.

use std::fs;

use weir_sketch::hash::{Key, sip};

use crate::{config, report};

/// Who reports, and how many reports so far.
#[derive(Clone, Debug)]
pub struct Observer {
    name: String,
    site: Option<String>,
    id: String,
    boot_id: String,
    seq: u64,
}

/// Not secret. The machine's identifier should stay on the machine; this key turns it into an identity of weir's own.
const IDENTITY_KEY: Key = Key([0x7765_6972_2f6f_6273, 0x6572_7665_722f_6964]);

impl Observer {
    /// The observer on this machine; `run` tells this run of the daemon from any other.
    pub fn of_machine(config: &config::Observer, run: u64) -> Self {
        let machine = ["/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/hostname"]
            .into_iter()
            .find_map(read_line)
            .unwrap_or_default();
        let name = config.name.clone().or_else(|| read_line("/proc/sys/kernel/hostname"));
        Self {
            name: name.unwrap_or_else(|| "weir".to_owned()),
            site: config.site.clone(),
            id: short(sip(IDENTITY_KEY, machine.as_bytes())),
            boot_id: short(run),
            seq: 0,
        }
    }

    /// The observer of a replay.
    pub fn of_replay(config: &config::Observer, run: u64) -> Self {
        Self {
            name: config.name.clone().unwrap_or_else(|| "replay".to_owned()),
            site: config.site.clone(),
            id: short(sip(IDENTITY_KEY, b"replay")),
            boot_id: short(run),
            seq: 0,
        }
    }

    /// The next report's observer: the same, with the next number.
    pub fn number(&mut self) -> report::Observer {
        self.seq += 1;
        report::Observer {
            name: self.name.clone(),
            id: self.id.clone(),
            boot_id: self.boot_id.clone(),
            seq: self.seq,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            site: self.site.clone(),
        }
    }
}

fn read_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|line| !line.is_empty())
}

fn short(id: u64) -> String {
    format!("{:08x}", id as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_numbered_and_runs_differ() {
        let config = config::Observer { name: Some("edge-1".into()), site: None };
        let mut observer = Observer::of_machine(&config, 7);
        let (first, second) = (observer.number(), observer.number());
        assert_eq!((first.name.as_str(), first.seq, second.seq), ("edge-1", 1, 2));
        let other = Observer::of_machine(&config, 8).number();
        assert_eq!(first.id, other.id);
        assert_ne!(first.boot_id, other.boot_id);
        assert_eq!(first.id.len(), 8);
    }
}
