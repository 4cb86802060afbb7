//! An input that starts again when it ends.
use super::{FrameBuffer, FrameInput, FrameRead, InputError};
use crate::format::{FrameFormat, FrameRate};

/// Repeats an input forever. Ends where the input cannot be rewound or has no frames.
pub struct Repeat {
    inner: Box<dyn FrameInput>,
}

impl Repeat {
    /// Repeats `inner`.
    pub fn new(inner: Box<dyn FrameInput>) -> Self {
        Self { inner }
    }
}

impl FrameInput for Repeat {
    fn format(&self) -> &FrameFormat {
        self.inner.format()
    }

    fn frame_rate(&self) -> Option<FrameRate> {
        self.inner.frame_rate()
    }

    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError> {
        match self.inner.read_frame(out)? {
            FrameRead::Frame => Ok(FrameRead::Frame),
            FrameRead::End if self.inner.rewind()? => self.inner.read_frame(out),
            FrameRead::End => Ok(FrameRead::End),
        }
    }

    fn rewind(&mut self) -> Result<bool, InputError> {
        self.inner.rewind()
    }
}
