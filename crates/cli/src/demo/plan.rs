//! What a demo does: its devices and where their frames go.
use super::folder::Folder;
use crate::args::{DemoArgs, Rate, SinkKind};
use crate::failure::{Code, Failure, OrFail as _};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const DEVICES: usize = 12;
const SYNTHETIC: &str = "synthetic:640x480:rgb24";
/// Frames of a device that stay on disk, where there is room.
const KEEP_FRAMES: u64 = 25;
/// Bytes that the frames on disk may take by default.
const DISK_BYTES: u64 = 1 << 30;
/// Bytes of a frame, where the format is not known before.
const FRAME_BYTES: u64 = 640 * 480 * 3;
const WAIT_SECONDS: &str = "30";

pub(super) struct Plan {
    pub(super) devices: usize,
    pub(super) keep_frames: u64,
    inputs: Vec<OsString>,
    rate: Rate,
    store: Store,
}

enum Store {
    Nowhere,
    Given(PathBuf),
    Temporary(Folder),
}

impl Plan {
    pub(super) fn new(args: &DemoArgs) -> Result<Self, Failure> {
        args.providers.set()?;
        args.providers.check_fault_within_host()?;
        SinkKind::check(args.sink, args.out.as_deref(), args.keep_frames)?;
        let clips = !args.input.is_empty();
        let inputs = if clips { args.input.clone() } else { vec![SYNTHETIC.into()] };
        let usual = if clips { inputs.len() } else { DEVICES };
        let native = if clips { Rate::Native } else { Rate::Fps(super::RATE) };
        let rate = args.rate.unwrap_or(native);
        let devices = args.devices.map_or(usual, |devices| devices as usize);
        let affordable = || keep_frames(args, devices);
        Ok(Self {
            devices,
            keep_frames: args.keep_frames.unwrap_or_else(affordable),
            inputs,
            rate,
            store: store(args, rate)?,
        })
    }

    pub(super) fn rate_asked(&self) -> Option<f64> {
        match self.rate {
            Rate::Fps(rate) => Some(rate.as_f64()),
            Rate::Max | Rate::Native => None,
        }
    }

    pub(super) fn out(&self) -> Option<&Path> {
        match &self.store {
            Store::Nowhere => None,
            Store::Given(path) => Some(path),
            Store::Temporary(folder) => Some(folder.path()),
        }
    }

    pub(super) fn collector(&self, args: &DemoArgs) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            ["collect", "--listen", "127.0.0.1:0"].map(Into::into).into();
        match self.out() {
            Some(out) => words.extend([
                "--out".into(),
                out.into(),
                "--keep-frames".into(),
                self.keep_frames.to_string().into(),
            ]),
            None => words.extend(["--sink", "null"].map(Into::into)),
        }
        if args.no_dashboard {
            words.push("--no-dashboard".into());
        }
        if let Some(address) = args.dashboard {
            words.extend(["--dashboard".into(), address.to_string().into()]);
        }
        words.extend(args.providers.words());
        words
    }

    pub(super) fn source(&self, args: &DemoArgs, collector: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            ["send", "--loop", "--wait", WAIT_SECONDS].map(Into::into).into();
        let mut option = |name: &str, value: String| words.extend([name.into(), value.into()]);
        option("--seconds", args.seconds.as_secs_f64().to_string());
        option("--rate", self.rate.to_string());
        if let Some(frames) = args.frames {
            option("--frames", frames.to_string());
        }
        if let Some(requests) = args.send_queue {
            option("--send-queue", requests.to_string());
        }
        if let Some(format) = args.format {
            option("--format", format.to_string());
        }
        let width = (self.devices - 1).to_string().len();
        for i in 0..self.devices {
            let input = self.inputs[i % self.inputs.len()].clone();
            let name = format!("cam{i:0width$}");
            words.extend(["--input".into(), input, "--device".into(), name.into()]);
        }
        words.extend(args.providers.words());
        words.push(collector.into());
        words
    }
}

/// As many frames as 1 GiB holds, but not more than one second of a camera.
fn keep_frames(args: &DemoArgs, devices: usize) -> u64 {
    let whole = args.format.and_then(|wish| wish.whole().ok().flatten());
    let frame_bytes = whole.map_or(FRAME_BYTES, |format| format.frame_bytes() as u64);
    let all_devices = frame_bytes.saturating_mul(devices as u64).max(1);
    (DISK_BYTES / all_devices).clamp(1, KEEP_FRAMES)
}

fn store(args: &DemoArgs, rate: Rate) -> Result<Store, Failure> {
    let usual = match (&args.out, rate) {
        (None, Rate::Max) => SinkKind::Null,
        (Some(_), _) | (None, Rate::Native | Rate::Fps(_)) => SinkKind::Dir,
    };
    match (args.sink.unwrap_or(usual), &args.out) {
        (SinkKind::Null, _) => Ok(Store::Nowhere),
        (SinkKind::Dir, Some(path)) => Ok(Store::Given(path.clone())),
        (SinkKind::Dir, None) => Ok(Store::Temporary(Folder::new().or_fail(Code::Local)?)),
    }
}
