//! Pixel formats as data: one row of a table says what each plane holds.
//!
//! Sizes, drawing and previews all read this table, so a new format is one new row. Names are those
//! of ffmpeg's `-pix_fmt`.

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

macro_rules! pixel_formats {
    ($($variant:ident = $name:literal, $bits:literal $(<< $low_zeros:literal)?, $planes:expr;)+) => {
        /// How the pixels of a frame are laid out. Named as by `ffmpeg -pix_fmt`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
        #[display("{}", self.name())]
        #[non_exhaustive]
        pub enum PixelFormat {
            $(#[doc = concat!("`", $name, "`: ", $bits, " bits a sample.")] $variant,)+
        }

        impl PixelFormat {
            /// Every format there is.
            pub const ALL: &'static [PixelFormat] = &[$(PixelFormat::$variant,)+];

            fn layout(self) -> &'static Layout {
                match self {
                    $(PixelFormat::$variant => {
                        const LAYOUT: Layout = Layout {
                            name: $name,
                            bits: $bits,
                            low_zeros: 0 $(+ $low_zeros)?,
                            planes: &$planes,
                        };
                        &LAYOUT
                    })+
                }
            }
        }
    };
}

use Channel::{A, B, G, R, U, V, X, Y};

const ONE: [Plane; 1] = [plane(&[Y], 0, 0)];
const P410: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 2, 2), plane(&[V], 2, 2)];
const P411: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 2, 0), plane(&[V], 2, 0)];
const P420: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 1, 1), plane(&[V], 1, 1)];
const P422: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 1, 0), plane(&[V], 1, 0)];
const P440: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 0, 1), plane(&[V], 0, 1)];
const P444: [Plane; 3] = [plane(&[Y], 0, 0), plane(&[U], 0, 0), plane(&[V], 0, 0)];
const PGBR: [Plane; 3] = [plane(&[G], 0, 0), plane(&[B], 0, 0), plane(&[R], 0, 0)];

pixel_formats! {
    Gray8 = "gray", 8, ONE;
    Gray10Le = "gray10le", 10, ONE;
    Gray12Le = "gray12le", 12, ONE;
    Gray16Le = "gray16le", 16, ONE;
    Ya8 = "ya8", 8, [plane(&[Y, A], 0, 0)];
    Rgb24 = "rgb24", 8, [plane(&[R, G, B], 0, 0)];
    Bgr24 = "bgr24", 8, [plane(&[B, G, R], 0, 0)];
    Rgba = "rgba", 8, [plane(&[R, G, B, A], 0, 0)];
    Bgra = "bgra", 8, [plane(&[B, G, R, A], 0, 0)];
    Argb = "argb", 8, [plane(&[A, R, G, B], 0, 0)];
    Abgr = "abgr", 8, [plane(&[A, B, G, R], 0, 0)];
    Rgb0 = "rgb0", 8, [plane(&[R, G, B, X], 0, 0)];
    Bgr0 = "bgr0", 8, [plane(&[B, G, R, X], 0, 0)];
    Xrgb = "0rgb", 8, [plane(&[X, R, G, B], 0, 0)];
    Xbgr = "0bgr", 8, [plane(&[X, B, G, R], 0, 0)];
    Rgb48Le = "rgb48le", 16, [plane(&[R, G, B], 0, 0)];
    Rgba64Le = "rgba64le", 16, [plane(&[R, G, B, A], 0, 0)];
    Gbrp = "gbrp", 8, PGBR;
    Gbrp10Le = "gbrp10le", 10, PGBR;
    Gbrp12Le = "gbrp12le", 12, PGBR;
    Yuv410p = "yuv410p", 8, P410;
    Yuv411p = "yuv411p", 8, P411;
    Yuv420p = "yuv420p", 8, P420;
    Yuv422p = "yuv422p", 8, P422;
    Yuv440p = "yuv440p", 8, P440;
    Yuv444p = "yuv444p", 8, P444;
    Yuv420p10Le = "yuv420p10le", 10, P420;
    Yuv422p10Le = "yuv422p10le", 10, P422;
    Yuv444p10Le = "yuv444p10le", 10, P444;
    Yuv420p12Le = "yuv420p12le", 12, P420;
    Yuv422p12Le = "yuv422p12le", 12, P422;
    Yuv444p12Le = "yuv444p12le", 12, P444;
    Yuva420p = "yuva420p", 8, [P420[0], P420[1], P420[2], plane(&[A], 0, 0)];
    Yuva422p = "yuva422p", 8, [P422[0], P422[1], P422[2], plane(&[A], 0, 0)];
    Yuva444p = "yuva444p", 8, [P444[0], P444[1], P444[2], plane(&[A], 0, 0)];
    Nv12 = "nv12", 8, [plane(&[Y], 0, 0), plane(&[U, V], 1, 1)];
    Nv21 = "nv21", 8, [plane(&[Y], 0, 0), plane(&[V, U], 1, 1)];
    Nv16 = "nv16", 8, [plane(&[Y], 0, 0), plane(&[U, V], 1, 0)];
    P010Le = "p010le", 10 << 6, [plane(&[Y], 0, 0), plane(&[U, V], 1, 1)];
    Yuyv422 = "yuyv422", 8, [plane(&[Y, U, Y, V], 1, 0)];
    Uyvy422 = "uyvy422", 8, [plane(&[U, Y, V, Y], 1, 0)];
    BayerBggr8 = "bayer_bggr8", 8, ONE;
    BayerRggb8 = "bayer_rggb8", 8, ONE;
    BayerGbrg8 = "bayer_gbrg8", 8, ONE;
    BayerGrbg8 = "bayer_grbg8", 8, ONE;
}

impl PixelFormat {
    /// Returns its name as ffmpeg's `-pix_fmt` spells it.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    /// Returns the format with this name. Besides ffmpeg's names, `gray8` and the `yuvj` names are
    /// accepted; the bytes of the latter are laid out as those of `yuv` (only the range of values
    /// differs).
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

    /// Returns the planes in memory order.
    pub fn planes(self) -> &'static [Plane] {
        self.layout().planes
    }

    /// Returns the significant bits of a sample; more than 8 take two bytes, little endian.
    pub fn sample_bits(self) -> u8 {
        self.layout().bits
    }

    /// Returns the zero bits below the significant ones (6 in `p010le`, else 0).
    pub fn sample_low_zeros(self) -> u8 {
        self.layout().low_zeros
    }

    /// Returns the bytes of one sample: 1 or 2.
    pub fn sample_bytes(self) -> usize {
        if self.layout().bits > 8 { 2 } else { 1 }
    }

    /// Returns the bytes of one cell of a plane, 0 for a plane that the format lacks.
    pub fn cell_bytes(self, plane: usize) -> usize {
        self.planes().get(plane).map_or(0, |p| p.channels.len() * self.sample_bytes())
    }
}

/// Lists all names, for error messages.
pub(super) fn known_names() -> String {
    PixelFormat::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
}
