//! Picks the reader for what a user names as an input.
use super::ffmpeg::{FfmpegInput, FrameSync};
#[cfg(feature = "pictures")]
use super::images::ImagesInput;
use super::pattern::Pattern;
use super::raw::RawInput;
use super::repeat::Repeat;
use super::synthetic::SyntheticInput;
use super::y4m::Y4mInput;
use super::{FrameInput, InputError};
use crate::format::{FormatWish, FrameFormat, PixelFormat};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Extensions of files with raw frames.
const RAW_EXTENSIONS: &[&str] = &["raw", "rgb", "yuv", "gray", "bin"];

/// How [`open`] treats an input.
#[derive(Debug, Clone)]
pub struct InputOptions {
    /// Requested format. Required for raw bytes, else the input's own by default.
    pub format: FormatWish,
    /// Start again at the end, forever.
    pub repeat: bool,
    /// Name of the device; the synthetic pattern shows it.
    pub device: String,
    /// Number of the device; the synthetic pattern takes its colour from it.
    pub device_index: u32,
    /// Number of the first synthetic frame.
    pub first_frame: u64,
    /// How often ffmpeg outputs each decoded frame; by default a constant rate for files and every
    /// frame for live streams.
    pub sync: Option<FrameSync>,
    /// The ffmpeg program, searched in `PATH` if it is a plain name.
    pub ffmpeg: PathBuf,
    /// The ffprobe program, searched in `PATH` if it is a plain name.
    pub ffprobe: PathBuf,
}

impl Default for InputOptions {
    fn default() -> Self {
        Self {
            format: FormatWish::default(),
            repeat: false,
            device: "cam0".to_owned(),
            device_index: 0,
            first_frame: 0,
            sync: None,
            ffmpeg: "ffmpeg".into(),
            ffprobe: "ffprobe".into(),
        }
    }
}

/// Opens an input by what the user wrote:
///
/// | written | read as |
/// |---|---|
/// | `synthetic`, `synthetic:640x480:rgb24` | the test pattern |
/// | `-` | stdin: Y4M, or raw frames if the options have a whole format |
/// | a directory | its pictures |
/// | `FILE.y4m` | Y4M |
/// | `FILE.raw`, `.rgb`, `.yuv`, `.gray`, `.bin`, a named pipe | raw frames |
/// | any other file, `rtsp://...` and every other URL | what ffmpeg decodes |
///
/// A prefix `raw:`, `y4m:`, `images:` or `ffmpeg:` before the rest overrides the choice.
///
/// # Errors
/// Those of the reader that was chosen; [`InputError::NeedsFormat`] for raw frames without a
/// format; [`InputError::NotFound`].
pub fn open(spec: &OsStr, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    let input = open_once(spec, options)?;
    Ok(if options.repeat { Box::new(Repeat::new(input)) } else { input })
}

fn open_once(spec: &OsStr, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    let (kind, rest) = split_kind(spec);
    let path = Path::new(&rest);
    match kind {
        Some(Kind::Synthetic) => synthetic(&rest.to_string_lossy(), options),
        Some(Kind::Raw) => raw(path, options),
        Some(Kind::Y4m) => y4m(path, options),
        Some(Kind::Images) => images(path, options),
        Some(Kind::Ffmpeg) => ffmpeg(&rest, options),
        None if rest.as_bytes() == b"-" => stdin(options),
        None if rest.to_string_lossy().contains("://") => ffmpeg(&rest, options),
        None => by_path(path, options),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Synthetic,
    Raw,
    Y4m,
    Images,
    Ffmpeg,
}

fn split_kind(spec: &OsStr) -> (Option<Kind>, OsString) {
    const KINDS: &[(&str, Kind)] = &[
        ("synthetic:", Kind::Synthetic),
        ("raw:", Kind::Raw),
        ("y4m:", Kind::Y4m),
        ("images:", Kind::Images),
        ("ffmpeg:", Kind::Ffmpeg),
    ];
    if spec.as_bytes() == b"synthetic" {
        return (Some(Kind::Synthetic), OsString::new());
    }
    for (prefix, kind) in KINDS {
        if let Some(rest) = spec.as_bytes().strip_prefix(prefix.as_bytes()) {
            return (Some(*kind), OsString::from_vec(rest.to_vec()));
        }
    }
    (None, spec.to_owned())
}

#[cfg(feature = "pictures")]
fn images(path: &Path, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    Ok(Box::new(ImagesInput::open(path, options.format)?))
}

#[cfg(not(feature = "pictures"))]
fn images(path: &Path, _: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    Err(InputError::NoPictures(path.to_owned()))
}

fn by_path(path: &Path, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    let input = path.display().to_string();
    let file_type = fs::metadata(path).map_err(|error| InputError::io(&input, error))?.file_type();
    if file_type.is_dir() {
        images(path, options)
    } else if has_extension(path, &["y4m"]) {
        y4m(path, options)
    // A pipe can be read only once, so ffmpeg could not probe it first.
    } else if file_type.is_fifo() || has_extension(path, RAW_EXTENSIONS) {
        raw(path, options)
    } else {
        ffmpeg(path.as_os_str(), options)
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|seen| extensions.iter().any(|known| seen.eq_ignore_ascii_case(known)))
}

fn synthetic(wish: &str, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    let failed = |error| InputError::format(&format!("synthetic:{wish}"), error);
    let written =
        if wish.is_empty() { FormatWish::default() } else { wish.parse().map_err(failed)? };
    let (width, height) = options.format.size.or(written.size).unwrap_or((640, 480));
    let pixel = options.format.pixel.or(written.pixel).unwrap_or(PixelFormat::Rgb24);
    let format = FrameFormat::new(width, height, pixel).map_err(failed)?;
    let pattern = Pattern::new(format, options.device_index, &options.device);
    Ok(Box::new(SyntheticInput::new(pattern, options.first_frame)))
}

fn stdin(options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    let path = Path::new("-");
    if whole_format(path, options)?.is_some() { raw(path, options) } else { y4m(path, options) }
}

fn raw(path: &Path, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    let Some(format) = whole_format(path, options)? else {
        return Err(InputError::NeedsFormat(path.display().to_string()));
    };
    Ok(Box::new(RawInput::open(path, format)?))
}

fn y4m(path: &Path, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    let input = Y4mInput::open(path)?;
    if fits(input.format(), options.format) {
        return Ok(Box::new(input));
    }
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return ffmpeg(path.as_os_str(), options);
    }
    Err(InputError::CannotConvert {
        input: path.display().to_string(),
        has: input.format().to_string(),
        asked: options.format.to_string(),
        remedy: "omit --format, or convert the input first",
    })
}

fn ffmpeg(source: &OsStr, options: &InputOptions) -> Result<Box<dyn FrameInput>, InputError> {
    Ok(Box::new(FfmpegInput::open(source, options)?))
}

fn whole_format(path: &Path, options: &InputOptions) -> Result<Option<FrameFormat>, InputError> {
    options.format.whole().map_err(|error| InputError::format(&path.display().to_string(), error))
}

fn fits(format: &FrameFormat, wish: FormatWish) -> bool {
    wish.size.is_none_or(|size| size == (format.width(), format.height()))
        && wish.pixel.is_none_or(|pixel| pixel == format.pixel())
}
