//! What a row of any kind has.

/// A row, as JSON and for people.
pub(super) trait Shown: serde::Serialize {
    fn line(&self) -> String;
}
