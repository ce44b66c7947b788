//! The section `names`: where the names of hosts come from.

use std::path::PathBuf;

use serde::Serialize;

use super::section::{Field, Section};

/// The most files of leases.
const LEASES_MAX: usize = 8;

/// The sources of names, the best first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Names {
    /// A file of the operator's own, in the format of `/etc/hosts`.
    pub file: Option<PathBuf>,
    /// True to read `/etc/hosts`.
    pub hosts: bool,
    /// The leases of DHCP servers: of dnsmasq, Kea or ISC dhcpd.
    pub leases: Vec<PathBuf>,
}

impl Default for Names {
    fn default() -> Self {
        Self { file: None, hosts: true, leases: Vec::new() }
    }
}

impl Names {
    /// Returns true if there is a source of names.
    pub fn is_on(&self) -> bool {
        self.hosts || self.file.is_some() || !self.leases.is_empty()
    }
}

pub(super) fn names(s: &mut Section<'_>) -> Names {
    let default = Names::default();
    Names {
        file: s.get("file", default.file, |f| f.file_path().map(Some)),
        hosts: s.get("hosts", default.hosts, |f| f.flag()),
        leases: s.get("leases", default.leases, |f| leases(&f)),
    }
}

fn leases(field: &Field<'_>) -> Option<Vec<PathBuf>> {
    let files = field.list(LEASES_MAX, "[/var/lib/misc/dnsmasq.leases]")?;
    let files: Vec<_> = files.iter().map(Field::file_path).collect();
    files.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(text: &str) -> Result<Names, String> {
        let config = Config::parse(text, "weir.yaml").map_err(|mistakes| mistakes.to_string())?;
        assert_eq!(Config::parse(&config.to_yaml(), "again").unwrap().names, config.names, "{text}");
        Ok(config.names)
    }

    #[test]
    fn files_are_read_and_written_again() {
        assert_eq!(read(""), Ok(Names::default()));
        let all = Names { file: Some("/etc/weir/names".into()), hosts: false, leases: vec!["/a".into(), "/b".into()] };
        assert_eq!(read("names: {file: /etc/weir/names, hosts: false, leases: [/a, /b]}"), Ok(all));
        assert!(!read("names: {hosts: false}").unwrap().is_on());
        for (text, part) in
            [("names: {leases: /a}", "leases"), ("names: {dns: true}", "dns"), ("names: {hosts: /etc/hosts}", "hosts")]
        {
            let mistake = read(text).unwrap_err();
            assert!(mistake.contains(part), "{mistake}");
        }
    }
}
