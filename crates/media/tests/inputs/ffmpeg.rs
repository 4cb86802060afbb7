//! Real compressed clips: our frames are byte for byte those of `ffmpeg -f rawvideo`.
use crate::common::{
    assert_same_bytes, dir_for_ffmpeg, ffmpeg_is_here, make, open_path, read_all, reference, wish,
};
use catchment_media::format::FrameRate;
use catchment_media::input::{FrameRead, FrameSync, InputError, InputOptions, open};
use std::path::{Path, PathBuf};

/// A moving picture with detail and noise, so that no two frames are alike.
/// Scaled, because testsrc2 itself only has even sizes.
fn scene(size: &str) -> String {
    let size = size.replace('x', ":");
    format!("-f lavfi -i testsrc2=s=320x240:r=30:d=0.5,noise=alls=20:allf=t,scale={size}")
}

fn ours(clip: &Path, options: &InputOptions) -> Vec<u8> {
    let mut input = open_path(clip, options).unwrap();
    read_all(&mut *input).unwrap()
}

/// Reads `clip` as it is and compares with ffmpeg without any option. Returns its format.
fn check(clip: &Path) -> String {
    let mut input = open_path(clip, &InputOptions::default()).unwrap();
    let ours = read_all(&mut *input).unwrap();
    assert!(!ours.is_empty(), "{}", clip.display());
    assert_same_bytes(&ours, &reference(clip, ""), &clip.display().to_string());
    input.format().to_string()
}

/// Name, size and encoder of a clip, and the pixel format that its frames must have.
const CLIPS: &[(&str, &str, &str, &str)] = &[
    ("h264.mp4", "322x240", "SOUND -c:v libx264 -bf 3 -pix_fmt yuv420p", "yuv420p"),
    ("h264.ts", "322x240", "SOUND -c:v libx264 -bf 3 -pix_fmt yuv420p", "yuv420p"),
    ("h264odd.mkv", "323x241", "-c:v libx264 -pix_fmt yuv444p", "yuv444p"),
    ("h264ten.mkv", "320x180", "-c:v libx264 -pix_fmt yuv420p10le", "yuv420p10le"),
    ("mjpeg.avi", "323x241", "-c:v mjpeg -pix_fmt yuvj420p", "yuv420p"),
    ("mjpeg422.mov", "321x241", "-c:v mjpeg -pix_fmt yuvj422p", "yuv422p"),
    ("vp9.webm", "321x243", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8", "yuv420p"),
    ("ffv1.mkv", "99x77", "-c:v ffv1 -pix_fmt gray16le", "gray16le"),
    ("rgb.avi", "101x75", "-c:v huffyuv -pix_fmt rgb24", "bgr0"),
    ("anim.gif", "64x48", "-r 10", "bgra"),
    ("nv12.nut", "65x49", "-c:v rawvideo -pix_fmt nv12", "nv12"),
];

#[test]
fn codecs_and_odd_sizes() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    for (name, size, encoder, pixel) in CLIPS {
        let encoder = encoder.replace("SOUND", "-f lavfi -i sine=d=2 -shortest -c:a aac");
        let clip = make(dir.path(), name, &format!("{} {encoder}", scene(size)));
        assert_eq!(check(&clip), format!("{size}:{pixel}"), "{name}");
    }
    let fractal = "-f lavfi -i mandelbrot=s=320x200:r=25 -t 0.5 -c:v libx264 -pix_fmt yuv422p";
    assert_eq!(check(&make(dir.path(), "fractal.mp4", fractal)), "320x200:yuv422p");
}

#[test]
fn asked_formats_are_ffmpegs_conversions() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let clip =
        make(dir.path(), "a.mp4", &format!("{} -c:v libx264 -pix_fmt yuv420p", scene("322x240")));
    for (asked, extra) in [
        ("rgb24", "-pix_fmt rgb24"),
        ("gray", "-pix_fmt gray"),
        // NUT has no name for this one, so that it must not be taken from the probe.
        ("p010le", "-pix_fmt p010le"),
        ("161x121:rgb24", "-s 161x121 -pix_fmt rgb24"),
        ("160x120", "-s 160x120"),
    ] {
        assert_same_bytes(&ours(&clip, &wish(asked)), &reference(&clip, extra), asked);
    }
}

/// A clip that was recorded upright, as phones do.
fn rotated(dir: &Path, name: &str, pixel: &str) -> PathBuf {
    let flat = make(
        dir,
        &format!("flat-{name}"),
        &format!("{} -c:v mjpeg -pix_fmt {pixel}", scene("64x48")),
    );
    make(dir, name, &format!("-i {} -metadata:s:v rotate=90 -c copy", flat.display()))
}

#[test]
fn rotation_swaps_the_sides_and_may_change_the_pixel_format() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    for (name, pixel) in [("r420.mov", "yuvj420p"), ("r422.mov", "yuvj422p")] {
        let format = check(&rotated(dir.path(), name, pixel));
        assert!(format.starts_with("48x64:"), "{name}: {format}");
    }
}

#[test]
fn variable_rate_is_made_constant_or_every_frame_is_given_once() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let args = "-f lavfi -i testsrc2=s=160x120:r=30:d=2 -vf select=not(mod(n\\,3))+lt(n\\,20) -vsync vfr -c:v libx264";
    let clip = make(dir.path(), "vfr.mp4", args);
    let constant = ours(&clip, &InputOptions::default());
    check(&clip);
    let once = InputOptions { sync: Some(FrameSync::EveryFrame), ..InputOptions::default() };
    let every = ours(&clip, &once);
    assert_same_bytes(&every, &reference(&clip, "-vsync passthrough"), "every frame");
    let input = open_path(&clip, &once).unwrap();
    assert_eq!(input.frame_rate(), FrameRate::new(30, 1));
    let frame_bytes = input.format().frame_bytes();
    // 20 frames at the start, then every third of the 40 others: 21, 24, ..., 57.
    assert_eq!(every.len() / frame_bytes, 33);
    assert!(constant.len() > every.len(), "the clip's rate does not vary");
}

#[test]
fn video_that_starts_after_its_sound_and_two_video_streams() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let late =
        format!("-f lavfi -i sine=d=2 -itsoffset 0.5 {} -c:v libx264 -c:a aac", scene("160x120"));
    check(&make(dir.path(), "late.mkv", &late));
    let two = format!(
        "{} {} -map 0:v -map 1:v -c:v mjpeg -disposition:v:0 0 -disposition:v:1 default",
        scene("64x48"),
        scene("160x120")
    );
    let clip = make(dir.path(), "two.mkv", &two);
    assert!(check(&clip).starts_with("160x120"), "ffmpeg takes the larger, default stream");
}

#[test]
fn rates_are_those_of_the_clip() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    for (rate, name) in [
        ("25", "a.mp4"),
        ("30000/1001", "b.mkv"),
        ("24000/1001", "c.mp4"),
        ("12.5", "d.avi"),
        ("1", "e.mkv"),
        ("120", "f.mp4"),
    ] {
        let args = format!("-f lavfi -i testsrc2=s=32x32:r={rate}:d=4 -c:v mpeg4");
        let clip = make(dir.path(), name, &args);
        let seen = open_path(&clip, &InputOptions::default()).unwrap().frame_rate().unwrap();
        let wanted: FrameRate = rate.parse().unwrap();
        assert!(
            (seen.as_f64() / wanted.as_f64() - 1.0).abs() < 1e-6,
            "{name}: {seen}, not {wanted}"
        );
    }
}

#[test]
fn a_name_that_looks_like_an_option_or_a_protocol() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let plain = make(dir.path(), "plain.mkv", &format!("{} -c:v ffv1", scene("32x32")));
    let wanted = reference(&plain, "");
    for name in ["concat:x.mkv", "with space & 'quote' %03d.mkv", "-y.mkv"] {
        let path = dir.path().join(name);
        std::fs::copy(&plain, &path).unwrap();
        assert_same_bytes(&ours(&path, &InputOptions::default()), &wanted, name);
    }
}

#[test]
fn repeating_gives_the_same_frames_again() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let clip = make(dir.path(), "a.mp4", &format!("{} -c:v libx264", scene("64x48")));
    let once = reference(&clip, "");
    let mut input =
        open_path(&clip, &InputOptions { repeat: true, ..InputOptions::default() }).unwrap();
    let mut twice = Vec::new();
    while twice.len() < 2 * once.len() {
        assert_eq!(input.read_frame(&mut twice).unwrap(), FrameRead::Frame);
    }
    assert_same_bytes(&twice, &[once.as_slice(), &once].concat(), "two rounds");
}

/// The stream is sent again and again at its own speed, as a camera does.
#[test]
fn a_live_stream_is_read_and_has_no_rate_to_pace_by() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let clip = make(dir.path(), "a.ts", &format!("{} -c:v mpeg2video -g 5", scene("160x120")));
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("udp://127.0.0.1:{port}");
    let mut sender = std::process::Command::new("ffmpeg")
        .args(["-nostdin", "-v", "quiet", "-readrate", "8", "-stream_loop", "-1", "-i"])
        .arg(&clip)
        .args(["-t", "60", "-c", "copy", "-f", "mpegts", &url])
        .spawn()
        .unwrap();
    let mut input = open(url.as_ref(), &InputOptions::default()).unwrap();
    let mut frame = Vec::new();
    for _ in 0..20 {
        frame.clear();
        assert_eq!(input.read_frame(&mut frame).unwrap(), FrameRead::Frame);
    }
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert_eq!(input.format().to_string(), "160x120:yuv420p");
    assert_eq!(input.frame_rate(), None);
    assert!(!input.rewind().unwrap());
}

/// Not compared byte for byte: where data is missing, two runs of ffmpeg alone differ.
#[test]
fn a_damaged_clip_gives_what_ffmpeg_makes_of_it() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let clip = make(dir.path(), "a.mkv", &format!("{} -c:v mjpeg -q:v 3", scene("160x120")));
    let mut bytes = std::fs::read(&clip).unwrap();
    for at in (bytes.len() / 2..bytes.len()).step_by(997) {
        bytes[at] ^= 0x55;
    }
    bytes.truncate(bytes.len() - 5000);
    std::fs::write(&clip, bytes).unwrap();
    let (ours, theirs) = (ours(&clip, &InputOptions::default()), reference(&clip, ""));
    assert_eq!(ours.len(), theirs.len());
    let sound = ours.len() / 3;
    assert_same_bytes(&ours[..sound], &theirs[..sound], "before the damage");
}

#[test]
fn errors_carry_ffmpegs_words_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("note.mp4");
    std::fs::write(&path, "this is no video").unwrap();
    let missing = InputOptions { ffmpeg: "/nowhere/ffmpeg".into(), ..InputOptions::default() };
    let error = open_path(&path, &missing).err().unwrap();
    assert!(matches!(error, InputError::FfmpegMissing { .. }), "{error}");
    assert!(error.to_string().contains("apt-get install ffmpeg"), "{error}");
    assert!(error.to_string().contains("/nowhere/ffmpeg"), "{error}");
    if !ffmpeg_is_here() {
        return;
    }
    let no_probe = InputOptions { ffprobe: "/nowhere/ffprobe".into(), ..InputOptions::default() };
    let error = open_path(&path, &no_probe).err().unwrap();
    assert!(matches!(error, InputError::FfmpegMissing { .. }), "{error}");

    let error = open_path(&path, &InputOptions::default()).err().unwrap();
    assert!(matches!(error, InputError::Ffmpeg { .. }), "{error}");
    assert!(error.to_string().contains("Invalid data found"), "{error}");
    assert!(error.to_string().contains("exit status: 1"), "{error}");

    let sound = make(dir.path(), "sound.mka", "-f lavfi -i sine=d=1 -c:a flac");
    let error = open_path(&sound, &InputOptions::default()).err().unwrap();
    assert!(error.to_string().contains("sound.mka"), "{error}");

    let odd =
        make(dir.path(), "odd.mkv", &format!("{} -c:v ffv1 -pix_fmt yuv420p16le", scene("32x32")));
    let error = open_path(&odd, &InputOptions::default()).err().unwrap();
    assert!(
        matches!(&error, InputError::FfmpegPixel { pixel, .. } if pixel == "yuv420p16le"),
        "{error}"
    );
    assert!(error.to_string().contains("--format rgb24"), "{error}");
    assert_same_bytes(&ours(&odd, &wish("rgb24")), &reference(&odd, "-pix_fmt rgb24"), "converted");

    let error = open("ffmpeg:-".as_ref(), &InputOptions::default()).err().unwrap();
    assert!(error.to_string().contains("yuv4mpegpipe"), "{error}");

    let error = open_path(&dir.path().join("absent.mp4"), &InputOptions::default()).err().unwrap();
    assert!(matches!(error, InputError::NotFound(_)), "{error}");
}
