//! Damage that a disk may do to files.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Maximum number of places of a file that are damaged. They are spread evenly.
const PLACES_MAX: u64 = 200;
/// The bytes that a disk writes or loses at once.
const SECTOR: u64 = 512;

/// A kind of damage.
#[derive(Clone, Copy)]
pub enum Kind {
    /// All bits of a byte are flipped.
    Byte,
    /// A sector is filled with zeros.
    Sector,
    /// The file ends here.
    Cut,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Byte, Self::Sector, Self::Cut];

    /// Returns the description.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Byte => "a byte is another one",
            Self::Sector => "512 bytes are zero",
            Self::Cut => "the file is cut off",
        }
    }
}

/// Damage to one place of a file.
pub struct Damage {
    kind: Kind,
    /// The file, below the store's folder.
    file: PathBuf,
    place: u64,
}

impl Damage {
    /// All damage of this kind to the files of a folder.
    pub fn all(folder: &Path, kind: Kind) -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for file in files(folder)? {
            let bytes = used(&folder.join(&file))?;
            let unit = match kind {
                Kind::Byte | Kind::Cut => 1,
                Kind::Sector => SECTOR,
            };
            let places = bytes.div_ceil(unit);
            let count = places.min(PLACES_MAX);
            all.extend((0..count).map(|nth| Self { kind, file: file.clone(), place: places * nth / count * unit }));
        }
        Ok(all)
    }

    /// Applies it to the same file in another folder.
    pub fn apply(&self, folder: &Path) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().read(true).write(true).open(folder.join(&self.file))?;
        match self.kind {
            Kind::Cut => file.set_len(self.place),
            Kind::Byte => {
                let mut byte = [0];
                file.seek(SeekFrom::Start(self.place))?;
                file.read_exact(&mut byte)?;
                file.seek(SeekFrom::Start(self.place))?;
                file.write_all(&[!byte[0]])
            }
            Kind::Sector => {
                let bytes = file.metadata()?.len().saturating_sub(self.place).min(SECTOR);
                file.seek(SeekFrom::Start(self.place))?;
                file.write_all(&vec![0; bytes as usize])
            }
        }
    }
}

/// The number of bytes up to the last one that is not zero: many stores reserve more.
fn used(file: &Path) -> io::Result<u64> {
    let bytes = fs::read(file)?;
    Ok(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1))
}

/// All files below a folder, with paths relative to it.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// Copies a folder and everything in it.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (inner, copied) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&inner, &copied)?;
        } else {
            fs::copy(inner, copied)?;
        }
    }
    Ok(())
}
