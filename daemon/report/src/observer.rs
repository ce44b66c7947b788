//! The observer: a name for people, an identity that survives restarts, and a number for each run and report.

use serde::{Deserialize, Serialize};
use weir_config as config;
use weir_sketch::hash::{Key, sip};
use weir_system::bounded;

use crate::compose::Numbered;

/// The last numbered report.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Last {
    /// The sequence number of the last report.
    pub seq: u64,
    /// The id of the last report.
    pub id: String,
}

/// The observer, and the number of its reports so far.
#[derive(Clone, Debug)]
pub struct Observer {
    name: String,
    site: Option<String>,
    id: String,
    boot_id: String,
    seq: u64,
    /// The id of the latest report, which may be from an earlier run.
    last: Option<String>,
}

/// Derives weir's identity from the machine's identifier, which should stay on the machine. This key is not secret.
const IDENTITY_KEY: Key = Key([0x7765_6972_2f6f_6273, 0x6572_7665_722f_6964]);

impl Observer {
    /// The observer on this machine; `run` distinguishes this run of the daemon from all others.
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
            last: None,
        }
    }

    /// The observer of a replay.
    pub fn of_replay(config: &config::Observer, run: u64) -> Self {
        // Replays of two routers are two observers.
        let name = config.name.clone().unwrap_or_else(|| "replay".to_owned());
        Self {
            id: short(sip(IDENTITY_KEY, name.as_bytes())),
            name,
            site: config.site.clone(),
            boot_id: short(run),
            seq: 0,
            last: None,
        }
    }

    /// The identity that survives restarts.
    pub fn identity(&self) -> &str {
        &self.id
    }

    /// Continues after the last report of an earlier run, if that is known.
    pub fn after(self, last: Option<Last>) -> Self {
        match last {
            Some(Last { seq, id }) => Self { seq, last: Some(id), ..self },
            None => self,
        }
    }

    /// Numbers the next report.
    pub fn number(&mut self) -> Numbered {
        self.seq += 1;
        let id = format!("{}/{}/{}", self.id, self.boot_id, self.seq);
        let previous = self.last.replace(id.clone());
        let observer = weir_schema::Observer {
            name: self.name.clone(),
            id: self.id.clone(),
            boot_id: self.boot_id.clone(),
            seq: self.seq,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            site: self.site.clone(),
        };
        Numbered { observer, id, previous }
    }
}

fn read_line(path: &str) -> Option<String> {
    let text = bounded::read_to_string(path).ok()?;
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
        let who = first.observer;
        assert_eq!((who.name.as_str(), who.seq, second.observer.seq), ("edge-1", 1, 2));
        assert_eq!(first.id, format!("{}/{}/1", who.id, who.boot_id));
        assert_eq!((first.previous, second.previous), (None, Some(first.id)));
        let other = Observer::of_machine(&config, 8).number().observer;
        assert_eq!(who.id, other.id);
        assert_ne!(who.boot_id, other.boot_id);
        assert_eq!(who.id.len(), 8);
    }

    #[test]
    fn numbers_continue_after_a_restart_and_ids_are_new() {
        let config = config::Observer { name: Some("edge-1".into()), site: None };
        let before = Observer::of_machine(&config, 7).number();
        let last = Last { seq: before.observer.seq, id: before.id.clone() };
        let after = Observer::of_machine(&config, 8).after(Some(last)).number();
        assert_eq!((after.observer.seq, after.previous), (2, Some(before.id.clone())));
        assert_ne!(after.id, before.id);
        let again = Observer::of_machine(&config, 9).after(None).number();
        assert_eq!((again.observer.seq, again.previous), (1, None));
    }
}
