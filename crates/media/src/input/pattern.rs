//! The synthetic test picture, which people and programs can check.
//!
//! Coloured bands, a bar that moves down, the frame number in large digits, the device's name.
//! Format, device number, device name and frame number determine every byte, so a collector that
//! knows them can draw the frame and compare. Only what moves is redrawn.
use super::canvas::{ALIGN, Canvas, Colour, Paint, Rect};
use super::font::{GLYPH_HEIGHT, GLYPH_WIDTH, glyph};
use crate::format::FrameFormat;

/// Pixels from the edge to the text.
const MARGIN: usize = ALIGN;
const BANDS: usize = 8;
/// Digits of the counter where there is room: 46 days at 25 frames a second.
const DIGITS_MAX: usize = 8;
/// A character's cell in units of the text's scale: the glyph and a gap.
const CELL_WIDTH: usize = GLYPH_WIDTH + 1;
const CELL_HEIGHT: usize = GLYPH_HEIGHT + 1;
/// Rows that the bar moves each frame.
const STEP: usize = ALIGN;

/// Draws the frames of one synthetic device.
///
/// Frames of about 64x48 pixels or more show the counter, with as many low digits of the frame
/// number as fit, at most 8. Smaller frames have only bands and bar.
#[derive(Debug)]
pub struct Pattern {
    canvas: Canvas,
    /// One row of each plane without text and bar.
    background: Vec<Vec<u8>>,
    ink: Paint,
    paper: Paint,
    bar: Paint,
    layout: Layout,
    /// What the canvas shows now.
    digits: Vec<u8>,
    bar_y: usize,
}

/// Layout of the picture, in pixels.
#[derive(Debug)]
struct Layout {
    /// Height of the panel with the text on top; the bar moves below it.
    panel: usize,
    digits: usize,
    scale: usize,
    name_scale: usize,
    bar_height: usize,
    /// Positions of the bar.
    steps: usize,
}

impl Layout {
    fn new(width: usize, height: usize, name_chars: usize) -> Self {
        let room = width.saturating_sub(2 * MARGIN);
        let scale =
            even(room / (CELL_WIDTH * DIGITS_MAX)).min(even(height / 3 / CELL_HEIGHT)).max(2);
        let name_scale = even(room / (CELL_WIDTH * name_chars.max(1))).min(even(scale / 2)).max(2);
        let panel = aligned(2 * MARGIN + CELL_HEIGHT * (scale + name_scale));
        let digits = DIGITS_MAX.min(room / (CELL_WIDTH * scale));
        let (panel, digits) =
            if panel + 2 * ALIGN > height || digits == 0 { (0, 0) } else { (panel, digits) };
        let below = height - panel;
        let bar_height = aligned(below / 16).max(ALIGN);
        Self { panel, digits, scale, name_scale, bar_height, steps: below.div_ceil(STEP) }
    }
}

fn even(value: usize) -> usize {
    value & !1
}

fn aligned(value: usize) -> usize {
    value.next_multiple_of(ALIGN)
}

impl Pattern {
    /// Draws what does not move. `index` selects the colour; `name` is drawn as far as it fits
    /// (capital letters, digits and some signs).
    pub fn new(format: FrameFormat, index: u32, name: &str) -> Self {
        let mut canvas = Canvas::new(format);
        let colour = Colour::of_number(index);
        draw_bands(&mut canvas, colour);
        let background = canvas.first_rows();
        let layout = Layout::new(canvas.width(), canvas.height(), name.chars().count());
        let ink = canvas.paint(Colour { r: 255, g: 255, b: 255 });
        let paper = canvas.paint(colour.dimmed(60));
        let bar = canvas.paint(colour.inverse());
        let digits = vec![b' '; layout.digits];
        let mut pattern = Self { canvas, background, ink, paper, bar, layout, digits, bar_y: 0 };
        pattern.draw_panel(name);
        pattern.draw_bar(0);
        pattern
    }

    /// Returns the format of the frames.
    pub fn format(&self) -> &FrameFormat {
        self.canvas.format()
    }

    /// Draws frame `number`: exactly [`FrameFormat::frame_bytes`] bytes, which do not depend on what
    /// was drawn before. Fastest in ascending order.
    pub fn draw(&mut self, number: u64) -> &[u8] {
        self.move_bar(number);
        self.count(number);
        self.canvas.bytes()
    }

    fn draw_panel(&mut self, name: &str) {
        if self.layout.panel == 0 {
            return;
        }
        let width = self.canvas.width();
        self.canvas.fill(Rect { x: 0, y: 0, width, height: self.layout.panel }, &self.paper);
        let scale = self.layout.name_scale;
        let y = MARGIN + CELL_HEIGHT * self.layout.scale;
        let fit = width.saturating_sub(2 * MARGIN) / (CELL_WIDTH * scale);
        for (index, character) in name.chars().take(fit).enumerate() {
            self.draw_char(character, MARGIN + index * CELL_WIDTH * scale, y, scale);
        }
    }

    fn move_bar(&mut self, number: u64) {
        let step = (number % self.layout.steps as u64) as usize;
        let y = self.layout.panel + step * STEP;
        if y == self.bar_y {
            return;
        }
        self.canvas.restore(self.bar_y, self.bar_y + self.layout.bar_height, &self.background);
        self.draw_bar(step);
    }

    fn draw_bar(&mut self, step: usize) {
        let (width, height) = (self.canvas.width(), self.layout.bar_height);
        self.bar_y = self.layout.panel + step * STEP;
        self.canvas.fill(Rect { x: 0, y: self.bar_y, width, height }, &self.bar);
    }

    fn count(&mut self, number: u64) {
        let mut rest = number;
        for index in (0..self.layout.digits).rev() {
            let digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            if self.digits[index] != digit {
                self.digits[index] = digit;
                let x = MARGIN + index * CELL_WIDTH * self.layout.scale;
                self.draw_char(char::from(digit), x, MARGIN, self.layout.scale);
            }
        }
    }

    fn draw_char(&mut self, character: char, x: usize, y: usize, scale: usize) {
        let cell = Rect { x, y, width: CELL_WIDTH * scale, height: CELL_HEIGHT * scale };
        self.canvas.fill(cell, &self.paper);
        for (row, bits) in glyph(character).into_iter().enumerate() {
            for column in
                (0..GLYPH_WIDTH).filter(|column| bits >> (GLYPH_WIDTH - 1 - column) & 1 == 1)
            {
                let dot =
                    Rect { x: x + column * scale, y: y + row * scale, width: scale, height: scale };
                self.canvas.fill(dot, &self.ink);
            }
        }
    }
}

fn draw_bands(canvas: &mut Canvas, colour: Colour) {
    let (width, height) = (canvas.width(), canvas.height());
    let band = aligned(width.div_ceil(BANDS));
    for index in 0..BANDS {
        let paint = canvas.paint(colour.dimmed(80 + 22 * index as u16));
        canvas.fill(Rect { x: index * band, y: 0, width: band, height }, &paint);
    }
}
