//! What the input tests share: real clips made by ffmpeg, and whole inputs read at once.
use catchment_media::input::{FrameInput, FrameRead, InputError, InputOptions, open};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether ffmpeg is here. In CI its absence fails the test, elsewhere a line says that the
/// test was left out.
pub(crate) fn ffmpeg_is_here() -> bool {
    let found = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{test} needs ffmpeg; in CI it must be installed (apt-get install ffmpeg)"
    );
    eprintln!("SKIPPED {test}: ffmpeg is not installed (apt-get install ffmpeg)");
    false
}

/// A directory for clips; none where ffmpeg is not here.
pub(crate) fn dir_for_ffmpeg() -> Option<tempfile::TempDir> {
    ffmpeg_is_here().then(|| tempfile::tempdir().unwrap())
}

pub(crate) fn wish(format: &str) -> InputOptions {
    InputOptions { format: format.parse().unwrap(), ..InputOptions::default() }
}

/// Runs ffmpeg with a line of arguments plus an output path, which it returns.
pub(crate) fn make(dir: &Path, name: &str, args: &str) -> PathBuf {
    let path = dir.join(name);
    let status = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-y"])
        .args(args.split_whitespace())
        .arg(&path)
        .current_dir(dir)
        .status()
        .expect("ffmpeg runs");
    assert!(status.success(), "ffmpeg {args} {name}: {status}");
    path
}

/// What `ffmpeg -i CLIP [extra] -f rawvideo -` writes.
pub(crate) fn reference(clip: &Path, extra: &str) -> Vec<u8> {
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-i"])
        .arg(clip)
        .args(extra.split_whitespace())
        .args(["-f", "rawvideo", "-"])
        .output()
        .expect("ffmpeg runs");
    assert!(output.status.success(), "ffmpeg -i {}: {}", clip.display(), output.status);
    output.stdout
}

pub(crate) fn open_path(
    path: &Path,
    options: &InputOptions,
) -> Result<Box<dyn FrameInput>, InputError> {
    open(path.as_os_str(), options)
}

/// Every frame up to the end, one after the other. Checks that each has the right size.
pub(crate) fn read_all(input: &mut dyn FrameInput) -> Result<Vec<u8>, InputError> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        match input.read_frame(&mut all)? {
            FrameRead::Frame => assert_eq!(all.len() - before, input.format().frame_bytes()),
            FrameRead::End => {
                assert_eq!(all.len(), before, "an ended input writes nothing");
                return Ok(all);
            }
        }
    }
}

/// Fails with where they differ, not with megabytes of numbers.
pub(crate) fn assert_same_bytes(ours: &[u8], theirs: &[u8], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}: length");
    if let Some(at) = ours.iter().zip(theirs).position(|(a, b)| a != b) {
        panic!("{what}: byte {at} of {} differs", ours.len());
    }
}
