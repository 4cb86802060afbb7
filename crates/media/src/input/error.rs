//! Why an input yields no (more) frames.
use super::buffer::FillError;
use super::y4m::Y4mError;
use crate::format::{FormatError, FrameFormat};
use std::io;
use std::path::PathBuf;

/// Why an input cannot be opened or read. Each message names the input and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// There is no such file; the input as given.
    #[error(
        "input {0}: no such file or directory; give a file, a directory of pictures, a URL, \
         `-` for stdin or `synthetic:640x480:rgb24`"
    )]
    NotFound(String),
    /// Opening or reading failed.
    #[error("input {input}: {source}")]
    Io {
        /// The input as given.
        input: String,
        /// What the system said.
        source: io::Error,
    },
    /// The frame buffer failed, not the input.
    #[error("a frame of input {input} could not be stored: {source}")]
    Buffer {
        /// The input as given.
        input: String,
        /// What the buffer said.
        source: io::Error,
    },
    /// Raw bytes without a format: the input as given.
    #[error(
        "input {0} is raw bytes without a description; specify the format, for example --format 640x480:rgb24"
    )]
    NeedsFormat(String),
    /// The requested format is invalid.
    #[error("input {input}: {source}")]
    Format {
        /// The input as given.
        input: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The input cannot be converted to the requested format.
    #[error("input {input} has frames of {has}, not {asked}; {remedy}")]
    CannotConvert {
        /// The input as given.
        input: String,
        /// What it has.
        has: String,
        /// What was requested.
        asked: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The input ended inside a frame. The frames before it were delivered.
    #[error(
        "input {input} ends inside frame {frame}: {seen} bytes seen, {needed} needed for a frame of {format}; \
         the input is truncated, or the format is wrong"
    )]
    Truncated {
        /// The input as given.
        input: String,
        /// Number of the incomplete frame, from 0.
        frame: u64,
        /// Bytes of it that were read.
        seen: usize,
        /// Bytes of a whole frame.
        needed: usize,
        /// The format that these bytes follow from.
        format: FrameFormat,
    },
    /// The bytes are not valid Y4M.
    #[error("input {input} is not readable Y4M: {source}")]
    Y4m {
        /// The input as given.
        input: String,
        /// What is wrong.
        source: Y4mError,
    },
    /// ffmpeg or ffprobe is not installed.
    #[error(
        "input {input} is decoded by ffmpeg, and {program} was not found; install it (Debian, Ubuntu: apt-get install ffmpeg)"
    )]
    FfmpegMissing {
        /// The input as given.
        input: String,
        /// The program that is missing.
        program: PathBuf,
    },
    /// ffmpeg cannot read stdin: the input as given.
    #[error(
        "input {0}: ffmpeg reads its input twice, which stdin does not allow; \
         convert it first: ffmpeg -i - -f yuv4mpegpipe - | catchment send --input -"
    )]
    FfmpegStdin(String),
    /// ffmpeg failed.
    #[error("input {input}: {program} ended with {status}{}", said(.stderr))]
    Ffmpeg {
        /// The input as given.
        input: String,
        /// The program that ended.
        program: PathBuf,
        /// How it ended.
        status: String,
        /// The last lines it wrote to stderr.
        stderr: String,
    },
    /// What ffmpeg reports about the input cannot be used.
    #[error("input {input}: cannot determine its format with {program}: {problem}{}", said(.stderr))]
    FfmpegProbe {
        /// The input as given.
        input: String,
        /// The program that was run.
        program: PathBuf,
        /// What is wrong.
        problem: String,
        /// The last lines it wrote to stderr.
        stderr: String,
    },
    /// The clip's own pixel format is not supported.
    #[error(
        "input {input} has pixel format {pixel}, which is not supported; request a conversion, for example --format rgb24"
    )]
    FfmpegPixel {
        /// The input as given.
        input: String,
        /// ffmpeg's name of the format.
        pixel: String,
    },
    /// A directory of pictures, which this build cannot read.
    #[cfg(not(feature = "pictures"))]
    #[error(
        "input {dir}: this program was built without the feature `pictures`, so it cannot read a \
         directory of pictures", dir = .0.display()
    )]
    NoPictures(PathBuf),
    /// A directory without pictures.
    #[error("input {dir}: the directory has no .png, .jpg or .jpeg file ({others} other files); convert the pictures or give another directory", dir = .dir.display())]
    NoImages {
        /// The directory.
        dir: PathBuf,
        /// Files of other kinds in it.
        others: usize,
    },
    /// A picture cannot be decoded.
    #[error("picture {path}: {problem}; replace it or move it out of the directory", path = .path.display())]
    Image {
        /// The picture.
        path: PathBuf,
        /// What the decoder said.
        problem: String,
    },
    /// A picture differs in size from the first.
    #[error(
        "picture {path} is {}x{}, but the first one ({first}) is {}x{}; all must have the same size",
        .seen.0, .seen.1, .wanted.0, .wanted.1, path = .path.display(), first = .first.display()
    )]
    ImageSize {
        /// The picture.
        path: PathBuf,
        /// Its width and height.
        seen: (u32, u32),
        /// The first picture of the directory.
        first: PathBuf,
        /// The first one's width and height.
        wanted: (u32, u32),
    },
}

impl InputError {
    pub(super) fn io(input: &str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            return Self::NotFound(input.to_owned());
        }
        Self::Io { input: input.to_owned(), source }
    }

    pub(super) fn fill(input: &str, error: FillError) -> Self {
        match error {
            FillError::Read(source) => Self::Io { input: input.to_owned(), source },
            FillError::Write(source) => Self::buffer(input, source),
        }
    }

    pub(super) fn truncated(input: &str, frame: u64, seen: usize, format: FrameFormat) -> Self {
        let (input, needed) = (input.to_owned(), format.frame_bytes());
        Self::Truncated { input, frame, seen, needed, format }
    }

    pub(super) fn buffer(input: &str, source: io::Error) -> Self {
        Self::Buffer { input: input.to_owned(), source }
    }

    pub(super) fn format(input: &str, source: FormatError) -> Self {
        Self::Format { input: input.to_owned(), source }
    }
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said:\n{stderr}") }
}
