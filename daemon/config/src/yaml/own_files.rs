//! weir refuses to write reports into a file that it reads or keeps itself. Otherwise it could append reports to its
//! own configuration, and then rename it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    Config, Source, Target,
    mistake::{Mistake, Mistakes},
    place,
};
/// Files of weir that the configuration does not name.
#[derive(Clone, Copy, Debug)]
pub struct OwnFiles<'a> {
    /// The path of the configuration.
    pub config: &'a Path,
    /// The folder for the service's state, if there is one.
    pub state_directory: Option<&'a Path>,
    /// The names of the files in that folder.
    pub state: &'a [&'a str],
}

impl Config {
    /// Refuses sinks that write to one of weir's own files. `source` has the places of settings.
    ///
    /// # Errors
    ///
    /// All such sinks, with their places.
    pub fn refuse_own_files(&self, source: &Source, own: OwnFiles<'_>) -> Result<(), Mistakes> {
        let spool = self.files(own.state_directory).spool;
        let own = self.own_files(own);
        let mut list = Vec::new();
        for (nth, sink) in self.sinks.iter().enumerate() {
            let Target::File(file) = &sink.target else { continue };
            for path in file.names() {
                let is_own = |(_, own): &&(String, PathBuf)| is_same(&path, own);
                let what = own.iter().find(is_own).map(|(what, _)| what.clone());
                let is_in_spool = |spool: &PathBuf| place::of(&path).starts_with(place::of(spool));
                let what =
                    what.or_else(|| spool.as_ref().filter(|spool| is_in_spool(spool)).map(|spool| in_spool(spool)));
                if let Some(what) = what {
                    let setting = format!("sinks[{nth}].path");
                    let message = format!("{} is {what}: name another file for reports", path.display());
                    list.push(Mistake { place: source.find(&setting), path: setting, message });
                    break;
                }
            }
        }
        if list.is_empty() { Ok(()) } else { Err(Mistakes::in_content(source.file(), list, 0)) }
    }

    /// The files that weir reads and keeps, each with a description.
    fn own_files(&self, OwnFiles { config, state_directory, state }: OwnFiles<'_>) -> Vec<(String, PathBuf)> {
        let files = self.files(state_directory);
        let mut own = vec![("this configuration".to_owned(), config.to_owned())];
        own.extend(files.read.into_iter().map(|(setting, path)| (format!("the file of `{setting}`"), path)));
        own.extend(files.socket.map(|socket| ("the control socket".to_owned(), socket)));
        if let Some(directory) = state_directory {
            own.extend(state.iter().map(|name| ("a file of weir's state".to_owned(), directory.join(name))));
        }
        own
    }
}

fn in_spool(spool: &Path) -> String {
    format!("in the spool ({})", spool.display())
}

/// Returns true if two paths are the same file, also through links.
fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    place::of(one) == place::of(other) || number(one).is_some_and(|one| number(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn reports_are_not_written_into_weirs_own_files() {
        let here = fs::canonicalize(std::env::temp_dir()).unwrap();
        let here = here.join(format!("weir-own-files-{}", std::process::id()));
        fs::create_dir_all(here.join("state/spool")).unwrap();
        let [config, state] = ["weir.yaml", "state"].map(|name| here.join(name));
        fs::write(&config, "").unwrap();
        fs::write(here.join("token"), "").unwrap();
        symlink(&config, here.join("by-link")).unwrap();
        fs::hard_link(&config, here.join("by-name")).unwrap();
        let refused = |sink: &str| {
            let [token, socket] = ["token", "socket"].map(|name| here.join(name).display().to_string());
            let text = format!(
                "control: {{socket: {socket}}}\nsinks:\n- {{type: http, url: 'https://a/', token_file: {token}}}\n\
                 - {{type: file, path: {sink}}}\n"
            );
            let (read, source) = (Config::parse(&text, "F").unwrap(), Source::new("F", &text));
            let own = OwnFiles { config: &config, state_directory: Some(&state), state: &["last-report.json"] };
            read.refuse_own_files(&source, own).err().map(|mistakes| mistakes.to_string()).unwrap_or_default()
        };
        let at = |name: &str| refused(&here.join(name).display().to_string());
        for name in ["weir.yaml", "./state/../weir.yaml", "by-link", "by-name"] {
            let why = at(name);
            assert!(why.starts_with("F:4:16: sinks[1].path: ") && why.contains(" is this configuration: "), "{why}");
        }
        assert!(at("token").contains("is the file of `sinks[0].token_file`: name another file"));
        assert!(at("socket").contains("is the control socket"));
        assert!(at("state/last-report.json").contains("is a file of weir's state"));
        for name in ["state/spool/lock", "state/spool/reports", "state/spool/a/b"] {
            assert!(at(name).contains("is in the spool ("), "{}", at(name));
        }
        for name in ["reports", "state/reports", "state/spooled"] {
            assert_eq!(at(name), "");
        }
        fs::write(here.join("r.1"), "").unwrap();
        let rotated = refused(&format!("{}, max_size: 1MiB", here.join("weir").display()));
        assert_eq!(rotated, "");
        fs::rename(&config, here.join("r.2.gz")).unwrap();
        symlink("r.2.gz", &config).unwrap();
        let rotated = refused(&format!("{}, max_size: 1MiB", here.join("r").display()));
        assert!(rotated.contains("r.2.gz is this configuration"), "{rotated}");
        fs::remove_dir_all(&here).unwrap();
    }
}
