//! Pixel formats as data: one row of a table says what each plane holds.
//!
//! Everything that depends on a format (sizes, drawing, previews) reads this table, so a new
//! format is one new row. Names are those of ffmpeg's `-pix_fmt`.

use std::fmt;

/// What one sample of a pixel means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Luma, grey, or the one colour of a Bayer sensor's pixel.
    Y,
    /// Blue difference (Cb).
    U,
    /// Red difference (Cr).
    V,
    /// Red.
    R,
    /// Green.
    G,
    /// Blue.
    B,
    /// Opacity.
    A,
    /// Unused.
    X,
}

/// One plane of a pixel format: rows of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plane {
    /// The samples of one cell, in the order they lie in memory.
    pub channels: &'static [Channel],
    /// A cell is `1 << x_shift` pixels wide.
    pub x_shift: u8,
    /// A cell is `1 << y_shift` pixels high.
    pub y_shift: u8,
}

struct Layout {
    name: &'static str,
    /// Significant bits of a sample. More than 8 take two bytes, little endian.
    bits: u8,
    /// Zero bits below the significant ones.
    low_zeros: u8,
    planes: &'static [Plane],
}

const fn plane(channels: &'static [Channel], x_shift: u8, y_shift: u8) -> Plane {
    Plane { channels, x_shift, y_shift }
}

const fn layout(name: &'static str, bits: u8, planes: &'static [Plane]) -> Layout {
    Layout { name, bits, low_zeros: 0, planes }
}

macro_rules! pixel_formats {
    ($($(#[$doc:meta])* $variant:ident = $layout:expr;)+) => {
        /// How the pixels of a frame are laid out. Named as by `ffmpeg -pix_fmt`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum PixelFormat {
            $($(#[$doc])* $variant,)+
        }

        impl PixelFormat {
            /// Every format there is.
            pub const ALL: &'static [PixelFormat] = &[$(PixelFormat::$variant,)+];

            fn layout(self) -> &'static Layout {
                match self {
                    $(PixelFormat::$variant => {
                        const LAYOUT: Layout = $layout;
                        &LAYOUT
                    })+
                }
            }
        }
    };
}

use Channel::{A, B, G, R, U, V, X, Y};

const fn yuv(name: &'static str, bits: u8, planes: &'static [Plane; 3]) -> Layout {
    layout(name, bits, planes)
}

const P410: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 2, 2), plane(&[V], 2, 2)];
const P411: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 2, 0), plane(&[V], 2, 0)];
const P420: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 1, 1), plane(&[V], 1, 1)];
const P422: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 1, 0), plane(&[V], 1, 0)];
const P440: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 0, 1), plane(&[V], 0, 1)];
const P444: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 0, 0), plane(&[V], 0, 0)];
const PGBR: [Plane; 3] = [plane(&[G], 0, 0), plane(&[B], 0, 0), plane(&[R], 0, 0)];

pixel_formats! {
    /// Grey, 8 bits.
    Gray8 = layout("gray", 8, &[plane(&[Y], 0, 0)]);
    /// Grey, 10 bits in two bytes.
    Gray10Le = layout("gray10le", 10, &[plane(&[Y], 0, 0)]);
    /// Grey, 12 bits in two bytes.
    Gray12Le = layout("gray12le", 12, &[plane(&[Y], 0, 0)]);
    /// Grey, 16 bits.
    Gray16Le = layout("gray16le", 16, &[plane(&[Y], 0, 0)]);
    /// Grey and opacity, 8 bits each.
    Ya8 = layout("ya8", 8, &[plane(&[Y, A], 0, 0)]);
    /// Red, green, blue, 8 bits each.
    Rgb24 = layout("rgb24", 8, &[plane(&[R, G, B], 0, 0)]);
    /// Blue, green, red, 8 bits each.
    Bgr24 = layout("bgr24", 8, &[plane(&[B, G, R], 0, 0)]);
    /// Red, green, blue, opacity.
    Rgba = layout("rgba", 8, &[plane(&[R, G, B, A], 0, 0)]);
    /// Blue, green, red, opacity.
    Bgra = layout("bgra", 8, &[plane(&[B, G, R, A], 0, 0)]);
    /// Opacity, red, green, blue.
    Argb = layout("argb", 8, &[plane(&[A, R, G, B], 0, 0)]);
    /// Opacity, blue, green, red.
    Abgr = layout("abgr", 8, &[plane(&[A, B, G, R], 0, 0)]);
    /// Red, green, blue, one unused byte.
    Rgb0 = layout("rgb0", 8, &[plane(&[R, G, B, X], 0, 0)]);
    /// Blue, green, red, one unused byte.
    Bgr0 = layout("bgr0", 8, &[plane(&[B, G, R, X], 0, 0)]);
    /// One unused byte, red, green, blue.
    Xrgb = layout("0rgb", 8, &[plane(&[X, R, G, B], 0, 0)]);
    /// One unused byte, blue, green, red.
    Xbgr = layout("0bgr", 8, &[plane(&[X, B, G, R], 0, 0)]);
    /// Red, green, blue, 16 bits each.
    Rgb48Le = layout("rgb48le", 16, &[plane(&[R, G, B], 0, 0)]);
    /// Red, green, blue, opacity, 16 bits each.
    Rgba64Le = layout("rgba64le", 16, &[plane(&[R, G, B, A], 0, 0)]);
    /// Planes of green, blue, red.
    Gbrp = yuv("gbrp", 8, &PGBR);
    /// Planes of green, blue, red, 10 bits in two bytes.
    Gbrp10Le = yuv("gbrp10le", 10, &PGBR);
    /// Planes of green, blue, red, 12 bits in two bytes.
    Gbrp12Le = yuv("gbrp12le", 12, &PGBR);
    /// Planar YUV, chroma by 4 in both directions.
    Yuv410p = yuv("yuv410p", 8, &P410);
    /// Planar YUV, chroma by 4 in width.
    Yuv411p = yuv("yuv411p", 8, &P411);
    /// Planar YUV, chroma by 2 in both directions.
    Yuv420p = yuv("yuv420p", 8, &P420);
    /// Planar YUV, chroma by 2 in width.
    Yuv422p = yuv("yuv422p", 8, &P422);
    /// Planar YUV, chroma by 2 in height.
    Yuv440p = yuv("yuv440p", 8, &P440);
    /// Planar YUV, full chroma.
    Yuv444p = yuv("yuv444p", 8, &P444);
    /// [`PixelFormat::Yuv420p`], 10 bits in two bytes.
    Yuv420p10Le = yuv("yuv420p10le", 10, &P420);
    /// [`PixelFormat::Yuv422p`], 10 bits in two bytes.
    Yuv422p10Le = yuv("yuv422p10le", 10, &P422);
    /// [`PixelFormat::Yuv444p`], 10 bits in two bytes.
    Yuv444p10Le = yuv("yuv444p10le", 10, &P444);
    /// [`PixelFormat::Yuv420p`], 12 bits in two bytes.
    Yuv420p12Le = yuv("yuv420p12le", 12, &P420);
    /// [`PixelFormat::Yuv422p`], 12 bits in two bytes.
    Yuv422p12Le = yuv("yuv422p12le", 12, &P422);
    /// [`PixelFormat::Yuv444p`], 12 bits in two bytes.
    Yuv444p12Le = yuv("yuv444p12le", 12, &P444);
    /// [`PixelFormat::Yuv420p`] and a plane of opacity.
    Yuva420p = layout("yuva420p", 8, &[P420[0], P420[1], P420[2], plane(&[A], 0, 0)]);
    /// [`PixelFormat::Yuv422p`] and a plane of opacity.
    Yuva422p = layout("yuva422p", 8, &[P422[0], P422[1], P422[2], plane(&[A], 0, 0)]);
    /// [`PixelFormat::Yuv444p`] and a plane of opacity.
    Yuva444p = layout("yuva444p", 8, &[P444[0], P444[1], P444[2], plane(&[A], 0, 0)]);
    /// Luma, then interleaved UV, chroma by 2 in both directions.
    Nv12 = layout("nv12", 8, &[plane(&[Y], 0, 0), plane(&[U, V], 1, 1)]);
    /// As [`PixelFormat::Nv12`] with V before U.
    Nv21 = layout("nv21", 8, &[plane(&[Y], 0, 0), plane(&[V, U], 1, 1)]);
    /// Luma, then interleaved UV, chroma by 2 in width.
    Nv16 = layout("nv16", 8, &[plane(&[Y], 0, 0), plane(&[U, V], 1, 0)]);
    /// As [`PixelFormat::Nv12`], 10 bits in the upper bits of two bytes.
    P010Le = Layout {
        name: "p010le",
        bits: 10,
        low_zeros: 6,
        planes: &[plane(&[Y], 0, 0), plane(&[U, V], 1, 1)],
    };
    /// Packed YUYV, two pixels in four bytes.
    Yuyv422 = layout("yuyv422", 8, &[plane(&[Y, U, Y, V], 1, 0)]);
    /// Packed UYVY, two pixels in four bytes.
    Uyvy422 = layout("uyvy422", 8, &[plane(&[U, Y, V, Y], 1, 0)]);
    /// A sensor's Bayer mosaic, first row blue, green.
    BayerBggr8 = layout("bayer_bggr8", 8, &[plane(&[Y], 0, 0)]);
    /// A sensor's Bayer mosaic, first row red, green.
    BayerRggb8 = layout("bayer_rggb8", 8, &[plane(&[Y], 0, 0)]);
    /// A sensor's Bayer mosaic, first row green, blue.
    BayerGbrg8 = layout("bayer_gbrg8", 8, &[plane(&[Y], 0, 0)]);
    /// A sensor's Bayer mosaic, first row green, red.
    BayerGrbg8 = layout("bayer_grbg8", 8, &[plane(&[Y], 0, 0)]);
}

impl PixelFormat {
    /// The name that ffmpeg's `-pix_fmt` has for it.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    /// The format of a name. Besides ffmpeg's names `gray8` is understood, and the `yuvj`
    /// names, whose bytes are laid out as those of `yuv` (only their range of values differs).
    pub fn from_name(name: &str) -> Option<Self> {
        let name = match name {
            "gray8" | "y8" => "gray",
            "yuvj411p" => "yuv411p",
            "yuvj420p" => "yuv420p",
            "yuvj422p" => "yuv422p",
            "yuvj440p" => "yuv440p",
            "yuvj444p" => "yuv444p",
            other => other,
        };
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The planes, in the order they lie in memory.
    pub fn planes(self) -> &'static [Plane] {
        self.layout().planes
    }

    /// Significant bits of a sample; more than 8 take two bytes, little endian.
    pub fn sample_bits(self) -> u8 {
        self.layout().bits
    }

    /// Zero bits below the significant ones (6 in `p010le`, else 0).
    pub fn sample_low_zeros(self) -> u8 {
        self.layout().low_zeros
    }

    /// Bytes of one sample: 1 or 2.
    pub fn sample_bytes(self) -> usize {
        if self.layout().bits > 8 { 2 } else { 1 }
    }

    /// Bytes of one cell of a plane, 0 for a plane that the format lacks.
    pub fn cell_bytes(self, plane: usize) -> usize {
        self.planes().get(plane).map_or(0, |p| p.channels.len() * self.sample_bytes())
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All names, for error messages.
pub(super) fn known_names() -> String {
    PixelFormat::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
}
