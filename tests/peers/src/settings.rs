//! The command line of the benchmark.

use std::path::PathBuf;

use crate::report::MemoryLevel;

/// The settings of a run.
pub struct Settings {
    /// Fewer rounds and smaller structures.
    pub quick: bool,
    /// Only structures whose name contains this text.
    pub only: Option<String>,
    /// The path of the picture.
    pub plot: Option<PathBuf>,
    /// The size of structures inside a core's L2, which keys also pass through.
    pub near_bytes: usize,
    /// The size of structures beyond L2.
    pub far_bytes: usize,
}

impl Settings {
    /// Reads `--quick`, `--only TEXT` and `--plot FILE`.
    pub fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut quick, mut only, mut plot) = (false, None, None);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => quick = true,
                "--only" => only = Some(value()?.to_lowercase()),
                "--plot" => plot = Some(value()?.into()),
                _ => return Err(format!("no option {argument} (have: --quick, --only TEXT, --plot FILE)")),
            }
        }
        let far_bytes = if quick { 32 << 20 } else { 128 << 20 };
        Ok(Self { quick, only, plot, near_bytes: 512 << 10, far_bytes })
    }

    /// Returns true if this structure is to be measured.
    pub fn wants(&self, structure: &str) -> bool {
        self.only.as_ref().is_none_or(|only| structure.to_lowercase().contains(only))
    }

    /// The size of structures at this place.
    pub const fn bytes(&self, place: MemoryLevel) -> usize {
        match place {
            MemoryLevel::Near => self.near_bytes,
            MemoryLevel::Far => self.far_bytes,
        }
    }
}
