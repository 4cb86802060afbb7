//! Where the pixels of a frame lie. Names and layouts are those of ffmpeg's `rawvideo`.

/// How the pixels of a frame are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pixels {
    /// Red, green, blue; 3 bytes.
    Rgb24,
    /// Blue, green, red; 3 bytes.
    Bgr24,
    /// Red, green, blue, opacity; 4 bytes.
    Rgba,
    /// Brightness; 1 byte.
    Gray8,
    /// Brightness; 2 bytes, low byte first.
    Gray16Le,
    /// Y, then U and V at half width and half height.
    Yuv420p,
    /// Y, then U and V at half width.
    Yuv422p,
    /// Y, U and V planes of full size.
    Yuv444p,
    /// Y, then one plane of U and V in turn at half width and half height.
    Nv12,
    /// Y0 U Y1 V for two pixels.
    Yuyv422,
}

impl Pixels {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "rgb24" => Self::Rgb24,
            "bgr24" => Self::Bgr24,
            "rgba" => Self::Rgba,
            "gray8" | "gray" => Self::Gray8,
            "gray16le" => Self::Gray16Le,
            "yuv420p" => Self::Yuv420p,
            "yuv422p" => Self::Yuv422p,
            "yuv444p" => Self::Yuv444p,
            "nv12" => Self::Nv12,
            "yuyv422" => Self::Yuyv422,
            _ => return None,
        })
    }
}

/// Size and layout of a frame that a picture can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureFormat {
    /// Pixels in a row, at least 1.
    pub width: u32,
    /// Rows, at least 1.
    pub height: u32,
    /// How they are stored.
    pub pixels: Pixels,
}

/// The largest width and height: keeps every offset within 40 bits.
const SIDE_MAX: u32 = 1 << 16;

impl PictureFormat {
    /// Reads `WIDTHxHEIGHT:PIXELS`, such as `640x480:rgb24`. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (size, pixels) = text.split_once(':')?;
        let (width, height) = size.split_once('x')?;
        let side = |text: &str| text.parse().ok().filter(|n| (1..=SIDE_MAX).contains(n));
        Some(Self {
            width: side(width)?,
            height: side(height)?,
            pixels: Pixels::parse(pixels)?,
        })
    }

    /// Bytes of one frame. Planes at half size are rounded up.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        let (w, h) = (self.width as usize, self.height as usize);
        let (half_w, half_h) = (w.div_ceil(2), h.div_ceil(2));
        match self.pixels {
            Pixels::Rgb24 | Pixels::Bgr24 | Pixels::Yuv444p => w * h * 3,
            Pixels::Rgba => w * h * 4,
            Pixels::Gray8 => w * h,
            Pixels::Gray16Le => w * h * 2,
            Pixels::Yuv420p | Pixels::Nv12 => w * h + half_w * half_h * 2,
            Pixels::Yuv422p => w * h + half_w * h * 2,
            Pixels::Yuyv422 => half_w * 4 * h,
        }
    }
}
