//! Decodes a PNG or JPEG file and converts its samples to a pixel format.
use crate::format::PixelFormat;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A small file can claim to be a huge picture: larger ones are refused before memory is allocated.
const PICTURE_BYTES_MAX: usize = 512 << 20;

/// What pictures are converted to: the format, its channels, and whether samples have 16 bits.
const MADE: [(PixelFormat, usize, bool); 5] = [
    (PixelFormat::Rgb24, 3, false),
    (PixelFormat::Gray8, 1, false),
    (PixelFormat::Gray16Le, 1, true),
    (PixelFormat::Rgba, 4, false),
    (PixelFormat::Rgb48Le, 3, true),
];

/// A decoded picture, its samples as the file stores them.
pub(super) struct Picture {
    pub(super) size: (u32, u32),
    /// 1 is grey, 2 grey and alpha, 3 RGB, 4 RGBA.
    channels: usize,
    /// Samples are 16 bits, big-endian, instead of 8.
    deep: bool,
    data: Vec<u8>,
}

impl Picture {
    /// Decodes the file by its content, not its name. The error says what is wrong with it.
    pub(super) fn decode(path: &Path) -> Result<Self, String> {
        let mut file = BufReader::new(File::open(path).map_err(text)?);
        match file.fill_buf().map_err(text)? {
            [0x89, b'P', b'N', b'G', ..] => decode_png(file),
            [0xff, 0xd8, 0xff, ..] => decode_jpeg(file),
            _ => Err("the file is neither PNG nor JPEG".to_owned()),
        }
    }

    /// Returns whether [`Picture::into_pixels`] supports this format.
    pub(super) fn can_become(pixel: PixelFormat) -> bool {
        MADE.iter().any(|(made, ..)| *made == pixel)
    }

    /// Converts the pixels to a format that it [can become](Picture::can_become). Drops alpha where
    /// the format has none; grey is the luminance of Rec. 709.
    pub(super) fn into_pixels(self, pixel: PixelFormat) -> Vec<u8> {
        let made = MADE.iter().find(|(made, ..)| *made == pixel);
        let &(_, channels, deep) = made.expect("opening refuses all other formats");
        if (self.channels, self.deep, deep) == (channels, false, false) {
            return self.data;
        }
        let stride = self.channels << usize::from(self.deep);
        let mut out =
            Vec::with_capacity(self.data.len() / stride * (channels << usize::from(deep)));
        for stored in self.data.chunks_exact(stride) {
            let rgba = self.rgba16(stored);
            let grey = [luminance(rgba)];
            for &sample in if channels == 1 { &grey[..] } else { &rgba[..channels] } {
                match deep {
                    true => out.extend(sample.to_le_bytes()),
                    false => out.push(((u32::from(sample) + 128) / 257) as u8),
                }
            }
        }
        out
    }

    fn rgba16(&self, stored: &[u8]) -> [u16; 4] {
        let sample = |channel: usize| match self.deep {
            true => u16::from_be_bytes([stored[2 * channel], stored[2 * channel + 1]]),
            false => u16::from(stored[channel]) * 257,
        };
        let alpha =
            if self.channels.is_multiple_of(2) { sample(self.channels - 1) } else { u16::MAX };
        match self.channels {
            1 | 2 => [sample(0), sample(0), sample(0), alpha],
            _ => [sample(0), sample(1), sample(2), alpha],
        }
    }
}

fn luminance([red, green, blue, _]: [u16; 4]) -> u16 {
    let sum = 2_126 * u32::from(red) + 7_152 * u32::from(green) + 722 * u32::from(blue);
    ((sum + 5_000) / 10_000) as u16
}

fn decode_png(file: BufReader<File>) -> Result<Picture, String> {
    let mut decoder = png::Decoder::new_with_limits(file, png::Limits { bytes: PICTURE_BYTES_MAX });
    // Palettes and fewer than 8 bits become whole samples, a transparent colour becomes alpha.
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(text)?;
    let size = reader.info().size();
    let (colour, depth) = reader.output_color_type();
    let (channels, deep) = (colour.samples(), depth == png::BitDepth::Sixteen);
    let mut data = allocate(size, channels << usize::from(deep))?;
    reader.next_frame(&mut data).map_err(text)?;
    Ok(Picture { size, channels, deep, data })
}

fn decode_jpeg(mut file: BufReader<File>) -> Result<Picture, String> {
    let mut stored = Vec::new();
    file.read_to_end(&mut stored).map_err(text)?;
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&stored), options);
    decoder.decode_headers().map_err(text)?;
    let info = decoder.info().ok_or("the file has no JPEG header")?;
    let grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let (space, channels) = if grey { (ColorSpace::Luma, 1) } else { (ColorSpace::RGB, 3) };
    decoder.set_options(options.jpeg_set_out_colorspace(space));
    let size = (u32::from(info.width), u32::from(info.height));
    let mut data = allocate(size, channels)?;
    decoder.decode_into(&mut data).map_err(text)?;
    Ok(Picture { size, channels, deep: false, data })
}

fn allocate((width, height): (u32, u32), pixel_bytes: usize) -> Result<Vec<u8>, String> {
    let bytes = width as u128 * height as u128 * pixel_bytes as u128;
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= PICTURE_BYTES_MAX => Ok(vec![0; bytes]),
        _ => Err(format!(
            "its {width}x{height} pixels take {bytes} bytes, more than {PICTURE_BYTES_MAX}"
        )),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
