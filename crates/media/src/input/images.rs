//! A directory of pictures, in natural order of their names.
use super::picture::Picture;
use super::{FrameBuffer, FrameInput, FrameRead, InputError};
use crate::format::{FormatWish, FrameFormat, PixelFormat};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::{fs, io};

const EXTENSIONS: &[&str] = &["png", "jpg", "jpeg"];

/// The PNG and JPEG files of a directory, each a frame.
///
/// In natural order of their names (`2.png` before `10.png`), all of one size. The directory is
/// listed once, when it is opened. Pixels are taken as stored: an orientation in a JPEG's metadata
/// is not applied.
#[derive(Debug)]
pub struct ImagesInput {
    files: Vec<PathBuf>,
    format: FrameFormat,
    next: usize,
}

impl ImagesInput {
    /// Opens the pictures of `dir` as `rgb24`, or as `gray`, `gray16le`, `rgba` or `rgb48le` if
    /// requested. Decodes the first one.
    ///
    /// # Errors
    /// [`InputError::NotFound`], [`InputError::Io`], [`InputError::NoImages`],
    /// [`InputError::Image`], [`InputError::CannotConvert`], [`InputError::Format`].
    pub fn open(dir: &Path, wish: FormatWish) -> Result<Self, InputError> {
        let input = dir.display().to_string();
        let (files, others) = list(dir).map_err(|error| InputError::io(&input, error))?;
        let Some(first) = files.first() else {
            return Err(InputError::NoImages { dir: dir.to_owned(), others });
        };
        let size = decode(first)?.size;
        check_wish(&input, size, wish)?;
        let format = FrameFormat::new(size.0, size.1, wish.pixel.unwrap_or(PixelFormat::Rgb24))
            .map_err(|error| InputError::format(&input, error))?;
        Ok(Self { files, format, next: 0 })
    }

    fn check_size(&self, path: &Path, picture: &Picture) -> Result<(), InputError> {
        let seen = picture.size;
        let wanted = (self.format.width(), self.format.height());
        if seen == wanted {
            return Ok(());
        }
        let first = self.files.first().cloned().unwrap_or_default();
        Err(InputError::ImageSize { path: path.to_owned(), seen, first, wanted })
    }
}

impl FrameInput for ImagesInput {
    fn format(&self) -> &FrameFormat {
        &self.format
    }

    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError> {
        let Some(path) = self.files.get(self.next) else { return Ok(FrameRead::End) };
        let picture = decode(path)?;
        self.check_size(path, &picture)?;
        out.write_all(&picture.into_pixels(self.format.pixel()))
            .map_err(|error| InputError::buffer(&path.display().to_string(), error))?;
        self.next += 1;
        Ok(FrameRead::Frame)
    }

    fn rewind(&mut self) -> Result<bool, InputError> {
        self.next = 0;
        Ok(true)
    }
}

/// Returns the pictures in order, and the number of other files. Hidden files do not count.
fn list(dir: &Path) -> io::Result<(Vec<PathBuf>, usize)> {
    let (mut pictures, mut others) = (Vec::new(), 0);
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if file_name(&path).starts_with('.') || path.is_dir() {
            continue;
        }
        if is_picture(&path) { pictures.push(path) } else { others += 1 }
    }
    if others > 0 {
        tracing::warn!(dir = %dir.display(), others, "files that are neither PNG nor JPEG are left out");
    }
    pictures.sort_by(|a, b| natural(&file_name(a), &file_name(b)));
    Ok((pictures, others))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Compares names with runs of digits as numbers. A total order: names that differ only in leading
/// zeros are ordered as text.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let (left_part, left_rest) = split_run(left);
        let (right_part, right_rest) = split_run(right);
        let order = compare_runs(left_part, right_part);
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// Splits off the digits that `text` starts with, or else the text up to its first digit.
fn split_run(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    text.split_at(text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len()))
}

fn compare_runs(a: &str, b: &str) -> Ordering {
    let number = |run: &str| run.trim_start_matches('0').to_owned();
    match (a.starts_with(|c: char| c.is_ascii_digit()), b.starts_with(|c: char| c.is_ascii_digit()))
    {
        (true, true) => {
            let (a, b) = (number(a), number(b));
            a.len().cmp(&b.len()).then_with(|| a.cmp(&b))
        }
        _ => a.cmp(b),
    }
}

fn decode(path: &Path) -> Result<Picture, InputError> {
    Picture::decode(path).map_err(|problem| InputError::Image { path: path.to_owned(), problem })
}

fn check_wish(input: &str, size: (u32, u32), wish: FormatWish) -> Result<(), InputError> {
    let cannot = |has: String, asked: String, remedy| {
        Err(InputError::CannotConvert { input: input.to_owned(), has, asked, remedy })
    };
    if let Some((width, height)) = wish.size.filter(|asked| *asked != size) {
        let has = format!("{}x{}", size.0, size.1);
        return cannot(
            has,
            format!("{width}x{height}"),
            "leave the size out, or scale the pictures first",
        );
    }
    match wish.pixel {
        Some(pixel) if !Picture::can_become(pixel) => cannot(
            "rgb24".to_owned(),
            pixel.to_string(),
            "ask for rgb24, gray, gray16le, rgba or rgb48le",
        ),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::natural;

    fn sorted(mut names: Vec<&str>) -> Vec<&str> {
        names.sort_by(|a, b| natural(a, b));
        names
    }

    #[test]
    fn digits_count_as_numbers() {
        assert_eq!(sorted(vec!["f10.png", "f9.png", "f1.png"]), ["f1.png", "f9.png", "f10.png"]);
        assert_eq!(sorted(vec!["b1", "a10", "a2", "a"]), ["a", "a2", "a10", "b1"]);
        assert_eq!(sorted(vec!["1-10", "1-9", "01-1"]), ["01-1", "1-9", "1-10"]);
        let huge = "99999999999999999999999999999999999999999.png";
        assert_eq!(sorted(vec![huge, "7.png"]), ["7.png", huge]);
    }

    proptest::proptest! {
        #[test]
        fn is_a_total_order(a in "[0a1-]{0,6}", b in "[0a1-]{0,6}", c in "[0a1-]{0,6}") {
            proptest::prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            proptest::prop_assert_eq!(natural(&a, &b).is_eq(), a == b);
            if natural(&a, &b).is_le() && natural(&b, &c).is_le() {
                proptest::prop_assert!(natural(&a, &c).is_le());
            }
        }
    }
}
