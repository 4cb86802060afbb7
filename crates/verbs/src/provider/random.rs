//! Random numbers from the system: first packet numbers, names and secrets of devices.
use crate::VerbsError;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a random number from the system.
///
/// # Errors
/// [`VerbsError::Os`] when the system fails to provide one.
pub fn random() -> Result<u32, VerbsError> {
    let mut bytes = [0u8; 4];
    getrandom(&mut bytes[..], GetRandomFlags::empty())
        .map_err(|error| VerbsError::os("getrandom", error))?;
    Ok(u32::from_ne_bytes(bytes))
}
