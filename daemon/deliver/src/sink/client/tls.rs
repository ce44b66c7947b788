//! The authorities that a connection to a Kafka or NATS server trusts, and weir's own certificate: as with HTTPS.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use rustls_platform_verifier::BuilderVerifierExt;
use thiserror::Error;
use ureq::tls::Certificate;
use weir_config::Tls;

use crate::sink::http::tls::{PemError, certificates, pair};

/// Why the TLS settings cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file lacks a certificate or a key.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A certificate or a key cannot be used, or the system has no roots.
    #[error("TLS cannot be set up: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The settings of TLS.
///
/// # Errors
///
/// A file cannot be used.
pub(in crate::sink) fn config(Tls { ca_file, certificate_file, key_file }: &Tls) -> Result<ClientConfig, TlsError> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let builder = match ca_file {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(der(&root))?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_platform_verifier()?,
    };
    // The configuration has either both files or neither.
    match (certificate_file, key_file) {
        (Some(chain), Some(key)) => {
            let (chain, key) = pair(chain, key)?;
            let chain = chain.iter().map(der).collect();
            let key = PrivateKeyDer::try_from(key.der().to_vec());
            let key = key.map_err(|why| rustls::Error::General(why.to_owned()))?;
            Ok(builder.with_client_auth_cert(chain, key)?)
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn der(certificate: &Certificate<'_>) -> CertificateDer<'static> {
    certificate.der().to_vec().into()
}
