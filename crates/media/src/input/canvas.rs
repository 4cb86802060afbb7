//! A raw frame of any pixel format to draw rectangles on.
use crate::format::{Channel, FrameFormat};

/// Rectangles whose corners are multiples of this never share a chroma sample.
pub(super) const ALIGN: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Colour {
    pub(super) r: u8,
    pub(super) g: u8,
    pub(super) b: u8,
}

impl Colour {
    /// Returns a bright colour whose hue is far from those of neighbouring numbers: steps of the
    /// golden ratio around the colour circle.
    pub(super) fn of_number(number: u32) -> Self {
        const GOLDEN_RATIO_OF_2_16: u32 = 40_503;
        let hue = number.wrapping_mul(GOLDEN_RATIO_OF_2_16) & 0xffff;
        let (sextant, rest) = ((hue * 6) >> 16, ((hue * 6) & 0xffff) >> 8);
        let (up, down) = (rest as u8, 255 - rest as u8);
        let (r, g, b) = match sextant {
            0 => (255, up, 0),
            1 => (down, 255, 0),
            2 => (0, 255, up),
            3 => (0, down, 255),
            4 => (up, 0, 255),
            _ => (255, 0, down),
        };
        Self { r, g, b }
    }

    /// Returns this colour at `part` of 256 of its brightness.
    pub(super) fn dimmed(self, part: u16) -> Self {
        let dim = |v: u8| ((u16::from(v) * part.min(256)) >> 8) as u8;
        Self { r: dim(self.r), g: dim(self.g), b: dim(self.b) }
    }

    pub(super) fn inverse(self) -> Self {
        Self { r: 255 - self.r, g: 255 - self.g, b: 255 - self.b }
    }

    /// Returns the 8-bit value of a channel; YUV by BT.601, limited range, in integers.
    fn channel(self, channel: Channel) -> u8 {
        let (r, g, b) = (i32::from(self.r), i32::from(self.g), i32::from(self.b));
        let value = match channel {
            Channel::Y => ((66 * r + 129 * g + 25 * b + 128) >> 8) + 16,
            Channel::U => ((-38 * r - 74 * g + 112 * b + 128) >> 8) + 128,
            Channel::V => ((112 * r - 94 * g - 18 * b + 128) >> 8) + 128,
            Channel::R => r,
            Channel::G => g,
            Channel::B => b,
            Channel::A => 255,
            Channel::X => 0,
        };
        value.clamp(0, 255) as u8
    }
}

/// A rectangle in pixels, clipped to the canvas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rect {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The bytes of one cell of each plane in one colour.
#[derive(Debug, Clone)]
pub(super) struct Paint {
    cells: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct PlaneAt {
    offset: usize,
    row_bytes: usize,
    rows: usize,
    cell_bytes: usize,
    x_shift: u8,
    y_shift: u8,
}

impl PlaneAt {
    /// Returns the rows of the plane that hold the pixel rows `from..to`.
    fn rows(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        let end = to.div_ceil(1 << self.y_shift).min(self.rows);
        (from >> self.y_shift).min(end)..end
    }

    /// Returns the bytes within a row that hold the pixel columns `from..to`.
    fn columns(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        let end = (to.div_ceil(1 << self.x_shift) * self.cell_bytes).min(self.row_bytes);
        ((from >> self.x_shift) * self.cell_bytes).min(end)..end
    }
}

#[derive(Debug)]
pub(super) struct Canvas {
    format: FrameFormat,
    planes: Vec<PlaneAt>,
    data: Vec<u8>,
}

impl Canvas {
    pub(super) fn new(format: FrameFormat) -> Self {
        let mut offset = 0;
        let mut planes = Vec::new();
        for (index, plane) in format.pixel().planes().iter().enumerate() {
            let (row_bytes, rows) = (format.row_bytes(index), format.rows(index));
            let cell_bytes = format.pixel().cell_bytes(index);
            let (x_shift, y_shift) = (plane.x_shift, plane.y_shift);
            planes.push(PlaneAt { offset, row_bytes, rows, cell_bytes, x_shift, y_shift });
            offset += row_bytes * rows;
        }
        Self { format, planes, data: vec![0; offset] }
    }

    pub(super) fn format(&self) -> &FrameFormat {
        &self.format
    }

    pub(super) fn width(&self) -> usize {
        self.format.width() as usize
    }

    pub(super) fn height(&self) -> usize {
        self.format.height() as usize
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn paint(&self, colour: Colour) -> Paint {
        let pixel = self.format.pixel();
        let shift = pixel.sample_bits() - 8 + pixel.sample_low_zeros();
        let sample = |channel: &Channel| {
            let value = u16::from(colour.channel(*channel)) << shift;
            value.to_le_bytes().into_iter().take(pixel.sample_bytes())
        };
        let cells =
            pixel.planes().iter().map(|plane| plane.channels.iter().flat_map(sample).collect());
        Paint { cells: cells.collect() }
    }

    pub(super) fn fill(&mut self, rect: Rect, paint: &Paint) {
        for (plane, cell) in self.planes.iter().zip(&paint.cells) {
            let columns = plane.columns(
                rect.x,
                rect.x.saturating_add(rect.width).min(self.format.width() as usize),
            );
            let rows = plane.rows(rect.y, rect.y.saturating_add(rect.height));
            let at = |row: usize| plane.offset + row * plane.row_bytes + columns.start;
            let (first, bytes) = (rows.start, columns.len());
            if rows.is_empty() || bytes == 0 {
                continue;
            }
            let start = at(first);
            fill_row(&mut self.data[start..start + bytes], cell);
            for row in rows.skip(1) {
                self.data.copy_within(start..start + bytes, at(row));
            }
        }
    }

    /// Copies the first row of each plane, for [`Canvas::restore`].
    pub(super) fn first_rows(&self) -> Vec<Vec<u8>> {
        self.planes
            .iter()
            .map(|plane| self.data[plane.offset..plane.offset + plane.row_bytes].to_vec())
            .collect()
    }

    /// Writes `template` over the pixel rows `from..to` of every plane.
    pub(super) fn restore(&mut self, from: usize, to: usize, template: &[Vec<u8>]) {
        for (plane, template) in self.planes.iter().zip(template) {
            let rows = plane.rows(from, to);
            let range = plane.offset + rows.start * plane.row_bytes
                ..plane.offset + rows.end * plane.row_bytes;
            for row in self.data[range].chunks_exact_mut(plane.row_bytes) {
                row.copy_from_slice(template);
            }
        }
    }
}

fn fill_row(row: &mut [u8], cell: &[u8]) {
    match cell {
        [byte] => row.fill(*byte),
        _ => row.chunks_exact_mut(cell.len()).for_each(|chunk| chunk.copy_from_slice(cell)),
    }
}
