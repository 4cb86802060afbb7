//! How messages travel: the three ways below one [`crate::Channel`].
use std::fmt;
use std::str::FromStr;

/// How messages travel. Both ends have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A WRITE with immediate into a slot of the peer, whose device tells of it.
    #[default]
    WriteImm,
    /// A WRITE into a slot of the peer, which looks for the commit word, and is rung if it sleeps.
    Write,
    /// A SEND with immediate into a receive of the peer.
    Send,
}

impl Mode {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::WriteImm, Self::Write, Self::Send];

    /// Returns its name, on command lines and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteImm => "write-imm",
            Self::Write => "write",
            Self::Send => "send",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such mode: this program knows write-imm, write and send")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or(UnknownMode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_reads_back_from_its_name_and_an_error_names_all() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert!(UnknownMode.to_string().contains(mode.name()));
        }
        assert_eq!("WRITE".parse::<Mode>(), Err(UnknownMode));
    }
}
