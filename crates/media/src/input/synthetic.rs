//! Synthetic frames: a [`Pattern`] as an input.
use super::{FrameBuffer, FrameInput, FrameRead, InputError, Pattern};
use crate::format::FrameFormat;

/// An endless test pattern; see [`Pattern`].
#[derive(Debug)]
pub struct SyntheticInput {
    pattern: Pattern,
    first: u64,
    next: u64,
}

impl SyntheticInput {
    /// Creates an input of frames of `pattern`, starting at number `first`. Their rate is up to the
    /// caller.
    pub fn new(pattern: Pattern, first: u64) -> Self {
        Self { pattern, first, next: first }
    }
}

impl FrameInput for SyntheticInput {
    fn format(&self) -> &FrameFormat {
        self.pattern.format()
    }

    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError> {
        out.write_all(self.pattern.draw(self.next))
            .map_err(|error| InputError::buffer("synthetic", error))?;
        self.next = self.next.wrapping_add(1);
        Ok(FrameRead::Frame)
    }

    fn rewind(&mut self) -> Result<bool, InputError> {
        self.next = self.first;
        Ok(true)
    }
}
