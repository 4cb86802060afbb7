//! Raw frames, back to back without any description: stdin, a pipe, a file.
use super::{FrameBuffer, FrameInput, FrameRead, InputError};
use crate::format::FrameFormat;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// What users write for standard input.
const STDIN: &str = "-";

/// Opens `path`, standard input for `-`; nothing else may read that meanwhile. Read without a
/// buffer of our own, so that a frame's bytes go from the descriptor into its block.
pub(super) fn open_bytes(path: &Path) -> io::Result<File> {
    if path == Path::new(STDIN) {
        return io::stdin().as_fd().try_clone_to_owned().map(File::from);
    }
    File::open(path)
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
        _ => Err(InputError::truncated(input, frame, seen, *format)),
    }
}

/// Raw frames of a format that the user specifies.
#[derive(Debug)]
pub struct RawInput {
    pub(super) input: String,
    pub(super) file: File,
    format: FrameFormat,
    /// Offset of the first frame.
    data_at: u64,
    pub(super) frames: u64,
}

impl RawInput {
    /// Opens a file or a named pipe with frames of `format`, or standard input (`-`), which nothing
    /// else may read meanwhile.
    ///
    /// # Errors
    /// [`InputError::NotFound`], [`InputError::Io`].
    pub fn open(path: &Path, format: FrameFormat) -> Result<Self, InputError> {
        let input = path.display().to_string();
        let file = open_bytes(path).map_err(|error| InputError::io(&input, error))?;
        Ok(Self::behind(0, input, file, format))
    }

    /// Reads frames of `format` from a file whose first `data_at` bytes have been read.
    pub(super) fn behind(data_at: u64, input: String, file: File, format: FrameFormat) -> Self {
        Self { input, file, format, data_at, frames: 0 }
    }
}

impl FrameInput for RawInput {
    fn format(&self) -> &FrameFormat {
        &self.format
    }

    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError> {
        let read = read_raw_frame(&self.input, self.file.as_fd(), &self.format, self.frames, out)?;
        self.frames += 1;
        Ok(read)
    }

    fn rewind(&mut self) -> Result<bool, InputError> {
        self.frames = 0;
        if self.input == STDIN {
            return Ok(false);
        }
        match self.file.seek(SeekFrom::Start(self.data_at)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => Ok(false),
            Err(error) => Err(InputError::io(&self.input, error)),
        }
    }
}
