//! From a frame to a small picture: which pixels to read, and their colours.
//!
//! Each pixel of the picture is the mean of at most 2x2 pixels of the frame, so that a large frame
//! costs no more than a small one, apart from the rows that have to be read.

use super::format::{PictureFormat, Pixels};
use super::{HEIGHT_MAX, Picture, PixelSource, WIDTH_MAX};

type Rgb = [u8; 3];

/// A picture of at most 320x240 of a frame in `format`, in its proportions, never enlarged.
/// `source` must hold [`PictureFormat::frame_bytes`] bytes.
#[must_use]
pub fn picture_of(format: &PictureFormat, source: &(impl PixelSource + ?Sized)) -> Picture {
    let (width, height) = fit(format.width, format.height);
    let columns = taps(width, format.width);
    let rows = taps(height, format.height);
    let (row_taps, column_taps) = (rows.len() / height as usize, columns.len() / width as usize);
    let mut reader = RowReader::new(format, source);
    let mut line = vec![[0; 3]; columns.len()];
    let mut rgb = Vec::with_capacity(width as usize * height as usize * 3);
    for rows_of_pixel in rows.chunks(row_taps) {
        let mut sums = vec![[0u16; 3]; width as usize];
        for &row in rows_of_pixel {
            reader.read_row(row, &columns, &mut line);
            add_line(&mut sums, &line, column_taps);
        }
        let count = (row_taps * column_taps) as u16;
        rgb.extend(
            sums.iter()
                .flatten()
                .map(|sum| ((sum + count / 2) / count) as u8),
        );
    }
    Picture::new(width, height, rgb)
}

/// The size of the picture: as large as allowed in the proportions of the frame.
fn fit(width: u32, height: u32) -> (u32, u32) {
    if width <= WIDTH_MAX && height <= HEIGHT_MAX {
        (width, height)
    } else if u64::from(width) * u64::from(HEIGHT_MAX) >= u64::from(height) * u64::from(WIDTH_MAX) {
        (WIDTH_MAX, scaled(height, WIDTH_MAX, width))
    } else {
        (scaled(width, HEIGHT_MAX, height), HEIGHT_MAX)
    }
}

fn scaled(side: u32, to: u32, from: u32) -> u32 {
    let side = (u64::from(side) * u64::from(to) + u64::from(from) / 2) / u64::from(from);
    (side as u32).max(1)
}

/// Where to read in a frame of `from` pixels for a picture of `to`: one place per pixel, or two at a
/// quarter and three quarters of it when the picture is at most half as large.
fn taps(to: u32, from: u32) -> Vec<u32> {
    let per_pixel = if from >= 2 * to { 2 } else { 1 };
    let parts = u64::from(to) * per_pixel * 2;
    (0..u64::from(to) * per_pixel)
        .map(|i| ((2 * i + 1) * u64::from(from) / parts) as u32)
        .collect()
}

fn add_line(sums: &mut [[u16; 3]], line: &[Rgb], taps: usize) {
    for (sum, pixels) in sums.iter_mut().zip(line.chunks(taps)) {
        for pixel in pixels {
            for (sum, &channel) in sum.iter_mut().zip(pixel) {
                *sum += u16::from(channel);
            }
        }
    }
}

/// Reads rows of a frame into reused buffers, and knows the colours of its pixels.
struct RowReader<'a, S: ?Sized> {
    pixels: Pixels,
    width: usize,
    height: usize,
    source: &'a S,
    luma: Vec<u8>,
    u: Vec<u8>,
    v: Vec<u8>,
}

impl<'a, S: PixelSource + ?Sized> RowReader<'a, S> {
    fn new(format: &PictureFormat, source: &'a S) -> Self {
        let (luma, u, v) = (Vec::new(), Vec::new(), Vec::new());
        let (width, height) = (format.width as usize, format.height as usize);
        Self {
            pixels: format.pixels,
            width,
            height,
            source,
            luma,
            u,
            v,
        }
    }

    /// The colours of row `row` at `columns`.
    fn read_row(&mut self, row: u32, columns: &[u32], out: &mut [Rgb]) {
        let y = row as usize;
        let (w, half_w) = (self.width, self.width.div_ceil(2));
        match self.pixels {
            Pixels::Rgb24 => self.packed(y, 3, columns, out, |p| [p[0], p[1], p[2]]),
            Pixels::Bgr24 => self.packed(y, 3, columns, out, |p| [p[2], p[1], p[0]]),
            Pixels::Rgba => self.packed(y, 4, columns, out, |p| [p[0], p[1], p[2]]),
            Pixels::Gray8 => self.packed(y, 1, columns, out, |p| [p[0]; 3]),
            Pixels::Gray16Le => self.packed(y, 2, columns, out, |p| [p[1]; 3]),
            Pixels::Yuv444p => self.planar(y, y, w, self.height, columns, out),
            Pixels::Yuv422p => self.planar(y, y, half_w, self.height, columns, out),
            Pixels::Yuv420p => {
                self.planar(y, y / 2, half_w, self.height.div_ceil(2), columns, out);
            }
            Pixels::Nv12 => self.nv12(y, half_w, columns, out),
            Pixels::Yuyv422 => self.yuyv(y, half_w, columns, out),
        }
    }

    fn packed(
        &mut self,
        y: usize,
        bytes: usize,
        columns: &[u32],
        out: &mut [Rgb],
        colour: impl Fn(&[u8]) -> Rgb,
    ) {
        let stride = self.width * bytes;
        fetch(self.source, y * stride, stride, &mut self.luma);
        for (out, &x) in out.iter_mut().zip(columns) {
            *out = colour(&self.luma[x as usize * bytes..][..bytes]);
        }
    }

    /// U and V planes of `chroma_w` x `chroma_h` follow the Y plane.
    fn planar(
        &mut self,
        y: usize,
        chroma_y: usize,
        chroma_w: usize,
        chroma_h: usize,
        columns: &[u32],
        out: &mut [Rgb],
    ) {
        let u_plane = self.width * self.height;
        let v_plane = u_plane + chroma_w * chroma_h;
        fetch(self.source, y * self.width, self.width, &mut self.luma);
        fetch(
            self.source,
            u_plane + chroma_y * chroma_w,
            chroma_w,
            &mut self.u,
        );
        fetch(
            self.source,
            v_plane + chroma_y * chroma_w,
            chroma_w,
            &mut self.v,
        );
        let step = if chroma_w == self.width { 1 } else { 2 };
        for (out, &x) in out.iter_mut().zip(columns) {
            let x = x as usize;
            *out = rgb_of_yuv(self.luma[x], self.u[x / step], self.v[x / step]);
        }
    }

    fn nv12(&mut self, y: usize, half_w: usize, columns: &[u32], out: &mut [Rgb]) {
        let chroma = self.width * self.height + y / 2 * half_w * 2;
        fetch(self.source, y * self.width, self.width, &mut self.luma);
        fetch(self.source, chroma, half_w * 2, &mut self.u);
        for (out, &x) in out.iter_mut().zip(columns) {
            let pair = x as usize / 2 * 2;
            *out = rgb_of_yuv(self.luma[x as usize], self.u[pair], self.u[pair + 1]);
        }
    }

    fn yuyv(&mut self, y: usize, half_w: usize, columns: &[u32], out: &mut [Rgb]) {
        fetch(self.source, y * half_w * 4, half_w * 4, &mut self.luma);
        for (out, &x) in out.iter_mut().zip(columns) {
            let x = x as usize;
            let pair = &self.luma[x / 2 * 4..][..4];
            *out = rgb_of_yuv(pair[x % 2 * 2], pair[1], pair[3]);
        }
    }
}

fn fetch(source: &(impl PixelSource + ?Sized), offset: usize, bytes: usize, into: &mut Vec<u8>) {
    into.resize(bytes, 0);
    source.read(offset, into);
}

/// BT.601, limited range: Y of 16 to 235, U and V of 16 to 240 around 128.
fn rgb_of_yuv(y: u8, u: u8, v: u8) -> Rgb {
    let (y, u, v) = (
        298 * (i32::from(y) - 16),
        i32::from(u) - 128,
        i32::from(v) - 128,
    );
    let channel = |sum: i32| ((sum + 128) >> 8).clamp(0, 255) as u8;
    [
        channel(y + 409 * v),
        channel(y - 100 * u - 208 * v),
        channel(y + 516 * u),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(format: &str, frame: &[u8]) -> Picture {
        let format = PictureFormat::parse(format).unwrap();
        assert_eq!(
            frame.len(),
            format.frame_bytes(),
            "test frame of {format:?}"
        );
        picture_of(&format, frame)
    }

    fn near(got: &[u8], want: &[u8]) {
        let close =
            got.len() == want.len() && got.iter().zip(want).all(|(a, b)| a.abs_diff(*b) <= 1);
        assert!(close, "got {got:?}, want {want:?}");
    }

    const RED: Rgb = [255, 0, 0];
    const BLUE: Rgb = [0, 0, 255];

    #[test]
    fn packed_formats_keep_every_pixel() {
        let want = [RED, BLUE].concat();
        assert_eq!(picture("2x1:rgb24", &want).rgb(), want);
        assert_eq!(picture("2x1:bgr24", &[0, 0, 255, 255, 0, 0]).rgb(), want);
        assert_eq!(
            picture("2x1:rgba", &[255, 0, 0, 9, 0, 0, 255, 200]).rgb(),
            want
        );
        assert_eq!(
            picture("2x1:gray8", &[7, 250]).rgb(),
            [7, 7, 7, 250, 250, 250]
        );
        assert_eq!(
            picture("2x1:gray16le", &[255, 1, 0, 128]).rgb(),
            [1, 1, 1, 128, 128, 128]
        );
    }

    /// Y, U, V of the saturated colours in ITU-R BT.601 limited range.
    const COLOURS: [([u8; 3], Rgb); 6] = [
        ([81, 90, 240], RED),
        ([145, 54, 34], [0, 255, 0]),
        ([41, 240, 110], BLUE),
        ([235, 128, 128], [255, 255, 255]),
        ([16, 128, 128], [0, 0, 0]),
        ([126, 128, 128], [128, 128, 128]),
    ];

    #[test]
    fn yuv_is_bt601_limited_range_in_every_layout() {
        for ([y, u, v], rgb) in COLOURS {
            let want = [rgb; 4].concat();
            near(picture("2x2:yuv420p", &[y, y, y, y, u, v]).rgb(), &want);
            near(picture("2x2:nv12", &[y, y, y, y, u, v]).rgb(), &want);
            near(
                picture("2x2:yuv422p", &[y, y, y, y, u, u, v, v]).rgb(),
                &want,
            );
            near(
                picture("2x2:yuv444p", &[y, y, y, y, u, u, u, u, v, v, v, v]).rgb(),
                &want,
            );
            near(
                picture("2x2:yuyv422", &[y, u, y, v, y, u, y, v]).rgb(),
                &want,
            );
        }
    }

    #[test]
    fn colour_planes_of_odd_sizes_are_rounded_up() {
        // Left two columns red, the third blue: each colour has its own chroma sample.
        let (r, b) = ([81, 90, 240], [41, 240, 110]);
        let luma = [r[0], r[0], b[0]];
        let want = [RED, RED, BLUE].concat().repeat(3);
        let rows = |row: &[u8], n: usize| row.repeat(n);
        let y = rows(&luma, 3);
        let (u, v) = ([r[1], b[1]], [r[2], b[2]]);
        near(
            picture(
                "3x3:yuv420p",
                &[y.clone(), rows(&u, 2), rows(&v, 2)].concat(),
            )
            .rgb(),
            &want,
        );
        near(
            picture(
                "3x3:yuv422p",
                &[y.clone(), rows(&u, 3), rows(&v, 3)].concat(),
            )
            .rgb(),
            &want,
        );
        near(
            picture(
                "3x3:nv12",
                &[y, rows(&[u[0], v[0], u[1], v[1]], 2)].concat(),
            )
            .rgb(),
            &want,
        );
        let yuyv = [r[0], r[1], r[0], r[2], b[0], b[1], 0, b[2]];
        near(picture("3x3:yuyv422", &rows(&yuyv, 3)).rgb(), &want);
    }

    #[test]
    fn large_frames_shrink_in_proportion_and_small_ones_stay() {
        assert_eq!(fit(640, 480), (320, 240));
        assert_eq!(fit(1920, 1080), (320, 180));
        assert_eq!(fit(1080, 1920), (135, 240));
        assert_eq!(fit(321, 1), (320, 1));
        assert_eq!(fit(65_536, 1), (320, 1));
        assert_eq!(fit(100, 50), (100, 50));
    }

    #[test]
    fn shrinking_takes_the_mean_of_four() {
        let (w, h) = (640, 480);
        let checker = |x: usize, y: usize| if (x + y).is_multiple_of(2) { 200 } else { 100 };
        let frame: Vec<u8> = (0..w * h).map(|i| checker(i % w, i / w)).collect();
        let small = picture("640x480:gray8", &frame);
        assert_eq!((small.width(), small.height()), (320, 240));
        assert!(small.rgb().iter().all(|&v| v == 150));
    }

    #[test]
    fn left_stays_left_and_top_stays_top() {
        let (w, h) = (1920, 1080);
        let colour = |x: usize, y: usize| match (x < w / 2, y < h / 2) {
            (true, true) => [255, 0, 0],
            (false, true) => [0, 255, 0],
            (true, false) => [0, 0, 255],
            (false, false) => [255, 255, 255],
        };
        let frame: Vec<u8> = (0..w * h).flat_map(|i| colour(i % w, i / w)).collect();
        let small = picture("1920x1080:rgb24", &frame);
        let at = |x: usize, y: usize| &small.rgb()[(y * 320 + x) * 3..][..3];
        assert_eq!(
            [at(0, 0), at(319, 0), at(0, 179), at(319, 179)],
            [
                &[255, 0, 0][..],
                &[0, 255, 0],
                &[0, 0, 255],
                &[255, 255, 255]
            ]
        );
        assert_eq!(
            [at(159, 89), at(160, 90)],
            [&[255, 0, 0][..], &[255, 255, 255]]
        );
    }
}
