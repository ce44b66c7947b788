//! Why a sink cannot be opened.

use std::io;

use thiserror::Error;

use super::{HttpError, SecretError};

/// Why a sink cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system refused a resource.
    #[error("cannot open the {name} sink")]
    System {
        /// The name of the sink.
        name: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is this entry of the configuration.
    #[error("{place}")]
    Of {
        /// The entry in the configuration: `sinks[0]`.
        place: String,
        /// The cause.
        #[source]
        source: Box<Self>,
    },
    /// The settings of the HTTP sink are not valid.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A file with a secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The certificates or the key of a Kafka or NATS sink cannot be used.
    #[cfg(any(feature = "kafka", feature = "nats"))]
    #[error("cannot open the {name} sink")]
    Tls {
        /// The name of the sink.
        name: &'static str,
        /// The cause.
        #[source]
        source: Box<super::client::TlsError>,
    },
    /// This weir was built without the sink. The configuration check reports that earlier.
    #[cfg(not(all(feature = "kafka", feature = "nats", feature = "otlp")))]
    #[error("this weir was built without the {0} sink")]
    NotBuilt(&'static str),
}

impl OpenError {
    /// Adds the entry of the configuration to the error.
    pub(super) fn of(self, place: impl Into<String>) -> Self {
        Self::Of { place: place.into(), source: Box::new(self) }
    }

    /// Returns true if it is a mistake in the configuration.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Of { source, .. } => source.is_mistake(),
            _ => false,
        }
    }
}
