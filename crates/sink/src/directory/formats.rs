//! What the frames of a device hold, in numbered files beside them.
//!
//! `.format-1.json` holds for the frames from its `first_packet` on, up to that of `.format-2.json`.
use super::{PARTIAL_PREFIX, io_error};
use crate::SinkError;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The newest description of a device, and what the next frame needs.
#[derive(Debug, Default)]
pub(super) struct Formats {
    /// Number of the newest file; 0 while there is none.
    number: u32,
    newest: Option<String>,
    wanted: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Description {
    first_packet: u64,
    /// As the source says; null when it says nothing.
    format: Option<String>,
}

/// Returns the number in the name of a description.
pub(super) fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix(".format-")?.strip_suffix(".json")?.parse().ok()
}

fn name_of(number: u32) -> String {
    format!(".format-{number}.json")
}

impl Formats {
    /// Reads the newest description in a device's directory, which has this number.
    pub(super) fn read(directory: &Path, number: u32) -> Result<Self, SinkError> {
        let path = directory.join(name_of(number));
        let text = std::fs::read(&path).map_err(io_error("read", &path))?;
        // One that somebody has spoiled is none: the next frame gets a new one.
        let newest = serde_json::from_slice::<Description>(&text).ok();
        Ok(Self { number, newest: newest.and_then(|newest| newest.format), wanted: None })
    }

    /// The frames from the next one on are of this format.
    pub(super) fn want(&mut self, format: &str) {
        self.wanted = (!format.is_empty()).then(|| format.to_owned());
    }

    /// The directory is new: nothing is described there.
    pub(super) fn forget(&mut self) {
        *self = Self { wanted: self.wanted.take(), ..Self::default() };
    }

    /// Describes the frames from `packet` on, unless the newest description says it.
    pub(super) fn write(&mut self, directory: &Path, packet: u64) -> Result<(), SinkError> {
        if self.wanted == self.newest {
            return Ok(());
        }
        let path = directory.join(name_of(self.number + 1));
        let description = Description { first_packet: packet, format: self.wanted.clone() };
        let text = serde_json::to_string(&description)
            .map_err(|e| io_error("describe", &path)(e.into()))?;
        let partial = directory.join(format!("{PARTIAL_PREFIX}format"));
        std::fs::write(&partial, text + "\n")
            .and_then(|()| std::fs::rename(&partial, &path))
            .map_err(io_error("write", &path))?;
        if self.number > 0 {
            let (was, now) = (self.newest.as_deref(), self.wanted.as_deref());
            let none = "without a format";
            tracing::warn!(was = was.unwrap_or(none), now = now.unwrap_or(none), packet,
                description = %path.display(), "the format of a device has changed");
        }
        self.number += 1;
        self.newest.clone_from(&self.wanted);
        Ok(())
    }
}
