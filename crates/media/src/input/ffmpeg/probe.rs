//! Finds out which frames ffmpeg will write, by letting it write one.
//!
//! ffprobe's description of a clip is not enough: ffmpeg picks one of several video streams, rotates
//! pictures that were recorded upright (which may even change the pixel format, as 4:2:2 cannot be
//! rotated in place), and rounds sizes. So the first frame is decoded exactly as later, but into a
//! NUT stream, whose header describes the raw frames, and ffprobe reads that header. The size of the
//! frame is compared with that of the format: a format that NUT does not preserve is an error, never
//! a sheared picture.
use super::Job;
use crate::format::{FrameFormat, FrameRate, PixelFormat};
use crate::input::InputError;
use serde::Deserialize;
use std::ffi::OsString;
use std::process::Stdio;

/// ffprobe's answer is about 500 bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Probed {
    pub(super) format: FrameFormat,
    pub(super) rate: Option<FrameRate>,
    /// The options with which this version of ffmpeg outputs every frame once.
    pub(super) passthrough: [&'static str; 2],
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Answer {
    program_version: Version,
    streams: Vec<Stream>,
    packets: Vec<Packet>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Version {
    version: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Stream {
    width: u32,
    height: u32,
    pix_fmt: String,
    r_frame_rate: String,
}

#[derive(Deserialize)]
struct Packet {
    size: String,
}

pub(super) fn probe(job: &Job) -> Result<Probed, InputError> {
    let answer = ask(job)?;
    let [stream] = answer.streams.as_slice() else {
        return Err(problem(job, "it has no video".to_owned()));
    };
    let format = frame_format(job, stream)?;
    check_size(job, &format, &stream.pix_fmt, answer.packets.first())?;
    Ok(Probed {
        format,
        rate: stream.r_frame_rate.parse().ok(),
        passthrough: passthrough(&answer.program_version.version),
    })
}

/// Runs `ffmpeg ... | ffprobe ...` over one frame.
fn ask(job: &Job) -> Result<Answer, InputError> {
    let (ffmpeg, ffprobe) = (&job.options.ffmpeg, &job.options.ffprobe);
    let mut decoder = job.run(ffmpeg, &one_frame_args(job), Stdio::null())?;
    let pipe = decoder.take_stdout().map_or_else(Stdio::null, Stdio::from);
    let mut prober = job.run(ffprobe, &describe_args(), pipe)?;
    let json = prober
        .read_stdout(ANSWER_BYTES_MAX)
        .map_err(|source| InputError::Io { input: job.input.clone(), source })?;
    // ffmpeg's reason first: without a frame ffprobe only reports empty input.
    let said = job.finish(ffmpeg, &mut decoder)?;
    job.finish(ffprobe, &mut prober).map_err(|error| nothing_decoded(job, error, said))?;
    serde_json::from_slice(&json).map_err(|error| problem(job, error.to_string()))
}

fn one_frame_args(job: &Job) -> Vec<OsString> {
    let mut args = job.decode_args();
    args.extend(["-frames:v", "1", "-c:v", "rawvideo", "-f", "nut", "pipe:1"].map(OsString::from));
    args
}

fn describe_args() -> Vec<OsString> {
    const ENTRIES: &str =
        "stream=width,height,pix_fmt,r_frame_rate:packet=size:program_version=version";
    ["-v", "error", "-f", "nut", "-show_entries", ENTRIES, "-of", "json", "pipe:0"]
        .map(OsString::from)
        .into()
}

fn frame_format(job: &Job, stream: &Stream) -> Result<FrameFormat, InputError> {
    let pixel = match job.options.format.pixel {
        // Not from the answer: NUT cannot name every format that can be asked for.
        Some(asked) => asked,
        None => PixelFormat::from_name(&stream.pix_fmt).ok_or_else(|| InputError::FfmpegPixel {
            input: job.input.clone(),
            pixel: stream.pix_fmt.clone(),
        })?,
    };
    FrameFormat::new(stream.width, stream.height, pixel)
        .map_err(|error| InputError::format(&job.input, error))
}

fn check_size(
    job: &Job,
    format: &FrameFormat,
    pix_fmt: &str,
    packet: Option<&Packet>,
) -> Result<(), InputError> {
    let Some(packet) = packet else { return Err(problem(job, "it has no frame".to_owned())) };
    if packet.size == format.frame_bytes().to_string() {
        return Ok(());
    }
    Err(problem(
        job,
        format!(
            "a frame has {} bytes, which does not match {}x{} of {pix_fmt}; pass --format, for example --format rgb24",
            packet.size,
            format.width(),
            format.height(),
        ),
    ))
}

fn problem(job: &Job, problem: String) -> InputError {
    InputError::FfmpegProbe {
        input: job.input.clone(),
        program: job.options.ffprobe.clone(),
        problem,
        stderr: String::new(),
    }
}

/// ffmpeg succeeded without a frame, so ffprobe failed: ffmpeg's messages are the reason.
fn nothing_decoded(job: &Job, error: InputError, said: String) -> InputError {
    if said.is_empty() {
        return error;
    }
    InputError::FfmpegProbe {
        input: job.input.clone(),
        program: job.options.ffmpeg.clone(),
        problem: "it decoded no frame".to_owned(),
        stderr: said,
    }
}

/// ffmpeg 5.1 renamed `-vsync` to `-fps_mode`. Versions that are not numbers are builds from its
/// repository, and new.
fn passthrough(version: &str) -> [&'static str; 2] {
    let mut parts = version.trim_start_matches('n').split(|c: char| !c.is_ascii_digit());
    let mut part = || parts.next().and_then(|digits| digits.parse::<u32>().ok());
    match (part(), part()) {
        (Some(major), minor) if (major, minor.unwrap_or(0)) < (5, 1) => ["-vsync", "0"],
        _ => ["-fps_mode", "passthrough"],
    }
}

#[cfg(test)]
mod tests {
    use super::passthrough;

    #[test]
    fn versions_before_5_1_take_vsync() {
        for old in ["4.4.2-0ubuntu0.22.04.1", "3.4", "n4.4.1", "5.0.3", "5"] {
            assert_eq!(passthrough(old)[0], "-vsync", "{old}");
        }
        for new in
            ["5.1.9-0+deb12u1", "6.0", "n7.1", "N-109542-g123abc", "2024-01-01-git-x", "", "10.2"]
        {
            assert_eq!(passthrough(new)[0], "-fps_mode", "{new}");
        }
    }
}
