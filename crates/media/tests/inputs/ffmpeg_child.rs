//! The life of the ffmpeg child: it ends with its reader, and its death is reported.
use crate::common::{dir_for_ffmpeg, make, open_path, reference};
use catchment_media::input::{FrameRead, InputError, InputOptions};
use catchment_netns::{children_of, in_own_process, running, wait_until};
use rustix::process::{Pid, Signal, getpgid, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Path of a clip, for the run of this program that stands for a source about to die.
const CLIP_VAR: &str = "CATCHMENT_TEST_CLIP";
const PATIENCE: Duration = Duration::from_secs(20);

/// Far more than a pipe holds, so that its decoder waits for its reader.
fn clip(dir: &Path) -> PathBuf {
    make(dir, "long.avi", "-f lavfi -i testsrc2=s=640x480:r=30:d=3 -c:v mjpeg")
}

/// Pids of the live (not zombie) children of `parent` that are called ffmpeg.
fn ffmpegs_of(parent: u32) -> Vec<u32> {
    children_of(parent).into_iter().filter(|(_, name)| name == "ffmpeg").map(|(id, _)| id).collect()
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).unwrap()
}

/// In a process of its own, which has no other children.
#[test]
fn the_child_is_killed_on_drop_and_its_death_is_an_error() {
    let name = "ffmpeg_child::the_child_is_killed_on_drop_and_its_death_is_an_error";
    in_own_process(name, killed_on_drop_and_its_death_is_an_error);
}

fn killed_on_drop_and_its_death_is_an_error() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let clip = clip(dir.path());
    let mut input = open_path(&clip, &InputOptions::default()).unwrap();
    let mut frames = Vec::new();
    assert_eq!(input.read_frame(&mut frames).unwrap(), FrameRead::Frame);
    let children = ffmpegs_of(std::process::id());
    assert_eq!(children.len(), 1, "one decoder");
    let group = getpgid(Some(pid(children[0]))).unwrap();
    assert_eq!(group, pid(children[0]), "Ctrl-C at a terminal does not reach it");
    drop(input);
    assert_eq!(running(children[0]), None, "drop kills and reaps");

    let mut input = open_path(&clip, &InputOptions::default()).unwrap();
    let children = ffmpegs_of(std::process::id());
    kill_process(pid(children[0]), Signal::KILL).unwrap();
    frames.clear();
    let frame_bytes = input.format().frame_bytes();
    let error = loop {
        let whole = frames.len();
        match input.read_frame(&mut frames) {
            Ok(FrameRead::Frame) => {}
            Ok(FrameRead::End) => panic!("a killed decoder is not the end of the clip"),
            Err(error) => {
                frames.truncate(whole);
                break error;
            }
        }
    };
    assert!(
        matches!(&error, InputError::Ffmpeg { status, .. } if status.contains("signal: 9")),
        "{error}"
    );
    assert_eq!(frames.len() % frame_bytes, 0);
    assert_eq!(frames, reference(&clip, "")[..frames.len()], "what came before is whole");
    assert_eq!(input.read_frame(&mut frames).unwrap(), FrameRead::End, "and then nothing more");
}

#[test]
fn the_child_ends_when_its_reader_is_killed() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let clip = clip(dir.path());
    let mut reader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ffmpeg_child::source_about_to_die", "--nocapture"])
        .env(CLIP_VAR, &clip)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut decoders = Vec::new();
    let ready = dir.path().join("ready");
    wait_until("the reader has its first frame", || ready.exists());
    wait_until("it has a decoder", || {
        decoders = ffmpegs_of(reader.id());
        !decoders.is_empty()
    });
    reader.kill().unwrap();
    reader.wait().unwrap();
    for decoder in decoders {
        wait_until("the decoder ends", || running(decoder).is_none());
    }
}

/// Not a test by itself: the process that the test above kills.
#[test]
fn source_about_to_die() {
    let Some(clip) = std::env::var_os(CLIP_VAR) else { return };
    let clip = PathBuf::from(clip);
    let mut input = open_path(&clip, &InputOptions::default()).unwrap();
    input.read_frame(&mut Vec::new()).unwrap();
    fs::write(clip.with_file_name("ready"), "").unwrap();
    sleep(PATIENCE * 2);
}
