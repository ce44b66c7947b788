//! `weir doctor`: says what this machine lacks, and writes a bundle for people who help.

use std::{io::Write as _, path::Path};

use weir::{
    cli::DoctorArgs,
    control::{client, protocol},
    doctor::{
        self, Diagnosis,
        bundle::{self, BundleInput},
    },
};
use weir_config::Config;
use weir_system::{
    exit::Exit,
    screen::{Form, Screen},
};

use super::{
    check::plan,
    failure::Failure,
    output::{OutputError, print},
    settings::{named, read_config},
};

pub(super) fn examine(DoctorArgs { interfaces, config, json, bundle }: DoctorArgs) -> Result<Exit, Failure> {
    let mut config = read_config(&config)?;
    if !interfaces.is_empty() {
        config.interfaces = named(interfaces)?;
    }
    let diagnosis = doctor::examine(&config);
    let written = if json {
        diagnosis.write_json(&mut Screen::stdout(Form::Json))
    } else {
        writeln!(Screen::stdout(Form::Text), "{diagnosis}")
    };
    written.map_err(OutputError::from)?;
    if let Some(path) = bundle {
        write_bundle(&path, &config, &diagnosis)?;
        if !json {
            let path = path.display();
            print(format!(
                "\n{path} has all this and more, with stand-ins for addresses and names. Read it before you send it."
            ))?;
        }
    }
    Ok(if diagnosis.possible { Exit::Done } else { Exit::Impossible })
}

fn write_bundle(path: &Path, config: &Config, diagnosis: &Diagnosis) -> Result<(), Failure> {
    let report = match &config.control.socket {
        Some(socket) => client::ask(socket, protocol::Command::Report { last: None })
            .map_err(|error| error.to_string())
            .and_then(|report| serde_json::from_str(report.get()).map_err(|error| error.to_string())),
        None => Err("the configuration has no control socket".to_owned()),
    };
    let check = plan(config, None).map_err(|failure| format!("{:#}", failure.error));
    bundle::write(path, &BundleInput { config, diagnosis, check, report }).map_err(|error| Failure {
        exit: Exit::Broken,
        error: anyhow::anyhow!("cannot write {}: {error}", path.display()),
    })
}
