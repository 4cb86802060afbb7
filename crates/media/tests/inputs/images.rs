//! Directories of pictures: order, pixels, and which file is wrong.
use std::fs;
use std::path::Path;

use crate::common::{assert_same_bytes, ffmpeg_is_here, make, open_path, read_all, reference};
use catchment_media::input::{InputError, InputOptions};
use image::{GrayImage, ImageBuffer, Luma, Rgb, RgbImage};

fn picture(seed: u8) -> RgbImage {
    RgbImage::from_fn(21, 13, |x, y| Rgb([x as u8 * 11, y as u8 * 17, seed]))
}

fn all(dir: &Path, options: &InputOptions) -> Result<Vec<u8>, InputError> {
    read_all(&mut *open_path(dir, options)?)
}

#[test]
fn png_pixels_in_natural_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = Vec::new();
    for number in [1u8, 2, 9, 10, 11, 100] {
        picture(number).save(dir.path().join(format!("f{number}.PNG"))).unwrap();
        wanted.extend_from_slice(picture(number).as_raw());
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
    GrayImage::from_fn(4, 3, |x, y| Luma([(x * 50 + y) as u8]))
        .save(dir.path().join("0.png"))
        .unwrap();
    let deep: ImageBuffer<Luma<u16>, Vec<u16>> =
        ImageBuffer::from_fn(4, 3, |x, y| Luma([(x * 20_000 + y) as u16]));
    deep.save(dir.path().join("1.png")).unwrap();
    let options = InputOptions { format: "gray16le".parse().unwrap(), ..InputOptions::default() };
    let sixteen = all(dir.path(), &options).unwrap();
    let deep: Vec<u8> = deep.as_raw().iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_same_bytes(&sixteen[24..], &deep, "16 bits");
    let rgb = all(dir.path(), &InputOptions::default()).unwrap();
    assert_eq!(rgb.len(), 2 * 4 * 3 * 3);
    assert_eq!(rgb[3..6], [50, 50, 50]);
}

#[test]
fn png_pixels_are_those_of_ffmpeg_and_jpeg_is_close() {
    if !ffmpeg_is_here("png_pixels_are_those_of_ffmpeg_and_jpeg_is_close") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
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

    picture(0).save(dir.path().join("0.png")).unwrap();
    RgbImage::new(22, 13).save(dir.path().join("1.png")).unwrap();
    let message = all(dir.path(), &InputOptions::default()).unwrap_err().to_string();
    for part in ["1.png", "22x13", "0.png", "21x13"] {
        assert!(message.contains(part), "{message} lacks {part}");
    }

    let whole = fs::read(dir.path().join("0.png")).unwrap();
    fs::write(dir.path().join("1.png"), &whole[..whole.len() / 2]).unwrap();
    let error = all(dir.path(), &InputOptions::default()).unwrap_err();
    assert!(matches!(&error, InputError::Image { path, .. } if path.ends_with("1.png")), "{error}");

    for (asked, part) in [("640x480", "leave the size out"), ("nv12", "ask for rgb24")] {
        let options = InputOptions { format: asked.parse().unwrap(), ..InputOptions::default() };
        let error = all(dir.path(), &options).unwrap_err();
        assert!(error.to_string().contains(part) && error.to_string().contains(asked), "{error}");
    }
}
