//! Sinks with their spools as weir runs them, without the rest of weir: reports of chosen numbers are offered to them.

use std::{
    fs::{self, Permissions},
    ops::RangeInclusive,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer};
use weir_config::Config;
use weir_deliver::{
    sink::{Outbox, open},
    spool::{Limits, root::SpoolRoot},
};
use weir_schema::{Encoded, SinkMetrics};

use crate::{clock, collecting::report};

/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Sinks with their spools.
#[derive(Debug)]
pub struct Router {
    sinks: Vec<Outbox>,
    /// The folder of the spools.
    pub spool: PathBuf,
}

impl Router {
    /// A router with these sinks.
    ///
    /// # Errors
    ///
    /// One of them cannot be opened.
    pub fn with(folder: &Path, sinks: &str) -> Result<Self> {
        let spool = folder.join("spool");
        let text = format!("spool: {{path: {}, fsync: never}}\nsinks: [{sinks}]", spool.display());
        let config = Config::parse(&text, "weir.yaml")?;
        let place = SpoolRoot::take(&spool, Limits::of(&config.spool))?;
        let sinks = open(&config.sinks, Some(&place), false)?;
        Ok(Self { sinks, spool })
    }

    /// Offers the reports with these numbers to all sinks.
    pub fn offer(&self, numbers: RangeInclusive<u64>) {
        for number in numbers {
            self.offer_one(&encoded(number, 0));
        }
    }

    /// Offers a report to all sinks.
    pub fn offer_one(&self, report: &Encoded) {
        for sink in &self.sinks {
            sink.offer(report.clone());
        }
    }

    /// Returns the counts of the first sink.
    pub fn metrics(&self) -> SinkMetrics {
        self.sinks[0].metrics()
    }

    /// Waits until the first sink has delivered this many.
    ///
    /// # Errors
    ///
    /// It has not, in time.
    pub fn wait_for(&self, delivered: u64) -> Result<()> {
        let waited = clock::wait_for(&format!("{delivered} delivered reports"), TIMEOUT, || {
            Ok((self.metrics().delivered >= delivered).then_some(()))
        });
        waited.with_context(|| format!("{:?}", self.metrics()))
    }

    /// Waits until the error of the first sink's last attempt contains `part`.
    ///
    /// # Errors
    ///
    /// It does not, in time.
    pub fn wait_for_error(&self, part: &str) -> Result<String> {
        let waited =
            clock::wait_for(part, TIMEOUT, || Ok(self.metrics().last_error.filter(|said| said.contains(part))));
        waited.with_context(|| format!("{:?}", self.metrics()))
    }
}

/// The report with this number, with an extra field of `padding` bytes.
pub fn encoded(number: u64, padding: usize) -> Encoded {
    let mut line = line(number);
    if padding > 0 {
        line.truncate(line.len() - 1);
        line += &format!(",\"padding\":\"{}\"}}", "x".repeat(padding));
    }
    line.push('\n');
    Encoded { id: id(number), line: Arc::from(line.as_bytes()) }
}

/// A report with an id as weir makes it: its run has eight digits.
pub fn line(number: u64) -> String {
    report(number).replace("b41d", "0000b41d")
}

/// The id of the report with this number.
pub fn id(number: u64) -> String {
    format!("7f3c9a52/0000b41d/{number}")
}

/// All answers of refused reports in a folder of spools.
///
/// # Errors
///
/// They cannot be read.
pub fn answers(spool: &Path) -> Result<String> {
    let mut all = String::new();
    for folder in fs::read_dir(spool)?.filter_map(Result::ok).filter(|entry| entry.path().is_dir()) {
        for file in fs::read_dir(folder.path())? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "answer") {
                all += &fs::read_to_string(path)?;
            }
        }
    }
    Ok(all)
}

/// Writes a secret for its owner alone.
///
/// # Errors
///
/// It cannot be written.
pub fn keep(file: &Path, secret: &str) -> Result<()> {
    fs::write(file, secret)?;
    Ok(fs::set_permissions(file, Permissions::from_mode(0o600))?)
}

/// Makes an authority, `ca.pem`, and what it has signed: `server.pem` for 127.0.0.1 and `router.pem`, with their keys.
///
/// # Errors
///
/// A file cannot be written.
pub fn certify(folder: &Path) -> Result<()> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate()?;
    fs::write(folder.join("ca.pem"), parameters.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(parameters, key);
    for (name, subject) in [("server", "127.0.0.1"), ("router", "router.example")] {
        let key = rcgen::KeyPair::generate()?;
        let mut parameters = CertificateParams::new(vec![subject.to_owned()])?;
        // With the authority's name it would be its own issuer, to OpenSSL.
        parameters.distinguished_name.push(DnType::CommonName, subject);
        let certificate = parameters.signed_by(&key, &issuer)?;
        fs::write(folder.join(format!("{name}.pem")), certificate.pem())?;
        keep(&folder.join(format!("{name}.key")), &key.serialize_pem())?;
    }
    Ok(())
}
