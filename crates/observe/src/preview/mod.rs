//! The small picture of a device on the live page.
//!
//! A frame lives in memory that another process may write, and only until its blocks are released.
//! So the thread that delivers it makes the picture, reading just the pixels it needs; and only for a
//! viewer: within 3 s of its request, at most 4 times a second. Without a viewer [`Preview::offer`]
//! costs one load. The PNG is made later, by the thread that serves the page.
mod demand;
mod sample;

pub use demand::Demand;
pub use sample::picture_of;

use crate::sync::lock;
use catchment_media::format::FrameFormat;
use std::sync::{Arc, Mutex};

/// Largest width of a preview in pixels.
pub const WIDTH_MAX: u32 = 320;
/// Largest height of a preview in pixels.
pub const HEIGHT_MAX: u32 = 240;

/// The bytes of one frame, in any memory.
pub trait PixelSource {
    /// Copies the bytes at `offset` of the frame into `out`. The caller stays within the frame's
    /// length. Bytes that another process changes meanwhile cause a wrong picture, nothing worse.
    fn read(&self, offset: usize, out: &mut [u8]);
}

impl<F: Fn(usize, &mut [u8])> PixelSource for F {
    fn read(&self, offset: usize, out: &mut [u8]) {
        self(offset, out);
    }
}

impl PixelSource for [u8] {
    fn read(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self[offset..][..out.len()]);
    }
}

/// A small picture, red, green and blue of 8 bits each, rows from top to bottom without padding.
#[derive(Debug)]
pub struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
    #[cfg(feature = "live-page")]
    png: std::sync::OnceLock<Option<Vec<u8>>>,
}

impl Picture {
    fn new(width: u32, height: u32, rgb: Vec<u8>) -> Self {
        Self {
            width,
            height,
            rgb,
            #[cfg(feature = "live-page")]
            png: std::sync::OnceLock::new(),
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

    /// Returns the pixels.
    pub fn rgb(&self) -> &[u8] {
        &self.rgb
    }

    /// Returns the picture as a PNG file, made once for all viewers. `None` only for an empty
    /// picture.
    #[cfg(feature = "live-page")]
    pub fn png(&self) -> Option<&[u8]> {
        self.png.get_or_init(|| encode_png(self).ok()).as_deref()
    }
}

#[cfg(feature = "live-page")]
fn encode_png(picture: &Picture) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, picture.width, picture.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&picture.rgb)?;
    writer.finish()?;
    Ok(file)
}

/// The last picture, with a number that grows with each.
#[derive(Debug, Default)]
struct Latest {
    number: u64,
    picture: Option<Arc<Picture>>,
}

/// Makes pictures of one device's frames while a viewer requests them.
#[derive(Debug)]
pub struct Preview {
    demand: Demand,
    format: Mutex<Option<FrameFormat>>,
    latest: Mutex<Latest>,
}

impl Preview {
    /// Creates a preview of frames in `format`, such as `640x480:rgb24`. A text that is no
    /// [`FrameFormat`] makes a preview without pictures.
    pub fn new(format: &str) -> Self {
        Self {
            demand: Demand::default(),
            format: Mutex::new(format.parse().ok()),
            latest: Mutex::default(),
        }
    }

    pub(super) fn set_format(&self, format: &str) {
        *lock(&self.format) = format.parse().ok();
    }

    /// Returns whether pictures can be made of this format.
    pub fn is_possible(&self) -> bool {
        lock(&self.format).is_some()
    }

    /// Returns whether, and when, a picture is wanted.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Makes a picture of a frame of `frame_bytes` bytes if one is due; returns whether it did.
    /// Reads at most 480 rows of the frame; never waits for another thread. Call it before the
    /// frame's blocks are released.
    pub fn offer(&self, frame_bytes: usize, pixels: &(impl PixelSource + ?Sized)) -> bool {
        self.demand.is_due() && self.make(frame_bytes, pixels)
    }

    fn make(&self, frame_bytes: usize, pixels: &(impl PixelSource + ?Sized)) -> bool {
        let Some(format) = self.format.try_lock().ok().and_then(|format| *format) else {
            return false;
        };
        if frame_bytes < format.frame_bytes() {
            return false;
        }
        self.demand.made();
        let picture = Arc::new(picture_of(&format, pixels));
        let Ok(mut latest) = self.latest.try_lock() else { return false };
        latest.number += 1;
        latest.picture = Some(picture);
        true
    }

    /// Returns the last picture that was made, and its number.
    pub fn latest(&self) -> Option<(u64, Arc<Picture>)> {
        let latest = lock(&self.latest);
        latest.picture.clone().map(|picture| (latest.number, picture))
    }
}
