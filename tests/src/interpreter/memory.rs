//! The memory that a program sees: its stack, the packet, the values of its maps. Each is a region of its own.

use anyhow::{Context as _, Result};

/// An address has the region above this bit, and the offset in it below. Region 0 does not exist, so no valid address
/// is 0.
const REGION: u32 = 40;

/// The regions that a program may access.
#[derive(Clone, Default)]
pub struct Memory {
    regions: Vec<Vec<u8>>,
}

impl Memory {
    /// Adds a region; returns the address of its first byte.
    pub fn add(&mut self, bytes: Vec<u8>) -> u64 {
        self.regions.push(bytes);
        (self.regions.len() as u64) << REGION
    }

    /// Replaces the content of the region that starts at this address.
    ///
    /// # Errors
    ///
    /// There is no such region.
    pub fn replace(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let region = self.regions.get_mut(region(address)).with_context(|| outside(address, 0))?;
        region.clear();
        region.extend_from_slice(bytes);
        Ok(())
    }

    /// The bytes at an address.
    ///
    /// # Errors
    ///
    /// They are not all in one region.
    pub fn bytes(&self, address: u64, length: usize) -> Result<&[u8]> {
        let region = self.regions.get(region(address));
        let bytes = region.and_then(|region| region.get(offset(address)..)?.get(..length));
        bytes.with_context(|| outside(address, length))
    }

    /// Returns the bytes, to change them.
    ///
    /// # Errors
    ///
    /// See [`Memory::bytes`].
    pub fn bytes_mut(&mut self, address: u64, length: usize) -> Result<&mut [u8]> {
        let region = self.regions.get_mut(region(address));
        let bytes = region.and_then(|region| region.get_mut(offset(address)..)?.get_mut(..length));
        bytes.with_context(|| outside(address, length))
    }

    /// Reads a number of up to eight bytes.
    ///
    /// # Errors
    ///
    /// See [`Memory::bytes`].
    pub fn read(&self, address: u64, length: usize) -> Result<u64> {
        let mut word = [0; 8];
        word[..length].copy_from_slice(self.bytes(address, length)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Writes the lowest bytes of a number.
    ///
    /// # Errors
    ///
    /// See [`Memory::bytes`].
    pub fn write(&mut self, address: u64, length: usize, value: u64) -> Result<()> {
        self.bytes_mut(address, length)?.copy_from_slice(&value.to_le_bytes()[..length]);
        Ok(())
    }
}

const fn region(address: u64) -> usize {
    ((address >> REGION) as usize).wrapping_sub(1)
}

const fn offset(address: u64) -> usize {
    (address & ((1 << REGION) - 1)) as usize
}

fn outside(address: u64, length: usize) -> String {
    format!("{length} bytes at {address:#x} are outside of the program's memory")
}
