//! Everything that ffmpeg opens, through a child process that writes raw frames to a pipe.
//!
//! The frames are byte for byte what `ffmpeg -i INPUT -f rawvideo -` writes: no option that could
//! change them is added, and the pixel format stays the clip's own unless the user requests another.
//! A child process needs no system library to build against, and a clip that crashes the decoder
//! does not take the source with it.
//!
//! The child cannot outlive its reader for long. Dropping the input kills it. If this process
//! dies, even by SIGKILL, the only reading end of the pipe closes with it (Rust opens
//! descriptors close-on-exec, so no other child holds it), and ffmpeg ends at its next frame.
mod child;
mod probe;

use self::child::Child;
use self::probe::Probed;
use super::raw::read_raw_frame;
use super::{FrameBuffer, FrameInput, FrameRead, InputError, InputOptions};
use crate::format::{FrameFormat, FrameRate};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;

/// How often each decoded frame is output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameSync {
    /// A constant rate, ffmpeg's default for `rawvideo`. Frames of clips with a variable rate are
    /// repeated or dropped so that they play correctly at [`FrameInput::frame_rate`].
    ConstantRate,
    /// Every decoded frame exactly once (`-fps_mode passthrough`).
    EveryFrame,
}

/// What is decoded, and how: shared by both runs of ffmpeg (probing and decoding).
#[derive(Debug)]
struct Job {
    /// For messages.
    input: String,
    /// For `-i`.
    source: OsString,
    live: bool,
    options: InputOptions,
}

impl Job {
    fn decode_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = ["-nostdin", "-v", "error", "-i"].map(OsString::from).into();
        args.push(self.source.clone());
        args.extend(["-an", "-sn", "-dn"].map(OsString::from));
        if let Some((width, height)) = self.options.format.size {
            args.extend(["-s".into(), format!("{width}x{height}").into()]);
        }
        if let Some(pixel) = self.options.format.pixel {
            args.extend(["-pix_fmt", pixel.name()].map(OsString::from));
        }
        args
    }

    fn run(&self, program: &Path, args: &[OsString], stdin: Stdio) -> Result<Child, InputError> {
        Child::spawn(program, args, stdin).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                return InputError::FfmpegMissing {
                    input: self.input.clone(),
                    program: program.to_owned(),
                };
            }
            InputError::Io { input: self.input.clone(), source: error }
        })
    }

    /// Waits for a program that has closed its output, and returns its messages.
    ///
    /// # Errors
    /// It failed.
    fn finish(&self, program: &Path, child: &mut Child) -> Result<String, InputError> {
        let (status, stderr) =
            child.wait().map_err(|source| InputError::Io { input: self.input.clone(), source })?;
        if status.success() {
            return Ok(stderr);
        }
        Err(InputError::Ffmpeg {
            input: self.input.clone(),
            program: program.to_owned(),
            status: status.to_string(),
            stderr,
        })
    }
}

/// A file, URL or device that ffmpeg decodes.
#[derive(Debug)]
pub struct FfmpegInput {
    job: Job,
    probed: Probed,
    /// `None` after the end.
    child: Option<Child>,
    frames: u64,
}

impl FfmpegInput {
    /// Opens what `ffmpeg -i` takes; `options` say how, other than repeating. Decodes one frame to
    /// learn the format, then starts again, so the input cannot be stdin.
    ///
    /// # Errors
    /// [`InputError::FfmpegMissing`], [`InputError::FfmpegStdin`], [`InputError::Ffmpeg`] with
    /// what ffmpeg said,
    /// [`InputError::FfmpegProbe`], [`InputError::FfmpegPixel`], [`InputError::Format`].
    pub fn open(source: &OsStr, options: &InputOptions) -> Result<Self, InputError> {
        let job = Job {
            input: source.to_string_lossy().into_owned(),
            source: ffmpeg_name(source),
            live: is_live(source),
            options: options.clone(),
        };
        if is_stdin(source) {
            return Err(InputError::FfmpegStdin(job.input));
        }
        let probed = probe::probe(&job)?;
        let mut input = Self { job, probed, child: None, frames: 0 };
        input.start()?;
        Ok(input)
    }

    fn start(&mut self) -> Result<(), InputError> {
        let mut args = self.job.decode_args();
        let usual = if self.job.live { FrameSync::EveryFrame } else { FrameSync::ConstantRate };
        if self.job.options.sync.unwrap_or(usual) == FrameSync::EveryFrame {
            args.extend(self.probed.passthrough.map(OsString::from));
        }
        args.extend(["-f", "rawvideo", "pipe:1"].map(OsString::from));
        self.frames = 0;
        // The old child, if any, is killed and reaped first.
        self.child = None;
        self.child = Some(self.job.run(&self.job.options.ffmpeg, &args, Stdio::null())?);
        Ok(())
    }

    /// Ends at the end of the pipe: only the exit status shows whether the clip has ended.
    fn end(&mut self) -> Result<FrameRead, InputError> {
        if let Some(mut child) = self.child.take() {
            let said = self.job.finish(&self.job.options.ffmpeg, &mut child)?;
            if !said.is_empty() {
                tracing::warn!(input = self.job.input, "ffmpeg reported: {said}");
            }
        }
        Ok(FrameRead::End)
    }
}

impl FrameInput for FfmpegInput {
    fn format(&self) -> &FrameFormat {
        &self.probed.format
    }

    fn frame_rate(&self) -> Option<FrameRate> {
        if self.job.live { None } else { self.probed.rate }
    }

    fn read_frame(&mut self, out: &mut dyn FrameBuffer) -> Result<FrameRead, InputError> {
        let Some(stdout) = self.child.as_ref().and_then(Child::stdout) else {
            return Ok(FrameRead::End);
        };
        match read_raw_frame(&self.job.input, stdout.as_fd(), &self.probed.format, self.frames, out)
        {
            Ok(FrameRead::Frame) => {
                self.frames += 1;
                Ok(FrameRead::Frame)
            }
            Ok(FrameRead::End) => self.end(),
            // Why ffmpeg stopped says more than where.
            Err(cut @ InputError::Truncated { .. }) => self.end().and(Err(cut)),
            Err(other) => Err(other),
        }
    }

    fn rewind(&mut self) -> Result<bool, InputError> {
        if self.job.live {
            return Ok(false);
        }
        self.start().map(|()| true)
    }
}

/// Names an existing file so that ffmpeg takes no part of the name for a protocol.
fn ffmpeg_name(source: &OsStr) -> OsString {
    if !Path::new(source).exists() {
        return source.to_owned();
    }
    let mut name = OsString::from("file:");
    name.push(source);
    name
}

fn is_stdin(source: &OsStr) -> bool {
    ["-", "pipe:", "pipe:0", "/dev/stdin"].iter().any(|name| source == *name)
}

/// Returns whether it is a stream that arrives at its own pace and cannot start again.
fn is_live(source: &OsStr) -> bool {
    const LIVE: &[&str] = &[
        "rtsp", "rtsps", "rtp", "srtp", "rtmp", "rtmps", "rtmpt", "udp", "srt", "rist", "tcp",
        "zmq",
    ];
    source.to_string_lossy().split_once("://").is_some_and(|(scheme, _)| LIVE.contains(&scheme))
}
