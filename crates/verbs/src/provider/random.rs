//! Random numbers from the system: first packet numbers, names and secrets of devices.
use crate::VerbsError;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes from the system.
///
/// # Errors
/// [`VerbsError::Os`] when the system fails to provide them.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], VerbsError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .map_err(|error| VerbsError::os("getrandom", error))?;
    }
    Ok(bytes)
}

/// Returns a random number from the system.
///
/// # Errors
/// As [`random_bytes`].
pub fn random() -> Result<u32, VerbsError> {
    random_bytes().map(u32::from_ne_bytes)
}
