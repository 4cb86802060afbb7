//! What a frame looks like in memory: its size in pixels, its pixel format, its rate.
//!
//! A frame is raw: plane after plane, row after row, without padding, exactly as
//! `ffmpeg -f rawvideo` writes it. The format alone determines the size of a frame in bytes, and any
//! program can read what a collector stored.
mod pixel;
mod rate;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use pixel::{Channel, PixelFormat, Plane};
pub use rate::{FrameRate, RateError};

/// The largest width or height of a frame, in pixels.
pub const SIDE_MAX: u32 = 65_535;

/// The largest frame, in bytes.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

/// Width, height and pixel format of every frame of a stream.
///
/// A value of this type is always within the limits, so [`FrameFormat::frame_bytes`] cannot
/// fail. Written as `640x480:rgb24`, by [`fmt::Display`], [`FromStr`] and serde alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, derive_more::Display)]
#[display("{width}x{height}:{pixel}")]
#[serde(try_from = "String", into = "String")]
pub struct FrameFormat {
    width: u32,
    height: u32,
    pixel: PixelFormat,
}

impl FrameFormat {
    /// Creates a format of `width` x `height` pixels.
    ///
    /// # Errors
    /// [`FormatError::Side`] unless both sides are in 1..=65,535,
    /// [`FormatError::TooLarge`] when a frame would exceed 1 GiB.
    pub fn new(width: u32, height: u32, pixel: PixelFormat) -> Result<Self, FormatError> {
        check_side("width", width)?;
        check_side("height", height)?;
        let format = Self { width, height, pixel };
        match format.checked_bytes() {
            Some(bytes) if bytes <= FRAME_BYTES_MAX as u64 => Ok(format),
            bytes => Err(FormatError::TooLarge { width, height, pixel, bytes }),
        }
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns how the pixels are laid out.
    pub fn pixel(&self) -> PixelFormat {
        self.pixel
    }

    /// Returns the bytes of one frame: all planes, no padding. Odd sizes round chroma up, as ffmpeg
    /// does.
    pub fn frame_bytes(&self) -> usize {
        (0..self.pixel.planes().len()).map(|plane| self.row_bytes(plane) * self.rows(plane)).sum()
    }

    /// Returns the bytes of one row of a plane (0 is the first), 0 for a plane that the format lacks.
    pub fn row_bytes(&self, plane: usize) -> usize {
        self.pixel.planes().get(plane).map_or(0, |p| {
            self.width.div_ceil(1 << p.x_shift) as usize * self.pixel.cell_bytes(plane)
        })
    }

    /// Returns the rows of a plane (0 is the first), 0 for a plane that the format lacks.
    pub fn rows(&self, plane: usize) -> usize {
        self.pixel.planes().get(plane).map_or(0, |p| self.height.div_ceil(1 << p.y_shift) as usize)
    }

    fn checked_bytes(&self) -> Option<u64> {
        (0..self.pixel.planes().len()).try_fold(0u64, |sum, plane| {
            sum.checked_add((self.row_bytes(plane) as u64).checked_mul(self.rows(plane) as u64)?)
        })
    }
}

fn check_side(side: &'static str, value: u32) -> Result<(), FormatError> {
    if (1..=SIDE_MAX).contains(&value) {
        return Ok(());
    }
    Err(FormatError::Side { side, value: value.to_string() })
}

impl From<FrameFormat> for String {
    fn from(format: FrameFormat) -> Self {
        format.to_string()
    }
}

impl TryFrom<String> for FrameFormat {
    type Error = FormatError;

    fn try_from(text: String) -> Result<Self, FormatError> {
        text.parse()
    }
}

impl FromStr for FrameFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let wish: FormatWish = text.parse()?;
        match (wish.size, wish.pixel) {
            (Some((width, height)), Some(pixel)) => Self::new(width, height, pixel),
            (None, _) => Err(FormatError::Missing { value: quoted(text), what: "the size" }),
            (_, None) => {
                Err(FormatError::Missing { value: quoted(text), what: "the pixel format" })
            }
        }
    }
}

/// The part of a format that a user specifies: a size, a pixel format, both, or (by default) neither.
///
/// Written as `640x480:rgb24`, `640x480` or `rgb24`. Inputs with a format of their own are
/// converted; inputs without one (raw bytes) need both parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FormatWish {
    /// Width and height in pixels, each in 1..=65,535.
    pub size: Option<(u32, u32)>,
    /// The pixel format.
    pub pixel: Option<PixelFormat>,
}

impl FormatWish {
    /// Returns the whole format, `None` unless both parts are given.
    ///
    /// # Errors
    /// As [`FrameFormat::new`].
    pub fn whole(&self) -> Result<Option<FrameFormat>, FormatError> {
        match (self.size, self.pixel) {
            (Some((width, height)), Some(pixel)) => {
                FrameFormat::new(width, height, pixel).map(Some)
            }
            (None, _) | (_, None) => Ok(None),
        }
    }
}

impl fmt::Display for FormatWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size.map(|(width, height)| format!("{width}x{height}"));
        let pixel = self.pixel.map(|pixel| pixel.to_string());
        f.write_str(&[size, pixel].into_iter().flatten().collect::<Vec<_>>().join(":"))
    }
}

impl From<FrameFormat> for FormatWish {
    fn from(format: FrameFormat) -> Self {
        Self { size: Some((format.width, format.height)), pixel: Some(format.pixel) }
    }
}

impl FromStr for FormatWish {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let (size, pixel) = match text.split_once(':') {
            Some((size, pixel)) => (Some(size), Some(pixel)),
            None if text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('x') => {
                (Some(text), None)
            }
            None => (None, Some(text)),
        };
        let size = size.map(|size| parse_size(text, size)).transpose()?;
        let pixel = pixel.map(|name| parse_pixel(text, name)).transpose()?;
        Ok(Self { size, pixel })
    }
}

fn parse_size(text: &str, size: &str) -> Result<(u32, u32), FormatError> {
    let (width, height) = size
        .split_once('x')
        .ok_or_else(|| FormatError::Size { value: quoted(text), size: quoted(size) })?;
    Ok((parse_side("width", width)?, parse_side("height", height)?))
}

fn parse_side(side: &'static str, text: &str) -> Result<u32, FormatError> {
    let value = digits(text).ok_or_else(|| FormatError::Side { side, value: quoted(text) })?;
    check_side(side, value).map(|()| value)
}

/// Parses a number of nothing but digits: no sign, as `str::parse` takes.
pub(crate) fn digits(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn parse_pixel(text: &str, name: &str) -> Result<PixelFormat, FormatError> {
    PixelFormat::from_name(name)
        .ok_or_else(|| FormatError::Pixel { value: quoted(text), pixel: quoted(name) })
}

/// Quotes a user's text for a message: bounded, with control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 100;
    let mut short: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push_str("...");
    }
    format!("\"{short}\"")
}

/// Why a text or numbers are not a [`FrameFormat`]. Each message ends with an example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The part before the colon is not WIDTHxHEIGHT.
    #[error("format {value}: size {size} is not WIDTHxHEIGHT; write for example 640x480:rgb24")]
    Size {
        /// The whole text, quoted.
        value: String,
        /// The part that should be a size, quoted.
        size: String,
    },
    /// One side is not a number or out of range.
    #[error("{side} {value} is not a number from 1 to {SIDE_MAX}; write for example 640x480:rgb24")]
    Side {
        /// `width` or `height`.
        side: &'static str,
        /// What was given.
        value: String,
    },
    /// The pixel format is unknown.
    #[error(
        "format {value}: unknown pixel format {pixel}; known are {known}; write for example 640x480:rgb24",
        known = pixel::known_names()
    )]
    Pixel {
        /// The whole text, quoted.
        value: String,
        /// The part that should be a pixel format, quoted.
        pixel: String,
    },
    /// A part is missing where both are needed.
    #[error("format {value} lacks {what}; write for example 640x480:rgb24")]
    Missing {
        /// The whole text, quoted.
        value: String,
        /// What is missing.
        what: &'static str,
    },
    /// A frame would be too large.
    #[error(
        "a frame of {width}x{height}:{pixel} has {} bytes, more than {FRAME_BYTES_MAX}; choose a smaller size",
        bytes.map_or("more than 2^64".to_owned(), |b| b.to_string())
    )]
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The pixel format.
        pixel: PixelFormat,
        /// Bytes of a frame, `None` beyond 2^64.
        bytes: Option<u64>,
    },
}
