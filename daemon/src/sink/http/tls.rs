//! Which authorities HTTPS trusts, and weir's own certificate.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use thiserror::Error;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::{
    config::{Exposed, Tls},
    plain_file::open_regular,
};

/// How many bytes of a file are read: all roots of a system have some hundred KiB.
const BYTES_MAX: u64 = 4 << 20;

/// Why a file with certificates or a key cannot be used. The error never repeats the content.
#[derive(Debug, Error)]
pub enum PemError {
    /// The file cannot be read.
    #[error("cannot read {file}: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// Every user may read the key.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The file does not contain what is needed.
    #[error("{file} has no {what} in PEM format")]
    Missing {
        /// The file.
        file: String,
        /// What is missing.
        what: &'static str,
    },
}

/// The settings of TLS.
///
/// # Errors
///
/// A file cannot be used.
pub(super) fn config(Tls { ca_file, certificate_file, key_file }: &Tls) -> Result<TlsConfig, PemError> {
    let roots = match ca_file {
        Some(file) => RootCerts::Specific(Arc::new(certificates(file)?)),
        None => RootCerts::PlatformVerifier,
    };
    let mut tls = TlsConfig::builder().root_certs(roots);
    // The configuration ensures that both are there or none.
    if let (Some(chain), Some(key)) = (certificate_file, key_file) {
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(chain)?, private_key(key)?)));
    }
    Ok(tls.build())
}

/// The certificates in a file.
pub(in crate::sink) fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>, PemError> {
    let pem = read(file)?;
    let all: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate.to_owned()),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        Err(PemError::Missing { file: file.display().to_string(), what: "certificate" })
    } else {
        Ok(all)
    }
}

/// The private key in a file, which must not be readable by every user.
pub(in crate::sink) fn private_key(file: &Path) -> Result<PrivateKey<'static>, PemError> {
    let pem = read(file)?;
    Exposed::check_path(file)?;
    let missing = |_| PemError::Missing { file: file.display().to_string(), what: "private key" };
    PrivateKey::from_pem(&pem).map_err(missing)
}

fn read(file: &Path) -> Result<Vec<u8>, PemError> {
    let mut bytes = Vec::new();
    let read = open_regular(file).and_then(|open| open.take(BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|error| PemError::Unreadable { file: file.display().to_string(), error })?;
    Ok(bytes)
}
