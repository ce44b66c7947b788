//! The authorities that HTTPS trusts, and weir's own certificate.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use rustls::{
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use thiserror::Error;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use weir_config::{Exposed, Tls};
use weir_system::plain_file::open_regular;

/// How many bytes of a file are read: all roots of a system have some hundred KiB.
const BYTES_MAX: u64 = 4 << 20;

/// Why a file with certificates or a key cannot be used. The error never repeats the content.
#[derive(Debug, Error)]
pub enum PemError {
    /// The file cannot be read.
    #[error("cannot read {file}: {error}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The cause.
        error: io::Error,
    },
    /// Every user may read the key.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The key belongs to another certificate, or weir does not support its kind.
    #[error(
        "{certificate} and {key} do not belong together: {cause}. Name the key that the first certificate of the file \
         was made with"
    )]
    NoPair {
        /// The file of the certificates.
        certificate: String,
        /// The file of the key.
        key: String,
        /// The cause.
        cause: rustls::Error,
    },
    /// The file lacks a certificate or a key.
    #[error("{file} has no {what} in PEM format")]
    Missing {
        /// The path of the file.
        file: String,
        /// The part that is missing: a certificate or a key.
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
    // The configuration has either both files or neither.
    if let (Some(chain), Some(key)) = (certificate_file, key_file) {
        let (certificates, private_key) = pair(chain, key)?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates, private_key)));
    }
    Ok(tls.build())
}

/// weir's own certificate with those above it, and its key.
///
/// # Errors
///
/// A file is not what it should be, or the key belongs to another certificate.
pub(in crate::sink) fn pair(
    chain: &Path,
    key: &Path,
) -> Result<(Vec<Certificate<'static>>, PrivateKey<'static>), PemError> {
    let (certificates, private_key) = (certificates(chain)?, private_key(key)?);
    let der = certificates.iter().map(|one| CertificateDer::from(one.der().to_vec())).collect();
    let checked = PrivateKeyDer::try_from(private_key.der().to_vec())
        .map_err(|why| rustls::Error::General(why.to_owned()))
        .and_then(|key| CertifiedKey::from_der(der, key, &default_provider()));
    match checked {
        Ok(_) => Ok((certificates, private_key)),
        Err(cause) => {
            Err(PemError::NoPair { certificate: chain.display().to_string(), key: key.display().to_string(), cause })
        }
    }
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let here = std::env::temp_dir().join(format!("weir-tls-pair-{}", std::process::id()));
        fs::create_dir(&here).unwrap();
        let of = |name: &str| here.join(name);
        let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
        let certificate = CertificateParams::new(vec!["router".to_owned()]).unwrap().self_signed(&keys[0]).unwrap();
        fs::write(of("certificate"), certificate.pem()).unwrap();
        for (nth, key) in keys.iter().enumerate() {
            fs::write(of(&nth.to_string()), key.serialize_pem()).unwrap();
            fs::set_permissions(of(&nth.to_string()), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let settings =
            |key: &str| Tls { ca_file: None, certificate_file: Some(of("certificate")), key_file: Some(of(key)) };
        let (pair, no_pair) = (config(&settings("0")).map(drop), config(&settings("1")).map(drop));
        fs::remove_dir_all(&here).unwrap();
        pair.unwrap();
        let why = no_pair.unwrap_err().to_string();
        let names = ["certificate", "1"].map(|name| of(name).display().to_string());
        assert!(why.starts_with(&format!("{} and {} do not belong together: ", names[0], names[1])), "{why}");
    }
}
