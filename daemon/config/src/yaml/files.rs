//! The files that a configuration names.

use std::path::Path;

use weir_system::sandbox::Files;

use super::{Config, File, HashKey, Http, Nats, Target, Tls};
use crate::names::GeoFiles;

impl Config {
    /// The files that this configuration names. `state_directory` is the service's state directory, if it has one.
    pub fn files(&self, state_directory: Option<&Path>) -> Files {
        let mut files = Files { socket: self.control.socket.clone(), ..Files::default() };
        let GeoFiles { asn, country } = &self.geo;
        files.reads("geo.asn", asn);
        files.reads("geo.country", country);
        for network in &self.networks {
            files.reads(&format!("networks.{}.file", network.name), network.file.as_ref().map(|file| &file.path));
        }
        if let HashKey::File(path) = &self.hash_key {
            files.reads("hash_key.file", [path]);
        }
        for (nth, sink) in self.sinks.iter().enumerate() {
            let setting = |name: &str| format!("sinks[{nth}].{name}");
            if sink.target.spool_key().is_some() {
                files.spool = self.spool.folder(state_directory);
            }
            match &sink.target {
                Target::Stdout | Target::Ipfix(_) => {}
                Target::File(File { path, .. }) => files.written.push((setting("path"), path.clone())),
                Target::Http(http) | Target::Otlp(http) => {
                    let Http { token_file, header_files, tls, .. } = &**http;
                    files.reads(&setting("token_file"), token_file);
                    files.reads(&setting("header_files"), header_files.iter().map(|(_, file)| file));
                    reads_tls(&mut files, &setting("tls"), tls);
                }
                Target::Nats(nats) => {
                    let Nats { credentials_file, token_file, password_file, tls, .. } = &**nats;
                    files.reads(&setting("credentials_file"), credentials_file);
                    files.reads(&setting("token_file"), token_file);
                    files.reads(&setting("password_file"), password_file);
                    reads_tls(&mut files, &setting("tls"), tls);
                }
            }
        }
        files
    }
}

fn reads_tls(files: &mut Files, setting: &str, Tls { ca_file, certificate_file, key_file }: &Tls) {
    for (name, file) in [("ca_file", ca_file), ("certificate_file", certificate_file), ("key_file", key_file)] {
        files.reads(&format!("{setting}.{name}"), file);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
        let read: Vec<_> = read.iter().map(|(setting, path)| (setting.as_str(), path.as_path())).collect();
        assert_eq!(
            read,
            [
                ("networks.n.file", directory.join("networks").as_path()),
                ("hash_key.file", Path::new("/f/key")),
                ("sinks[1].token_file", Path::new("/f/token")),
                ("sinks[1].header_files", Path::new("/f/tenant")),
                ("sinks[1].tls.ca_file", Path::new("/f/ca")),
                ("sinks[1].tls.certificate_file", Path::new("/f/certificate")),
                ("sinks[1].tls.key_file", Path::new("/f/tls-key")),
            ]
        );
        assert_eq!(written, [("sinks[0].path".to_owned(), PathBuf::from("/w/reports"))]);
        assert_eq!((spool, socket), (Some(PathBuf::from("/p/spool")), Some(PathBuf::from("/s/control"))));

        let default = Config::default().files(Some(Path::new("/state")));
        assert_eq!((default.read, default.written), (Vec::new(), Vec::new()));
        assert_eq!(default.spool, None, "standard output has no spool");
    }

    #[test]
    #[cfg(feature = "nats")]
    fn secrets_of_nats_are_among_them() {
        let sink = "{type: nats, url: 'tls://n', credentials_file: /f/creds, tls: {ca_file: /f/ca}}";
        let config = Config::parse(&format!("sinks: [{sink}]"), "weir.yaml").unwrap();
        let expected = [("credentials_file", "/f/creds"), ("tls.ca_file", "/f/ca")];
        let expected = expected.map(|(name, path)| (format!("sinks[0].{name}"), PathBuf::from(path)));
        assert_eq!(config.files(None).read, expected);
    }
}
