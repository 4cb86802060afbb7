//! Inputs of a source: video files and streams, Y4M, raw bytes, pictures, a synthetic pattern.
//!
//! Every input yields whole raw frames of one [`FrameFormat`] and writes them into the caller's
//! buffer, so that a frame goes from a pipe into a registered block with one copy. Inputs do not
//! pace: they yield frames as fast as they are read, see [`pace`].
//!
//! ```
//! use catchment_media::input::{FrameRead, InputOptions, open};
//!
//! let mut input = open("synthetic:64x48:rgb24".as_ref(), &InputOptions::default())?;
//! let mut frame = Vec::new();
//! assert_eq!(input.read_frame(&mut frame)?, FrameRead::Frame);
//! assert_eq!(frame.len(), input.format().frame_bytes());
//! # Ok::<(), catchment_media::input::InputError>(())
//! ```
mod buffer;
mod canvas;
mod error;
mod ffmpeg;
mod font;
#[cfg(feature = "pictures")]
mod images;
mod open;
pub mod pace;
mod pattern;
#[cfg(feature = "pictures")]
mod picture;
mod raw;
mod repeat;
mod synthetic;
mod y4m;

pub use buffer::{FillError, FrameBuffer, read_waiting, wait_readable};
pub use error::InputError;
pub use ffmpeg::{FfmpegInput, FrameSync};
#[cfg(feature = "pictures")]
pub use images::ImagesInput;
pub use open::{InputOptions, open};
pub use pattern::Pattern;
pub use raw::RawInput;
pub use repeat::Repeat;
pub use synthetic::SyntheticInput;
pub use y4m::{Y4mError, Y4mHeader, Y4mInput};

use crate::format::{FrameFormat, FrameRate};

/// What [`FrameInput::read_frame`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameRead {
    /// One whole frame was written.
    Frame,
    /// The input has ended; nothing was written.
    End,
}

/// A sequence of raw frames of one format.
pub trait FrameInput: Send {
    /// Returns the format of every frame, fixed when the input was opened.
    fn format(&self) -> &FrameFormat;

    /// Returns the rate at which the frames are to be shown. `None` when the input does not say, or
    /// when it sets the pace itself (a live stream, whose reads wait for the next frame).
    fn frame_rate(&self) -> Option<FrameRate> {
        None
    }

    /// Writes the next frame into `out`: exactly [`FrameFormat::frame_bytes`] bytes on
    /// [`FrameRead::Frame`], none on [`FrameRead::End`]. Waits until the frame has arrived.
    ///
    /// # Errors
    /// Any [`InputError`]. The caller must then discard what was written to `out`. Frames before it
    /// were whole; no further frame follows.
    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError>;

    /// Goes back to the first frame. Returns `false` where that is impossible (a pipe, a live stream).
    ///
    /// # Errors
    /// [`InputError`] when the input could be rewound but that failed.
    fn rewind(&mut self) -> Result<bool, InputError>;
}
