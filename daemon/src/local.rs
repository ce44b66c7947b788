//! Begins what is measured with the local key, or continues what an earlier weir has left.

use std::path::Path;

use tracing::info;
use weir_config::{Config, HashKey, KeyError};
use weir_history::local::LocalFile;
use weir_measure::local::{Kept, Local};

/// What is measured with the local key, if anything is, and the file in which it outlives a restart, if there is a
/// folder for it. `state_directory` is that of the service, if it has one.
///
/// # Errors
///
/// The system has no random numbers.
pub fn begin(
    config: &Config,
    state_directory: Option<&Path>,
    observer: &str,
) -> Result<(Option<Local>, Option<LocalFile>), KeyError> {
    if !config.has_local_key() {
        return Ok((None, None));
    }
    let folder = config.history.as_ref().and_then(|history| history.folder(state_directory));
    let file = folder.map(|folder| LocalFile::new(&folder, observer));
    if file.is_none() {
        info!("horizons and known hosts are only in memory, and begin anew after a restart: the history has no folder");
    }
    let kept = file.as_ref().and_then(|file| {
        let written = file.read()?;
        match Kept::from_bytes(&written.content) {
            Ok(kept) => {
                info!(
                    written = %written.time,
                    "horizons and known hosts go on from when they were written: what was measured since then is not in them"
                );
                Some(kept)
            }
            Err(damaged) => {
                file.refuse(&damaged);
                None
            }
        }
    });
    let local = match kept {
        Some(kept) => Local::resume(config, kept),
        None => Local::new(config, HashKey::Random.key()?),
    };
    Ok((local, file))
}
