//! Checks whether this machine has the files that sinks need: in `weir check`, at the start and at a reload, before the
//! first report is sent. If a file is missing, reports wait until it exists.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use weir_config::{self as config, Target, is_credential_of_service};
use weir_system::folder;

use super::{Http, OpenError};

/// Everything that is wrong, each with its setting.
///
/// # Errors
///
/// The first sink that cannot be opened.
pub fn check(sinks: &[config::Sink]) -> Result<Vec<String>, OpenError> {
    let mut wrong = Vec::new();
    for (nth, sink) in sinks.iter().enumerate() {
        let place = format!("sinks[{nth}]");
        let checked = check_one(&sink.target).map_err(|error| error.of(&place))?;
        wrong.extend(checked.err().map(|error| format!("{place}: {error}")));
    }
    Ok(wrong)
}

/// What is wrong with one sink. This does not prevent its start: files are read again for each request.
pub(super) fn check_one(target: &Target) -> Result<Result<(), String>, OpenError> {
    Ok(match target {
        Target::File(config::File { path, .. }) => check_file(path),
        Target::Http(settings) | Target::Otlp(settings) => {
            Http::new(settings)?.check_secrets(is_credential_of_service).map_err(|error| error.to_string())
        }
        #[cfg(feature = "nats")]
        Target::Nats(nats) => {
            super::Nats::new(nats)?;
            super::nats::check_secrets(nats)
        }
        #[cfg(feature = "kafka")]
        Target::Kafka(kafka) => {
            super::Kafka::new(kafka)?;
            super::kafka::check_secrets(kafka)
        }
        _ => Ok(()),
    })
}

/// Why reports cannot be appended to this file, as far as weir can tell without creating it.
fn check_file(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            Err(format!("{shown} is a folder: name a file in it, such as {}", path.join("reports.ndjson").display()))
        }
        Ok(found) if found.is_file() && found.nlink() > 1 => {
            Err(format!("{shown} has {} names (hard links): name another file", found.nlink()))
        }
        Ok(_) => Ok(()),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            folder::check(folder.unwrap_or(Path::new(".")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use weir_config::Config;

    use super::*;

    fn wrong(sink: &str) -> String {
        let config = Config::parse(&format!("sinks: [{sink}]"), "weir.yaml").unwrap();
        check(&config.sinks).unwrap().join("; ")
    }

    #[test]
    fn files_with_secrets_are_checked_before_the_first_request() {
        let path = std::env::temp_dir().join(format!("weir-open-{}-token", std::process::id()));
        let sink = format!("{{type: http, url: 'https://a/', token_file: {}}}", path.display());
        let wrong_now = || wrong(&sink);
        assert!(wrong_now().starts_with("sinks[0]: cannot read ") && wrong_now().contains("No such file"));
        fs::write(&path, "two\nlines").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(wrong_now().contains("chmod o="), "{}", wrong_now());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(wrong_now().contains("in one line"), "{}", wrong_now());
        fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(wrong_now(), "");
        fs::remove_file(&path).unwrap();
        let of_service = "{type: http, url: 'https://a/', token_file: /run/credentials/weir-none.service/token}";
        assert_eq!(wrong(of_service), "", "the service will have it");
    }

    #[test]
    fn a_path_that_cannot_be_a_report_file_is_reported() {
        let here = std::env::temp_dir().join(format!("weir-check-file-{}", std::process::id()));
        fs::create_dir(&here).unwrap();
        let of = |path: &str| wrong(&format!("{{type: file, path: {}}}", here.join(path).display()));
        assert!(of("").contains("is a folder: name a file in it, such as "), "{}", of(""));
        assert!(of("missing/r").contains("missing is missing: make it (`mkdir -p "), "{}", of("missing/r"));
        assert_eq!(of("r"), "");
        fs::write(here.join("r"), "").unwrap();
        assert_eq!(of("r"), "");
        assert!(of("r/below").contains("r is not a folder"), "{}", of("r/below"));
        fs::hard_link(here.join("r"), here.join("second")).unwrap();
        assert!(of("r").contains("2 names (hard links)"), "{}", of("r"));
        assert!(wrong("{type: file, path: /proc/x}").contains("the kernel's own files"));
        assert_eq!(wrong("{type: file, path: /dev/null}"), "");
        fs::remove_dir_all(&here).unwrap();
    }

    #[test]
    fn an_error_of_a_sink_names_its_entry() {
        let file = std::env::temp_dir().join(format!("weir-no-pem-{}", std::process::id()));
        fs::write(&file, "nothing").unwrap();
        let text = format!(
            "sinks: [{{type: stdout}}, {{type: http, url: 'https://a/', tls: {{ca_file: {}}}}}]",
            file.display()
        );
        let config = Config::parse(&text, "weir.yaml").unwrap();
        let error = weir_system::text::with_causes(&check(&config.sinks).unwrap_err());
        assert!(error.starts_with("sinks[1]: ") && error.contains("has no certificate"), "{error}");
        fs::remove_file(&file).unwrap();
    }
}
