//! Y4M (YUV4MPEG2): a header line with the format, then `FRAME` and the raw bytes of each frame.
//!
//! The header parser is our own: the header is one line of text, and the `y4m` crate copies every
//! frame into its own buffer first. Lines are read byte by byte, so nothing is read ahead and a
//! frame's bytes still go straight into its block.
use super::buffer::read_waiting;
use super::raw::open_bytes;
use super::{FrameBuffer, FrameInput, FrameRead, InputError, RawInput};
use crate::format::{FormatError, FrameFormat, FrameRate, PixelFormat, digits, quoted};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::{fmt, io};

const MAGIC: &str = "YUV4MPEG2";
const FRAME: &str = "FRAME";
/// Longest header or frame line, in bytes. Real ones have about 70.
const LINE_BYTES_MAX: usize = 4096;

/// The header line of a Y4M stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Y4mHeader {
    /// Size and pixel format of every frame.
    pub format: FrameFormat,
    /// Frames per second, `None` if the header has none (or `F0:0`, unknown).
    pub rate: Option<FrameRate>,
}

impl Y4mHeader {
    /// Parses the header line, without its line feed.
    ///
    /// # Errors
    /// [`Y4mError`], naming the field and its value.
    pub fn parse(line: &[u8]) -> Result<Self, Y4mError> {
        let text = String::from_utf8_lossy(line);
        let mut fields = text.split(' ');
        if fields.next() != Some(MAGIC) {
            return Err(Y4mError::Magic(quoted(&text)));
        }
        let (mut width, mut height, mut rate, mut pixel) = (None, None, None, PixelFormat::Yuv420p);
        for field in fields.filter(|field| !field.is_empty()) {
            let (tag, value) = split_tag(field);
            match tag {
                'W' => width = Some(side("width", value)?),
                'H' => height = Some(side("height", value)?),
                'F' => rate = parse_rate(value)?,
                'C' => pixel = colour(value)?,
                // Interlacing, aspect and comments do not change the bytes.
                _ => {}
            }
        }
        let width = width.ok_or(Y4mError::Missing("W (width)"))?;
        let height = height.ok_or(Y4mError::Missing("H (height)"))?;
        Ok(Self { format: FrameFormat::new(width, height, pixel)?, rate })
    }
}

/// Writes the line that [`Y4mHeader::parse`] reads back, without its line feed.
impl fmt::Display for Y4mHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAGIC} W{} H{}", self.format.width(), self.format.height())?;
        match self.rate {
            Some(rate) => write!(f, " F{}:{}", rate.num(), rate.den())?,
            None => f.write_str(" F0:0")?,
        }
        match COLOURS.iter().find(|(_, pixel)| *pixel == self.format.pixel()) {
            Some((name, _)) => write!(f, " C{name}"),
            None => write!(f, " C{}", self.format.pixel()),
        }
    }
}

fn split_tag(field: &str) -> (char, &str) {
    let mut chars = field.chars();
    let tag = chars.next().unwrap_or(' ');
    (tag, chars.as_str())
}

fn side(field: &'static str, value: &str) -> Result<u32, Y4mError> {
    digits(value).ok_or_else(|| Y4mError::Number { field, value: quoted(value) })
}

fn parse_rate(value: &str) -> Result<Option<FrameRate>, Y4mError> {
    let (num, den) = value
        .split_once(':')
        .and_then(|(num, den)| digits(num).zip(digits(den)))
        .ok_or_else(|| Y4mError::Number { field: "frame rate", value: quoted(value) })?;
    Ok(FrameRate::new(num, den))
}

/// Names of the C field. Of several for one format, the first is written.
const COLOURS: &[(&str, PixelFormat)] = &[
    ("420jpeg", PixelFormat::Yuv420p),
    ("420", PixelFormat::Yuv420p),
    ("420mpeg2", PixelFormat::Yuv420p),
    ("420paldv", PixelFormat::Yuv420p),
    ("411", PixelFormat::Yuv411p),
    ("422", PixelFormat::Yuv422p),
    ("444", PixelFormat::Yuv444p),
    ("444alpha", PixelFormat::Yuva444p),
    ("mono", PixelFormat::Gray8),
    ("mono10", PixelFormat::Gray10Le),
    ("mono12", PixelFormat::Gray12Le),
    ("mono16", PixelFormat::Gray16Le),
    ("420p10", PixelFormat::Yuv420p10Le),
    ("422p10", PixelFormat::Yuv422p10Le),
    ("444p10", PixelFormat::Yuv444p10Le),
    ("420p12", PixelFormat::Yuv420p12Le),
    ("422p12", PixelFormat::Yuv422p12Le),
    ("444p12", PixelFormat::Yuv444p12Le),
];

fn colour(value: &str) -> Result<PixelFormat, Y4mError> {
    COLOURS
        .iter()
        .find(|(name, _)| *name == value)
        .map(|(_, pixel)| *pixel)
        .ok_or_else(|| Y4mError::Colour(quoted(value)))
}

/// What is wrong with a Y4M stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Y4mError {
    /// The stream does not start as Y4M does: the first bytes, quoted.
    #[error(
        "it starts with {0}, not with {MAGIC}; for raw frames say --format, for example --format 640x480:rgb24"
    )]
    Magic(String),
    /// A required field is missing.
    #[error("its header has no {0}")]
    Missing(&'static str),
    /// A field is not a number.
    #[error("its header has {field} {value}, which is not a number")]
    Number {
        /// The field.
        field: &'static str,
        /// Its value, quoted.
        value: String,
    },
    /// The colour space is unknown: its value, quoted.
    #[error(
        "its header has colour space {seen}; known are {known}; convert it with ffmpeg -i IN -f yuv4mpegpipe -pix_fmt yuv420p OUT",
        seen = .0,
        known = known_colours()
    )]
    Colour(String),
    /// Size out of range.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// A line is too long, or the stream ends inside it.
    #[error(
        "the line before frame {frame} has no end within {seen} bytes (at most {LINE_BYTES_MAX})"
    )]
    Line {
        /// Number of the frame after it, from 0.
        frame: u64,
        /// Bytes read.
        seen: usize,
    },
    /// A frame does not start with `FRAME`.
    #[error(
        "frame {frame} starts with {seen}, not with {FRAME}; the frame before it is damaged, or its header is wrong"
    )]
    Frame {
        /// Number of the frame, from 0.
        frame: u64,
        /// What is there, quoted.
        seen: String,
    },
}

fn known_colours() -> String {
    COLOURS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Frames of a Y4M file or of Y4M on stdin.
#[derive(Debug)]
pub struct Y4mInput {
    raw: RawInput,
    rate: Option<FrameRate>,
}

impl Y4mInput {
    /// Opens Y4M: a file, a named pipe, or standard input (`-`), which nothing else may read
    /// meanwhile. Waits for the header.
    ///
    /// # Errors
    /// [`InputError::NotFound`], [`InputError::Y4m`], [`InputError::Io`].
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let input = path.display().to_string();
        let file = open_bytes(path).map_err(|error| InputError::io(&input, error))?;
        let line = read_header(&file, &input)?;
        let header = Y4mHeader::parse(&line)
            .map_err(|source| InputError::Y4m { input: input.clone(), source })?;
        let raw = RawInput::behind(line.len() as u64 + 1, input, file, header.format);
        Ok(Self { raw, rate: header.rate })
    }

    fn y4m(&self, source: Y4mError) -> InputError {
        InputError::Y4m { input: self.raw.input.clone(), source }
    }

    /// Reads the `FRAME` line; `false` at the end of the stream.
    fn frame_line(&self) -> Result<bool, InputError> {
        let RawInput { input, file, frames, .. } = &self.raw;
        let mut line = [0; FRAME.len() + 1];
        let seen = read_full(file, &mut line).map_err(|error| InputError::io(input, error))?;
        if seen == 0 {
            return Ok(false);
        }
        if !line.starts_with(FRAME.as_bytes()) {
            let seen = quoted(&String::from_utf8_lossy(&line[..seen]));
            return Err(self.y4m(Y4mError::Frame { frame: *frames, seen }));
        }
        if line[FRAME.len()] == b'\n' {
            return Ok(true);
        }
        // The rest of a line with parameters, which do not change the bytes.
        match read_line(file).map_err(|error| InputError::io(input, error))? {
            Ok(_) => Ok(true),
            Err(line) => Err(self.y4m(Y4mError::Line { frame: *frames, seen: line.len() })),
        }
    }
}

impl FrameInput for Y4mInput {
    fn format(&self) -> &FrameFormat {
        self.raw.format()
    }

    fn frame_rate(&self) -> Option<FrameRate> {
        self.rate
    }

    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError> {
        if !self.frame_line()? {
            return Ok(FrameRead::End);
        }
        let frame = self.raw.frames;
        match self.raw.read_frame(out)? {
            FrameRead::Frame => Ok(FrameRead::Frame),
            // The FRAME line was there, its bytes are not.
            FrameRead::End => {
                Err(InputError::truncated(&self.raw.input, frame, 0, *self.raw.format()))
            }
        }
    }

    fn rewind(&mut self) -> Result<bool, InputError> {
        self.raw.rewind()
    }
}

/// Reads the header line. Stops at the first byte that cannot be one, so that other data on stdin
/// is refused at once and not after 4 KiB.
fn read_header(file: &File, input: &str) -> Result<Vec<u8>, InputError> {
    let error = |source| InputError::Y4m { input: input.to_owned(), source };
    let mut magic = [0; MAGIC.len()];
    let seen = read_full(file, &mut magic).map_err(|error| InputError::io(input, error))?;
    if magic != MAGIC.as_bytes() {
        return Err(error(Y4mError::Magic(quoted(&String::from_utf8_lossy(&magic[..seen])))));
    }
    match read_line(file).map_err(|error| InputError::io(input, error))? {
        Ok(rest) => Ok([magic.as_slice(), &rest].concat()),
        Err(rest) => Err(error(Y4mError::Line { frame: 0, seen: rest.len() })),
    }
}

/// Fills `into` as far as the file goes; returns how far.
fn read_full(file: &File, into: &mut [u8]) -> io::Result<usize> {
    let mut seen = 0;
    while seen < into.len() {
        match read_waiting(file.as_fd(), &mut into[seen..])? {
            0 => break,
            got => seen += got,
        }
    }
    Ok(seen)
}

/// Reads up to a line feed and returns the bytes before it. `Err` holds what was read when there
/// is none.
fn read_line(file: &File) -> io::Result<Result<Vec<u8>, Vec<u8>>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE_BYTES_MAX {
        match (read_full(file, &mut byte)?, byte[0]) {
            (0, _) => return Ok(Err(line)),
            (_, b'\n') => return Ok(Ok(line)),
            (_, byte) => line.push(byte),
        }
    }
    Ok(Err(line))
}
