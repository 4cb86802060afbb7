//! Why an input gives no (more) frames.
use std::io;
use std::path::PathBuf;

use super::buffer::FillError;
use super::y4m::Y4mError;
use crate::format::{FormatError, FrameFormat};

/// Why an input cannot be opened or read. Each message names the input and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message above a variant says what its fields are")]
pub enum InputError {
    /// There is no such file.
    #[error(
        "input {input}: no such file or directory; give a file, a directory of pictures, a URL, \
         `-` for stdin or `synthetic:640x480:rgb24`"
    )]
    NotFound { input: String },
    /// Opening or reading failed.
    #[error("input {input}: {source}")]
    Io { input: String, source: io::Error },
    /// The frame buffer failed, not the input.
    #[error("a frame of input {input} could not be stored: {source}")]
    Buffer { input: String, source: io::Error },
    /// Raw bytes without a format.
    #[error(
        "input {input} is raw bytes without a description; say what a frame is, for example --format 640x480:rgb24"
    )]
    NeedsFormat { input: String },
    /// The format that was asked for is wrong.
    #[error("input {input}: {source}")]
    Format { input: String, source: FormatError },
    /// The input cannot be converted to what was asked.
    #[error("input {input} gives frames of {has}, not {asked}; {remedy}")]
    CannotConvert { input: String, has: String, asked: String, remedy: &'static str },
    /// The input ended inside a frame. The frames before it were delivered.
    #[error(
        "input {input} ends inside frame {frame}: {seen} bytes seen, {needed} needed for a frame of {format}; \
         it was cut off, or the format is not the right one"
    )]
    Truncated {
        input: String,
        /// Number of the incomplete frame, from 0.
        frame: u64,
        /// Bytes of it that were there.
        seen: usize,
        /// Bytes of a whole frame.
        needed: usize,
        /// The format that these bytes follow from.
        format: FrameFormat,
    },
    /// The bytes are not Y4M as it should be.
    #[error("input {input} is not readable Y4M: {source}")]
    Y4m { input: String, source: Y4mError },
    /// ffmpeg or ffprobe is not installed.
    #[error(
        "input {input} is decoded by ffmpeg, and {program} was not found; install it (Debian, Ubuntu: apt-get install ffmpeg)"
    )]
    FfmpegMissing { input: String, program: PathBuf },
    /// ffmpeg was to read stdin.
    #[error(
        "input {input}: ffmpeg looks at its input twice, which stdin does not allow; \
         convert it before: ffmpeg -i - -f yuv4mpegpipe - | catchment send --input -"
    )]
    FfmpegStdin { input: String },
    /// ffmpeg gave up.
    #[error("input {input}: {program} ended with {status}{}", said(.stderr))]
    Ffmpeg {
        input: String,
        program: PathBuf,
        status: String,
        /// The last lines it wrote to stderr.
        stderr: String,
    },
    /// ffmpeg's answer about the input makes no sense to us.
    #[error("input {input}: cannot learn its frames from {program}: {problem}{}", said(.stderr))]
    FfmpegProbe {
        input: String,
        program: PathBuf,
        problem: String,
        /// The last lines it wrote to stderr.
        stderr: String,
    },
    /// The clip's own pixel format is none of ours.
    #[error(
        "input {input} has pixel format {pixel}, which is not supported as it is; have it converted, for example --format rgb24"
    )]
    FfmpegPixel { input: String, pixel: String },
    /// A directory of pictures, which this build does not read.
    #[cfg(not(feature = "pictures"))]
    #[error(
        "input {dir}: this program was built without the feature `pictures`, so it cannot read a \
         directory of pictures", dir = .dir.display()
    )]
    NoPictures { dir: PathBuf },
    /// A directory without pictures.
    #[error("input {dir}: the directory has no .png, .jpg or .jpeg file ({others} other files); convert the pictures or give another directory", dir = .dir.display())]
    NoImages { dir: PathBuf, others: usize },
    /// A picture cannot be decoded.
    #[error("picture {path}: {problem}; replace it or move it out of the directory", path = .path.display())]
    Image { path: PathBuf, problem: String },
    /// A picture has another size than the first.
    #[error(
        "picture {path} is {}x{}, but the first one ({first}) is {}x{}; all must have one size",
        .seen.0, .seen.1, .wanted.0, .wanted.1, path = .path.display(), first = .first.display()
    )]
    ImageSize { path: PathBuf, seen: (u32, u32), first: PathBuf, wanted: (u32, u32) },
}

impl InputError {
    pub(super) fn io(input: &str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            return Self::NotFound { input: input.to_owned() };
        }
        Self::Io { input: input.to_owned(), source }
    }

    pub(super) fn fill(input: &str, error: FillError) -> Self {
        match error {
            FillError::Read(source) => Self::Io { input: input.to_owned(), source },
            FillError::Write(source) => Self::buffer(input, source),
        }
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
