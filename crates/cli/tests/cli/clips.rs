//! What arrives is byte for byte what the input holds.
use crate::common::{
    Collector, Finished, Running, assert_same, catchment, clip, collecting, decoded, ffmpeg,
    finish, frames, run, send, stream,
};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

fn send_stdin(collector: &Collector, bytes: &[u8], words: &[&str]) -> Finished {
    let mut command = catchment();
    command.args(["send", "--input", "-"]).args(words);
    let mut running = Running::start(command.arg(&collector.address).stdin(Stdio::piped()));
    let mut stdin = running.stdin().unwrap();
    // A command that refuses its input closes it; its message then says why.
    let _ = stdin.write_all(bytes);
    drop(stdin);
    running.finish()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_compressed_clip_arrives_as_ffmpeg_decodes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (out, collector) = collecting();
    let clip = clip(dir.path(), "clip.mp4", 1, 30);
    let mut command = send(text(&clip), "cam0", &collector.address, &["--json"]);
    let sent = finish(&mut command).expect(0).last_json();
    assert_eq!(sent["frames_sent"], 30, "{sent:#}");
    assert_same(&stream(out.path(), "cam0"), &decoded(&clip));
    let summary = collector.end();
    assert_eq!(summary["frames_verified"], 30, "{summary:#}");
}

#[test]
fn six_clips_are_six_devices_of_one_source() {
    let dir = tempfile::tempdir().unwrap();
    let (out, collector) = collecting();
    let clips: Vec<_> = (0..6).map(|i| clip(dir.path(), &format!("c{i}.mp4"), i, 12)).collect();
    let mut command = catchment();
    command.arg("send");
    for clip in &clips {
        command.args(["--input", text(clip)]);
    }
    finish(command.arg(&collector.address)).expect(0);
    for (i, clip) in clips.iter().enumerate() {
        assert_same(&stream(out.path(), &format!("c{i}")), &decoded(clip));
    }
    let summary = collector.end();
    assert_eq!(summary["queue_pairs"], 1, "{summary:#}");
    assert_eq!(summary["devices"].as_array().unwrap().len(), 6);
}

#[test]
fn frames_that_are_copied_or_not_checked_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (out, collector) = collecting();
    let clip = clip(dir.path(), "clip.mp4", 2, 10);
    for (device, word) in [("copied", "--no-in-place"), ("plain", "--no-checksum")] {
        finish(&mut send(text(&clip), device, &collector.address, &[word])).expect(0);
    }
    let expected = decoded(&clip);
    assert_same(&stream(out.path(), "copied"), &expected);
    assert_same(&stream(out.path(), "plain"), &expected);
    let summary = collector.end();
    assert_eq!(summary["frames_received"], 20, "{summary:#}");
    assert_eq!(summary["frames_verified"], 10, "without checksum none is verified: {summary:#}");
}

#[test]
fn y4m_and_raw_frames_come_through_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let (out, collector) = collecting();
    let clip = clip(dir.path(), "clip.mp4", 3, 10);
    let y4m = ffmpeg(&["-i", text(&clip), "-f", "yuv4mpegpipe", "-"]);
    send_stdin(&collector, &y4m, &["--device", "y4m"]).expect(0);
    assert_same(&stream(out.path(), "y4m"), &decoded(&clip));
    let raw = ffmpeg(&["-i", text(&clip), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
    send_stdin(&collector, &raw, &["--format", "192x144:rgb24", "--device", "raw"]).expect(0);
    assert_same(&stream(out.path(), "raw"), &raw);
}

#[test]
fn an_input_that_is_cut_off_gives_its_whole_frames_and_an_error() {
    let (out, collector) = collecting();
    let words = ["--format", "4x2:gray", "--device", "cut"];
    let finished = send_stdin(&collector, b"aaaaaaaabbbbbbbbccc", &words).expect(4);
    assert!(finished.stderr.contains("3 bytes seen, 8 needed"), "{finished:#?}");
    assert_eq!(stream(out.path(), "cut"), b"aaaaaaaabbbbbbbb");
}

#[test]
fn pictures_of_a_directory_are_frames_in_the_order_of_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let (out, collector) = collecting();
    let pictures = dir.path().join("pictures");
    fs::create_dir(&pictures).unwrap();
    let source = "mandelbrot=s=96x64:r=25";
    let pattern = pictures.join("shot%d.png");
    ffmpeg(&["-f", "lavfi", "-i", source, "-frames:v", "11", text(&pattern)]);
    finish(&mut send(text(&pictures), "shots", &collector.address, &[])).expect(0);
    let expected = ffmpeg(&["-i", text(&pattern), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
    assert_same(&stream(out.path(), "shots"), &expected);
}

#[test]
fn a_clip_can_be_cut_looped_and_kept_short() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let clip = clip(dir.path(), "clip.mp4", 4, 5);
    let keep = ["--out", text(&out), "--keep-frames", "3"];
    let collector = Collector::start_with("127.0.0.1:0", &keep);
    let looped = ["send", "--input", text(&clip), "--loop", "--frames", "12", &collector.address];
    run(looped).expect(0);
    assert_eq!(frames(&out.join("clip")), ["000000000009", "000000000010", "000000000011"]);
    let decoded = decoded(&clip);
    let frame_bytes = decoded.len() / 5;
    // Frames 9, 10 and 11 of a clip of five frames are its frames 4, 0 and 1.
    let expected = [&decoded[4 * frame_bytes..], &decoded[..2 * frame_bytes]].concat();
    assert_same(&stream(&out, "clip"), &expected);
}
