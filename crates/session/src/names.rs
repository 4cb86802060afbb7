//! Names of devices and services, and texts of a peer: what may become the name of a directory or stand in a log.
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::str::FromStr;
use std::sync::Arc;

/// Longest device name, in characters.
pub const DEVICE_NAME_CHARS_MAX: usize = 64;

/// The name of a device: 1 to 64 characters of `[A-Za-z0-9._-]`, not starting with a dot or a hyphen.
///
/// A value of this type can be joined to a path without leaving its parent, and is no option of a
/// command. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display, derive_more::Debug)]
#[debug("DeviceName({_0})")]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text is not a [`DeviceName`]. The field is the text as seen, escaped and cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// Empty, or more than 64 characters.
    #[error("device name \"{seen}\" has {chars} characters; use 1 to {DEVICE_NAME_CHARS_MAX}")]
    Length {
        /// The text, escaped and cut.
        seen: String,
        /// Its length in characters.
        chars: usize,
    },
    /// A character that is not allowed.
    #[error("device name \"{seen}\" contains {character:?}; use only A-Z a-z 0-9 . _ -")]
    Character {
        /// The text, escaped and cut.
        seen: String,
        /// The first wrong character.
        character: char,
    },
    /// The name would be a hidden directory, `.` or `..`: the text, escaped and cut.
    #[error("device name \"{0}\" starts with a dot; put a letter or digit first")]
    Dot(String),
    /// Commands would take the name for an option: the text, escaped and cut.
    #[error("device name \"{0}\" starts with a hyphen; put a letter or digit first")]
    Hyphen(String),
}

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        let chars = text.chars().count();
        if chars == 0 || chars > DEVICE_NAME_CHARS_MAX {
            let seen = printable(text, DEVICE_NAME_CHARS_MAX);
            return Err(DeviceNameError::Length { seen, chars });
        }
        let seen = || printable(text, DEVICE_NAME_CHARS_MAX);
        if let Some(character) = text.chars().find(|&c| !is_allowed(c)) {
            return Err(DeviceNameError::Character { seen: seen(), character });
        }
        if text.starts_with('.') {
            return Err(DeviceNameError::Dot(seen()));
        }
        if text.starts_with('-') {
            return Err(DeviceNameError::Hyphen(seen()));
        }
        Ok(Self(text.into()))
    }
}

impl Serialize for DeviceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DeviceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Longest name of a service, in characters.
pub const SERVICE_CHARS: usize = 64;

/// What can name a service, for people.
pub const SERVICE_NAMES: &str = "1 to 64 letters, digits, '-', '_' or '.'";

/// Returns whether a text can name a service: 1 to 64 letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_service(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=SERVICE_CHARS).contains(&name.len()) && name.chars().all(plain)
}

/// Escapes control characters and cuts to `chars_max` characters: text from a peer must not write
/// escape sequences to a terminal or fill a log.
pub fn printable(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars
        .by_ref()
        .take(chars_max)
        .flat_map(|c| -> Box<dyn Iterator<Item = char>> {
            if is_printable(c) {
                Box::new(std::iter::once(c))
            } else {
                Box::new(c.escape_unicode())
            }
        })
        .collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// As [`printable`], but never longer than `chars_max`, escapes and ellipsis included.
pub fn fit(text: &str, chars_max: usize) -> String {
    printable(text, chars_max - 1).chars().take(chars_max).collect()
}

/// Returns whether `character` is allowed in a text from a peer: not a control character, and neither
/// invisible nor changing the direction, which could disguise a text in a log.
pub(crate) fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_names_are_taken() {
        for name in ["a", "cam0", "Line-3_top.left", "0", "a-", &"x".repeat(64)] {
            assert_eq!(name.parse::<DeviceName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_that_leave_or_hide_in_the_directory_are_refused_with_the_cause() {
        let error = |text: &str| text.parse::<DeviceName>().unwrap_err().to_string();
        assert!(error("").contains("0 characters"));
        assert!(error(&"x".repeat(65)).contains("65 characters"));
        assert!(error("../etc").contains("'/'"));
        assert!(error(".").contains("starts with a dot"));
        assert!(error("..").contains("starts with a dot"));
        assert!(error("-rf").contains("starts with a hyphen"));
        assert!(error("a b").contains("' '"));
        assert!(error("kamera-ü").contains("'ü'"));
        assert!(error("a\0b").contains("\\u{0}"));
    }

    #[test]
    fn printable_escapes_what_a_terminal_would_obey() {
        assert_eq!(printable("a\u{1b}[2Jb", 10), "a\\u{1b}[2Jb");
        assert_eq!(printable("abcdef", 3), "abc…");
        assert_eq!(printable("a\u{202e}b", 3), "a\\u{202e}b");
        assert_eq!(fit("abcdef", 6), "abcde…");
        assert_eq!(fit(&"\u{1b}".repeat(9), 10).chars().count(), 10);
    }

    proptest! {
        #[test]
        fn every_accepted_name_is_one_plain_path_component(text in ".{0,70}") {
            if let Ok(name) = text.parse::<DeviceName>() {
                let path = std::path::Path::new("/out").join(name.as_str());
                prop_assert_eq!(path.parent(), Some(std::path::Path::new("/out")));
                prop_assert!(!name.as_str().starts_with('.'));
            }
        }
    }
}
