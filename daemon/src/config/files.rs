//! Which files a configuration names.

use std::path::{Path, PathBuf};

use super::{Config, File, HashKey, Http, Nats, Target, Tls};
use crate::names::GeoFiles;

/// The files that a configuration names, by what weir does with them. None of them need be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Read, some of them again and again; each with the section that names it.
    pub read: Vec<(&'static str, PathBuf)>,
    /// Written, renamed and removed.
    pub written: Vec<(&'static str, PathBuf)>,
    /// The folder of the spools, if it is one of its own.
    pub spool: Option<PathBuf>,
    /// The control socket.
    pub socket: Option<PathBuf>,
}

impl Config {
    /// The files that it names. `state_directory` is where the service keeps its state, if it does.
    pub fn files(&self, state_directory: Option<&Path>) -> Files {
        let mut files = Files {
            spool: self.spool.folder(state_directory),
            socket: self.control.socket.clone(),
            ..Files::default()
        };
        let GeoFiles { asn, country } = &self.geo;
        files.reads("geo", asn.iter().chain(country));
        files.reads("networks", self.networks.iter().filter_map(|network| Some(&network.file.as_ref()?.path)));
        if let HashKey::File(path) = &self.hash_key {
            files.reads("hash_key", [path]);
        }
        for sink in &self.sinks {
            match &sink.target {
                Target::Stdout | Target::Ipfix(_) => {}
                Target::File(File { path, .. }) => files.written.push(("sinks", path.clone())),
                Target::Http(http) | Target::Otlp(http) => {
                    let Http { token_file, header_files, tls, .. } = &**http;
                    files.reads("sinks", token_file.iter().chain(header_files.iter().map(|(_, file)| file)));
                    files.reads("sinks", of_tls(tls));
                }
                Target::Nats(nats) => {
                    let Nats { credentials_file, token_file, password_file, tls, .. } = &**nats;
                    files.reads("sinks", credentials_file.iter().chain(token_file).chain(password_file));
                    files.reads("sinks", of_tls(tls));
                }
            }
        }
        files
    }
}

impl Files {
    fn reads<'f>(&mut self, section: &'static str, files: impl IntoIterator<Item = &'f PathBuf>) {
        self.read.extend(files.into_iter().map(|file| (section, file.clone())));
    }
}

fn of_tls(Tls { ca_file, certificate_file, key_file }: &Tls) -> impl Iterator<Item = &PathBuf> {
    [ca_file, certificate_file, key_file].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_a_configuration_is_among_its_files() {
        let directory = std::env::temp_dir().join(format!("weir-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("networks"), "192.0.2.0/24\n").unwrap();
        let config = format!(
            "networks: {{n: {{file: {}}}}}\n\
             hash_key: {{file: /f/key}}\n\
             control: {{socket: /s/control}}\n\
             spool: {{path: /p/spool}}\n\
             sinks:\n\
             - {{type: file, path: /w/reports}}\n\
             - {{type: http, url: 'https://a/', token_file: /f/token, header_files: {{X-Tenant: /f/tenant}},\n\
             \x20  tls: {{ca_file: /f/ca, certificate_file: /f/certificate, key_file: /f/tls-key}}}}",
            directory.join("networks").display()
        );
        let config = Config::parse(&config, "weir.yaml").unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let Files { read, written, spool, socket } = config.files(Some(Path::new("/state")));
        let names: Vec<_> =
            read.iter().filter_map(|(section, path)| Some((*section, path.file_name()?.to_str()?))).collect();
        assert_eq!(names[..2], [("networks", "networks"), ("hash_key", "key")]);
        assert_eq!(names[2..], ["token", "tenant", "ca", "certificate", "tls-key"].map(|name| ("sinks", name)));
        assert_eq!(written, [("sinks", PathBuf::from("/w/reports"))]);
        assert_eq!((spool, socket), (Some(PathBuf::from("/p/spool")), Some(PathBuf::from("/s/control"))));

        let default = Config::default().files(Some(Path::new("/state")));
        assert_eq!((default.read, default.written), (Vec::new(), Vec::new()));
        assert_eq!(default.spool, Some(PathBuf::from("/state/spool")));
    }

    #[test]
    #[cfg(feature = "nats")]
    fn secrets_of_nats_are_among_them() {
        let sink = "{type: nats, url: 'tls://n', credentials_file: /f/creds, tls: {ca_file: /f/ca}}";
        let config = Config::parse(&format!("sinks: [{sink}]"), "weir.yaml").unwrap();
        assert_eq!(config.files(None).read, ["/f/creds", "/f/ca"].map(|path| ("sinks", PathBuf::from(path))));
    }
}
