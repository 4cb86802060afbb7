//! From a frame to a small picture: which pixels to read, and their colours.
//!
//! Each pixel of the picture is the mean of at most 2x2 pixels of the frame, so that a large frame
//! costs no more than a small one, apart from the rows that have to be read.
use super::{HEIGHT_MAX, Picture, PixelSource, WIDTH_MAX};
use catchment_media::format::{Channel, FrameFormat, PixelFormat, Plane};

type Rgb = [u8; 3];

/// Makes a picture of at most 320x240 of a frame in `format`, in its proportions, never enlarged.
/// `source` must hold [`FrameFormat::frame_bytes`] bytes.
pub fn picture_of(format: &FrameFormat, source: &(impl PixelSource + ?Sized)) -> Picture {
    let (width, height) = fit(format.width(), format.height());
    let columns = taps(width, format.width());
    let rows = taps(height, format.height());
    let mut reader = RowReader::new(format, &columns, columns.len() / width as usize);
    let mut rgb = Vec::with_capacity(width as usize * height as usize * 3);
    for rows in rows.chunks(rows.len() / height as usize) {
        for &row in rows {
            reader.add_row(row, source);
        }
        reader.take_line(rows.len(), &mut rgb);
    }
    Picture::new(width, height, rgb)
}

/// Returns the size of the picture: as large as allowed in the proportions of the frame.
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

/// Computes where to read in a frame of `from` pixels for a picture of `to`: one place per pixel,
/// or two at a quarter and three quarters of it when the picture is at most half as large.
fn taps(to: u32, from: u32) -> Vec<u32> {
    let per_pixel = if from >= 2 * to { 2 } else { 1 };
    let parts = u64::from(to) * per_pixel * 2;
    (0..u64::from(to) * per_pixel).map(|i| ((2 * i + 1) * u64::from(from) / parts) as u32).collect()
}

/// Where the samples of one channel lie.
struct Samples {
    plane: usize,
    /// A cell of the plane is `1 << x_shift` pixels wide and this many bytes long.
    x_shift: u8,
    cell_bytes: usize,
    /// Where in the cell; several for the two Y of a YUYV cell, one for each pixel.
    places: Vec<usize>,
}

impl Samples {
    fn of(pixel: PixelFormat, channel: Channel) -> Option<Self> {
        let places = |plane: &Plane| -> Vec<usize> {
            let here =
                |(i, c): (usize, &Channel)| (*c == channel).then_some(i * pixel.sample_bytes());
            plane.channels.iter().enumerate().filter_map(here).collect()
        };
        let of_plane = |(i, plane): (usize, &Plane)| Self {
            plane: i,
            x_shift: plane.x_shift,
            cell_bytes: pixel.cell_bytes(i),
            places: places(plane),
        };
        pixel.planes().iter().enumerate().map(of_plane).find(|samples| !samples.places.is_empty())
    }

    /// Returns the offset in the plane's row of the sample for pixel `x`.
    fn offset(&self, x: usize) -> usize {
        (x >> self.x_shift) * self.cell_bytes + self.places[x % self.places.len()]
    }
}

/// Meaning of the channels of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colours {
    Rgb,
    Yuv,
    Grey,
}

/// Returns the channels that make a format's colours: three, or one for grey. A format without
/// colours, a Bayer mosaic too, is shown in grey.
fn channels_of(pixel: PixelFormat) -> (Colours, Vec<Samples>) {
    let all = |channels: &[Channel]| -> Option<Vec<Samples>> {
        channels.iter().map(|&channel| Samples::of(pixel, channel)).collect()
    };
    if let Some(rgb) = all(&[Channel::R, Channel::G, Channel::B]) {
        (Colours::Rgb, rgb)
    } else if let Some(yuv) = all(&[Channel::Y, Channel::U, Channel::V]) {
        (Colours::Yuv, yuv)
    } else {
        (Colours::Grey, all(&[Channel::Y]).unwrap_or_default())
    }
}

/// One channel of the line of the picture that is being made.
struct LineChannel {
    plane: usize,
    /// Where in a row of the plane the sample of each column lies.
    offsets: Vec<usize>,
    /// Sum of the samples of each pixel of the picture.
    sums: Vec<u16>,
}

/// Reads the needed rows of a frame and adds up what falls into one pixel of the picture.
struct RowReader {
    format: FrameFormat,
    colours: Colours,
    channels: Vec<LineChannel>,
    /// Where each plane begins in the frame, and the row of it that was read last.
    planes: Vec<(usize, Vec<u8>)>,
    /// Columns of the frame to one pixel of the picture.
    column_taps: usize,
}

impl RowReader {
    fn new(format: &FrameFormat, columns: &[u32], column_taps: usize) -> Self {
        let pixel = format.pixel();
        let (colours, samples) = channels_of(pixel);
        let channel = |samples: &Samples| LineChannel {
            plane: samples.plane,
            offsets: columns.iter().map(|&x| samples.offset(x as usize)).collect(),
            sums: vec![0; columns.len() / column_taps],
        };
        let bytes = |plane: usize| format.row_bytes(plane) * format.rows(plane);
        let begin = |plane: usize| (0..plane).map(bytes).sum();
        Self {
            format: *format,
            colours,
            channels: samples.iter().map(channel).collect(),
            planes: (0..pixel.planes().len()).map(|i| (begin(i), Vec::new())).collect(),
            column_taps,
        }
    }

    /// Adds row `row` of the frame to the line.
    fn add_row(&mut self, row: u32, source: &(impl PixelSource + ?Sized)) {
        let pixel = self.format.pixel();
        for (plane, (begin, bytes)) in self.planes.iter_mut().enumerate() {
            if self.channels.iter().any(|channel| channel.plane == plane) {
                let row = (row >> pixel.planes()[plane].y_shift) as usize;
                bytes.resize(self.format.row_bytes(plane), 0);
                source.read(*begin + row * bytes.len(), bytes);
            }
        }
        let shift = pixel.sample_low_zeros() + pixel.sample_bits() - 8;
        for channel in &mut self.channels {
            let bytes = &self.planes[channel.plane].1;
            match pixel.sample_bytes() {
                1 => channel.add(self.column_taps, |at| bytes[at]),
                _ => channel.add(self.column_taps, |at| upper_8([bytes[at], bytes[at + 1]], shift)),
            }
        }
    }

    /// Appends the line, the mean of `rows` rows, to the picture and begins the next one.
    fn take_line(&mut self, rows: usize, rgb: &mut Vec<u8>) {
        let count = (rows * self.column_taps) as u16;
        for x in 0..self.channels.first().map_or(0, |channel| channel.sums.len()) {
            let mut values = [0; 3];
            for (value, channel) in values.iter_mut().zip(&mut self.channels) {
                *value = ((std::mem::take(&mut channel.sums[x]) + count / 2) / count) as u8;
            }
            rgb.extend(match self.colours {
                Colours::Rgb => values,
                Colours::Yuv => rgb_of_yuv(values),
                Colours::Grey => [values[0]; 3],
            });
        }
    }
}

impl LineChannel {
    fn add(&mut self, taps: usize, value: impl Fn(usize) -> u8) {
        for (sum, offsets) in self.sums.iter_mut().zip(self.offsets.chunks(taps)) {
            *sum += offsets.iter().map(|&at| u16::from(value(at))).sum::<u16>();
        }
    }
}

/// Returns the upper 8 bits of a sample of two bytes. Bits above the significant ones should be zero,
/// but the bytes are untrusted.
fn upper_8(bytes: [u8; 2], shift: u8) -> u8 {
    (u16::from_le_bytes(bytes) >> shift).min(255) as u8
}

/// Converts by BT.601, limited range: Y of 16 to 235, U and V of 16 to 240 around 128.
fn rgb_of_yuv([y, u, v]: [u8; 3]) -> Rgb {
    let (y, u, v) = (298 * (i32::from(y) - 16), i32::from(u) - 128, i32::from(v) - 128);
    let channel = |sum: i32| ((sum + 128) >> 8).clamp(0, 255) as u8;
    [channel(y + 409 * v), channel(y - 100 * u - 208 * v), channel(y + 516 * u)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(format: &str, frame: &[u8]) -> Picture {
        let format: FrameFormat = format.parse().unwrap();
        assert_eq!(frame.len(), format.frame_bytes(), "test frame of {format:?}");
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
        assert_eq!(picture("2x1:rgba", &[255, 0, 0, 9, 0, 0, 255, 200]).rgb(), want);
        assert_eq!(picture("2x1:gray8", &[7, 250]).rgb(), [7, 7, 7, 250, 250, 250]);
        assert_eq!(picture("2x1:gray16le", &[255, 1, 0, 128]).rgb(), [1, 1, 1, 128, 128, 128]);
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
            near(picture("2x2:yuv422p", &[y, y, y, y, u, u, v, v]).rgb(), &want);
            near(picture("2x2:yuv444p", &[y, y, y, y, u, u, u, u, v, v, v, v]).rgb(), &want);
            near(picture("2x2:yuyv422", &[y, u, y, v, y, u, y, v]).rgb(), &want);
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
        near(picture("3x3:yuv420p", &[y.clone(), rows(&u, 2), rows(&v, 2)].concat()).rgb(), &want);
        near(picture("3x3:yuv422p", &[y.clone(), rows(&u, 3), rows(&v, 3)].concat()).rgb(), &want);
        near(picture("3x3:nv12", &[y, rows(&[u[0], v[0], u[1], v[1]], 2)].concat()).rgb(), &want);
        let yuyv = [r[0], r[1], r[0], r[2], b[0], b[1], 0, b[2]];
        near(picture("3x3:yuyv422", &rows(&yuyv, 3)).rgb(), &want);
    }

    #[test]
    fn other_orders_and_depths_of_the_same_colours() {
        let ([y, u, v], red) = COLOURS[0];
        let want = [red; 4].concat();
        near(picture("2x2:nv21", &[y, y, y, y, v, u]).rgb(), &want);
        near(picture("2x2:uyvy422", &[u, y, v, y].repeat(2)).rgb(), &want);
        near(picture("2x2:yuva444p", &[[y; 4], [u; 4], [v; 4], [9; 4]].concat()).rgb(), &want);
        let wide = |value: u8, shift: u32| (u16::from(value) << shift).to_le_bytes();
        let all = |shift: u32| [y, y, y, y, u, v].map(|value| wide(value, shift)).concat();
        near(picture("2x2:yuv420p10le", &all(2)).rgb(), &want);
        near(picture("2x2:yuv420p12le", &all(4)).rgb(), &want);
        near(picture("2x2:p010le", &all(8)).rgb(), &want);
        near(picture("1x1:bgra", &[0, 0, 255, 7]).rgb(), &red);
        near(picture("1x1:0rgb", &[7, 255, 0, 0]).rgb(), &red);
        near(picture("1x1:gbrp", &[0, 0, 255]).rgb(), &red);
        near(picture("1x1:rgb48le", &[0, 255, 0, 0, 0, 0]).rgb(), &red);
        near(picture("1x1:gray10le", &[0x00, 0x02]).rgb(), &[128; 3]);
        near(picture("1x1:gray10le", &[0xff, 0xff]).rgb(), &[255; 3]);
    }

    #[test]
    fn every_format_is_shown_and_read_within_its_bounds() {
        for &pixel in PixelFormat::ALL {
            assert!(!channels_of(pixel).1.is_empty(), "{pixel}");
            for (width, height) in [(1, 1), (3, 3), (5, 2), (641, 483)] {
                let format = FrameFormat::new(width, height, pixel).unwrap();
                // A read beyond the end panics.
                let frame = vec![255; format.frame_bytes()];
                let picture = picture_of(&format, &frame[..]);
                let pixels = picture.width() * picture.height();
                assert_eq!(picture.rgb().len(), pixels as usize * 3, "{format}");
            }
        }
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
            [&[255, 0, 0][..], &[0, 255, 0], &[0, 0, 255], &[255, 255, 255]]
        );
        assert_eq!([at(159, 89), at(160, 90)], [&[255, 0, 0][..], &[255, 255, 255]]);
    }
}
