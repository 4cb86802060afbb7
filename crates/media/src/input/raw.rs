//! Raw frames, one after the other without any description: stdin, a pipe, a file.
use super::{FrameBuffer, FrameInput, FrameRead, InputError};
use crate::format::FrameFormat;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Bytes from stdin or a file, read without any buffer of our own, so that a frame's bytes
/// can go from the descriptor into its block.
#[derive(Debug)]
pub(super) enum ByteSource {
    /// Standard input. Nobody else may read it.
    Stdin(io::Stdin),
    /// A file or named pipe.
    File(File),
}

impl ByteSource {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self::File)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stdin(stdin) => stdin.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }

    /// Goes to `position`; `false` where there are no positions (a pipe, a terminal).
    pub(super) fn seek(&mut self, position: u64) -> io::Result<bool> {
        match self {
            Self::Stdin(_) => Ok(false),
            Self::File(file) => match file.seek(SeekFrom::Start(position)) {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotSeekable => Ok(false),
                Err(error) => Err(error),
            },
        }
    }
}

/// Reads one frame of `format` from `from`. `frame` is its number, for messages.
pub(super) fn read_raw_frame(
    input: &str,
    from: BorrowedFd<'_>,
    format: &FrameFormat,
    frame: u64,
    out: &mut dyn FrameBuffer,
) -> Result<FrameRead, InputError> {
    let needed = format.frame_bytes();
    let seen = out.fill_from(from, needed).map_err(|error| InputError::fill(input, error))?;
    match seen {
        0 => Ok(FrameRead::End),
        _ if seen == needed => Ok(FrameRead::Frame),
        _ => Err(InputError::Truncated {
            input: input.to_owned(),
            frame,
            seen,
            needed,
            format: *format,
        }),
    }
}

/// Raw frames of a format that the user states.
#[derive(Debug)]
pub struct RawInput {
    input: String,
    source: ByteSource,
    format: FrameFormat,
    frames: u64,
}

impl RawInput {
    /// Frames of `format` from standard input, which nobody else may read meanwhile.
    pub fn stdin(format: FrameFormat) -> Self {
        Self { input: "-".to_owned(), source: ByteSource::Stdin(io::stdin()), format, frames: 0 }
    }

    /// Frames of `format` from a file or a named pipe.
    ///
    /// # Errors
    /// [`InputError::NotFound`], [`InputError::Io`].
    pub fn file(path: &Path, format: FrameFormat) -> Result<Self, InputError> {
        let input = path.display().to_string();
        let source = ByteSource::open(path).map_err(|error| InputError::io(&input, error))?;
        Ok(Self { input, source, format, frames: 0 })
    }
}

impl FrameInput for RawInput {
    fn format(&self) -> &FrameFormat {
        &self.format
    }

    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError> {
        let read = read_raw_frame(&self.input, self.source.fd(), &self.format, self.frames, out)?;
        self.frames += 1;
        Ok(read)
    }

    fn rewind(&mut self) -> Result<bool, InputError> {
        self.frames = 0;
        self.source.seek(0).map_err(|error| InputError::io(&self.input, error))
    }
}
