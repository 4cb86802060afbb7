//! Directories of pictures: order, pixels, and which file is wrong.
use crate::common::{
    assert_same_bytes, dir_for_ffmpeg, make, open_path, read_all, reference, wish,
};
use catchment_media::input::{InputError, InputOptions};
use png::{BitDepth, ColorType};
use std::fs;
use std::path::Path;

/// Writes a PNG of 16 bits a sample if `samples` hold twice the bytes.
fn save_png(path: &Path, (width, height): (u32, u32), colour: ColorType, samples: &[u8]) {
    let mut encoder = png::Encoder::new(fs::File::create(path).unwrap(), width, height);
    encoder.set_color(colour);
    let deep = samples.len() > width as usize * height as usize * colour.samples();
    encoder.set_depth(if deep { BitDepth::Sixteen } else { BitDepth::Eight });
    encoder.write_header().unwrap().write_image_data(samples).unwrap();
}

fn picture(seed: u8) -> Vec<u8> {
    let pixel = |x: u8, y: u8| [x * 11, y * 17, seed];
    (0..13).flat_map(|y| (0..21).flat_map(move |x| pixel(x, y))).collect()
}

fn all(dir: &Path, options: &InputOptions) -> Result<Vec<u8>, InputError> {
    read_all(&mut *open_path(dir, options)?)
}

#[test]
fn png_pixels_in_natural_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = Vec::new();
    for number in [1u8, 2, 9, 10, 11, 100] {
        let path = dir.path().join(format!("f{number}.PNG"));
        save_png(&path, (21, 13), ColorType::Rgb, &picture(number));
        wanted.extend(picture(number));
    }
    fs::write(dir.path().join("readme.txt"), "left out").unwrap();
    fs::write(dir.path().join(".hidden.png"), "left out").unwrap();
    fs::create_dir(dir.path().join("sub.png")).unwrap();
    assert_same_bytes(&all(dir.path(), &InputOptions::default()).unwrap(), &wanted, "pictures");
    let input = open_path(dir.path(), &InputOptions::default()).unwrap();
    assert_eq!(input.format().to_string(), "21x13:rgb24");
}

#[test]
fn rgb24_and_gray_as_asked_from_gray_and_16_bit_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let flat: Vec<u8> = (0..12).map(|at| at % 4 * 50 + at / 4).collect();
    save_png(&dir.path().join("0.png"), (4, 3), ColorType::Grayscale, &flat);
    let deep = (0..12).map(|at: u16| at % 4 * 20_000 + at / 4);
    let stored: Vec<u8> = deep.clone().flat_map(u16::to_be_bytes).collect();
    save_png(&dir.path().join("1.png"), (4, 3), ColorType::Grayscale, &stored);
    let sixteen = all(dir.path(), &wish("gray16le")).unwrap();
    let deep: Vec<u8> = deep.flat_map(u16::to_le_bytes).collect();
    assert_same_bytes(&sixteen[24..], &deep, "16 bits");
    let rgb = all(dir.path(), &InputOptions::default()).unwrap();
    assert_eq!(rgb.len(), 2 * 4 * 3 * 3);
    assert_eq!(rgb[3..6], [50, 50, 50]);
}

#[test]
fn every_kind_of_png_becomes_every_format() {
    // (colour, a pixel as it is stored, what becomes of it in 16 bits: red, green, blue, alpha)
    let cases: [(ColorType, &[u8], [u16; 4]); 6] = [
        (ColorType::Grayscale, &[9], [9 * 257, 9 * 257, 9 * 257, 65_535]),
        (ColorType::Grayscale, &[1, 2], [258, 258, 258, 65_535]),
        (ColorType::GrayscaleAlpha, &[9, 7], [9 * 257, 9 * 257, 9 * 257, 7 * 257]),
        (ColorType::Rgb, &[1, 128, 255], [257, 128 * 257, 65_535, 65_535]),
        (ColorType::Rgb, &[1, 0, 2, 0, 255, 255], [256, 512, 65_535, 65_535]),
        (ColorType::Rgba, &[1, 2, 3, 4], [257, 514, 771, 1_028]),
    ];
    for (colour, stored, [red, green, blue, alpha]) in cases {
        let dir = tempfile::tempdir().unwrap();
        save_png(&dir.path().join("0.png"), (1, 1), colour, stored);
        let sum = 0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue);
        let deep = |samples: &[u16]| samples.iter().flat_map(|s| s.to_le_bytes()).collect();
        let flat_one = |sample: &u16| (f64::from(*sample) / 257.0).round() as u8;
        let flat = |samples: &[u16]| samples.iter().map(flat_one).collect();
        let wanted: [(&str, Vec<u8>); 5] = [
            ("rgb24", flat(&[red, green, blue])),
            ("rgba", flat(&[red, green, blue, alpha])),
            ("rgb48le", deep(&[red, green, blue])),
            ("gray", flat(&[sum.round() as u16])),
            ("gray16le", deep(&[sum.round() as u16])),
        ];
        for (format, wanted) in wanted {
            assert_eq!(all(dir.path(), &wish(format)).unwrap(), wanted, "{colour:?} as {format}");
        }
    }
}

#[test]
fn a_palette_becomes_its_colours() {
    let dir = tempfile::tempdir().unwrap();
    let mut encoder = png::Encoder::new(fs::File::create(dir.path().join("0.png")).unwrap(), 2, 1);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Four);
    encoder.set_palette([1, 2, 3, 4, 5, 6].as_slice());
    encoder.set_trns([7].as_slice());
    encoder.write_header().unwrap().write_image_data(&[0x01]).unwrap();
    for (format, wanted) in
        [("rgb24", &[1, 2, 3, 4, 5, 6][..]), ("rgba", &[1, 2, 3, 7, 4, 5, 6, 255])]
    {
        assert_eq!(all(dir.path(), &wish(format)).unwrap(), wanted, "{format}");
    }
}

#[test]
fn a_picture_that_claims_to_be_huge_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.png");
    let mut encoder = png::Encoder::new(fs::File::create(&path).unwrap(), 40_000, 40_000);
    encoder.set_color(ColorType::Rgb);
    encoder.write_header().unwrap().write_chunk(png::chunk::IDAT, &[0x78, 0x01]).unwrap();
    let error = all(dir.path(), &InputOptions::default()).unwrap_err().to_string();
    assert!(error.contains("0.png") && error.contains("40000x40000"), "{error}");
}

#[test]
fn png_pixels_are_those_of_ffmpeg_and_jpeg_is_close() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let (png, jpg) = (dir.path().join("png"), dir.path().join("jpg"));
    fs::create_dir(&png).unwrap();
    fs::create_dir(&jpg).unwrap();
    let one = make(&png, "a.png", "-f lavfi -i testsrc2=s=321x241 -frames:v 1 -pix_fmt rgb24");
    assert_same_bytes(
        &all(&png, &InputOptions::default()).unwrap(),
        &reference(&one, "-pix_fmt rgb24"),
        "png",
    );
    let one = make(
        &jpg,
        "a.jpeg",
        "-f lavfi -i mandelbrot=s=321x241 -frames:v 1 -pix_fmt yuvj444p -q:v 2",
    );
    let (ours, theirs) =
        (all(&jpg, &InputOptions::default()).unwrap(), reference(&one, "-pix_fmt rgb24"));
    assert_eq!(ours.len(), theirs.len());
    // Two JPEG decoders may round differently, but they decode the same picture.
    let sum: u64 = ours.iter().zip(&theirs).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    let mean = sum as f64 / ours.len() as f64;
    assert!(mean < 2.0, "mean difference {mean}");
}

#[test]
fn errors_name_the_file_and_the_sizes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.bmp"), "BM").unwrap();
    let error = all(dir.path(), &InputOptions::default()).unwrap_err();
    assert!(matches!(error, InputError::NoImages { others: 1, .. }), "{error}");

    save_png(&dir.path().join("0.png"), (21, 13), ColorType::Rgb, &picture(0));
    save_png(&dir.path().join("1.png"), (22, 13), ColorType::Rgb, &[0; 22 * 13 * 3]);
    let message = all(dir.path(), &InputOptions::default()).unwrap_err().to_string();
    for part in ["1.png", "22x13", "0.png", "21x13"] {
        assert!(message.contains(part), "{message} lacks {part}");
    }

    let whole = fs::read(dir.path().join("0.png")).unwrap();
    fs::write(dir.path().join("1.png"), &whole[..whole.len() / 2]).unwrap();
    let error = all(dir.path(), &InputOptions::default()).unwrap_err();
    assert!(matches!(&error, InputError::Image { path, .. } if path.ends_with("1.png")), "{error}");

    for (asked, part) in [("640x480", "leave the size out"), ("nv12", "ask for rgb24")] {
        let error = all(dir.path(), &wish(asked)).unwrap_err();
        assert!(error.to_string().contains(part) && error.to_string().contains(asked), "{error}");
    }
}
