//! Checks whether this machine has the files that sinks need: in `weir check`, at the start and at a reload, before the
//! first report is sent. If a file is missing, reports wait until it exists.

use weir_config as config;

use super::{OpenError, open::make};

/// Everything that is wrong, each with its setting.
///
/// # Errors
///
/// The first sink that cannot be opened.
pub fn check(sinks: &[config::Sink]) -> Result<Vec<String>, OpenError> {
    let mut wrong = Vec::new();
    for (nth, sink) in sinks.iter().enumerate() {
        let place = format!("sinks[{nth}]");
        let made = make(&sink.target, false).map_err(|error| error.of(&place))?;
        wrong.extend(made.check().err().map(|error| format!("{place}: {error}")));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

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
    #[cfg(all(feature = "kafka", feature = "nats"))]
    fn credentials_of_a_service_that_does_not_run_are_no_mistake_in_any_sink() {
        let of_service = "/run/credentials/weir-none.service/secret";
        for file in [of_service, "/nowhere/secret"] {
            let sasl = format!("sasl: {{mechanism: plain, user: weir, password_file: {file}}}");
            for sink in [
                format!("{{type: kafka, brokers: [k], tls: {{}}, {sasl}}}"),
                format!("{{type: nats, url: 'nats://a', token_file: {file}}}"),
                format!("{{type: otlp, url: 'http://a/v1/metrics', token_file: {file}}}"),
            ] {
                assert_eq!(wrong(&sink).is_empty(), file == of_service, "{sink}: {}", wrong(&sink));
            }
        }
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
