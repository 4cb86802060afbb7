//! Frame formats: sizes are ffmpeg's, texts come back, bad ones say why.
use crate::common::ffmpeg_is_here;
use catchment_media::format::{FormatWish, FrameFormat, FrameRate, PixelFormat};
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;

#[test]
fn frame_bytes_are_those_of_ffmpeg_in_every_format_and_parity() {
    if !ffmpeg_is_here() {
        return;
    }
    for (width, height) in [(7, 5), (8, 6), (1, 1), (10, 3)] {
        let formats: Vec<FrameFormat> = PixelFormat::ALL
            .iter()
            .map(|pixel| FrameFormat::new(width, height, *pixel).unwrap())
            .collect();
        let theirs = bytes_by_ffmpeg(&formats);
        for (format, theirs) in formats.iter().zip(theirs) {
            assert_eq!(format.frame_bytes(), theirs, "{format}");
        }
    }
}

/// What ffmpeg takes for one raw frame of /dev/zero in each format: the size column of framecrc.
fn bytes_by_ffmpeg(formats: &[FrameFormat]) -> Vec<usize> {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "error"]);
    for format in formats {
        let size = format!("{}x{}", format.width(), format.height());
        ffmpeg.args(["-f", "rawvideo", "-pix_fmt", format.pixel().name()]);
        ffmpeg.args(["-s", &size, "-i", "/dev/zero"]);
    }
    let dir = tempfile::tempdir().unwrap();
    let table = |index: usize| dir.path().join(index.to_string());
    for index in 0..formats.len() {
        ffmpeg.args(["-map", &index.to_string(), "-frames:v", "1", "-c", "copy"]);
        ffmpeg.args(["-f", "framecrc"]).arg(table(index));
    }
    assert!(ffmpeg.status().unwrap().success());
    (0..formats.len()).map(|index| size_column(&table(index))).collect()
}

fn size_column(table: &Path) -> usize {
    let text = std::fs::read_to_string(table).unwrap();
    let line = text.lines().find(|line| !line.starts_with('#')).unwrap();
    line.split(',').nth(4).unwrap().trim().parse().unwrap()
}

#[test]
fn known_sizes() {
    for (text, bytes) in [
        ("640x480:rgb24", 921_600),
        ("1920x1080:yuv420p", 3_110_400),
        ("641x481:nv12", 641 * 481 + 2 * 321 * 241),
        ("640x480:gray16le", 614_400),
        ("65535x5461:rgb24", 1_073_659_905),
    ] {
        assert_eq!(text.parse::<FrameFormat>().unwrap().frame_bytes(), bytes, "{text}");
    }
}

#[test]
fn errors_name_the_part_the_value_and_an_example() {
    for (text, parts) in [
        ("640x480:rgb42", ["\"rgb42\"", "rgb24", "640x480:rgb24"]),
        ("640:rgb24", ["\"640\"", "WIDTHxHEIGHT", "640x480:rgb24"]),
        ("0x480:rgb24", ["width", "0", "640x480:rgb24"]),
        ("640x65536:rgb24", ["height", "65536", "640x480:rgb24"]),
        ("640x-1:rgb24", ["height", "\"-1\"", "640x480:rgb24"]),
        ("+640x480:rgb24", ["width", "\"+640\"", "640x480:rgb24"]),
        ("640x480", ["640x480", "the pixel format", "640x480:rgb24"]),
        ("rgb24", ["rgb24", "the size", "640x480:rgb24"]),
        ("", ["\"\"", "pixel format", "640x480:rgb24"]),
        ("640x480:", ["\"\"", "unknown pixel format", "640x480:rgb24"]),
        ("65535x65535:rgb24", ["65535x65535", "12884508675", "smaller"]),
        ("640x480:rgb24\u{1b}[31m", ["\\u{1b}", "unknown pixel format", "640x480:rgb24"]),
    ] {
        let message = text.parse::<FrameFormat>().unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{text:?}: {message:?} lacks {part:?}");
        }
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }
}

#[test]
fn one_gibibyte_is_the_limit() {
    assert!("32768x32768:gray".parse::<FrameFormat>().is_ok());
    assert!("32768x32769:gray".parse::<FrameFormat>().is_err());
}

#[test]
fn names_are_unique_and_aliases_understood() {
    for pixel in PixelFormat::ALL {
        assert_eq!(PixelFormat::from_name(pixel.name()), Some(*pixel));
    }
    assert_eq!(PixelFormat::from_name("gray8"), Some(PixelFormat::Gray8));
    assert_eq!(PixelFormat::from_name("yuvj422p"), Some(PixelFormat::Yuv422p));
    assert_eq!(PixelFormat::from_name("RGB24"), None);
}

#[test]
fn a_format_is_a_json_string() {
    let format: FrameFormat = "640x480:yuv420p10le".parse().unwrap();
    let json = serde_json::to_string(&format).unwrap();
    assert_eq!(json, "\"640x480:yuv420p10le\"");
    assert_eq!(serde_json::from_str::<FrameFormat>(&json).unwrap(), format);
    assert!(serde_json::from_str::<FrameFormat>("\"0x0:rgb24\"").is_err());
}

#[test]
fn wishes_have_either_part() {
    let wish: FormatWish = "320x200".parse().unwrap();
    assert_eq!((wish.size, wish.pixel), (Some((320, 200)), None));
    let wish: FormatWish = "nv12".parse().unwrap();
    assert_eq!((wish.size, wish.pixel), (None, Some(PixelFormat::Nv12)));
    assert_eq!(wish.whole().unwrap(), None);
}

#[test]
fn rates_are_read_and_refused() {
    for (text, num, den) in
        [("25", 25, 1), ("30000/1001", 30_000, 1001), ("29.97", 2997, 100), (".5", 5, 10)]
    {
        assert_eq!(text.parse::<FrameRate>().ok(), FrameRate::new(num, den), "{text}");
    }
    for text in "0,,-1,25/0,0/1,1/2/3,2.5.1,99999999999,25fps,0.0000000001,+5".split(',') {
        let message = text.parse::<FrameRate>().unwrap_err().to_string();
        assert!(
            message.contains(&format!("{text:?}")) && message.contains("30000/1001"),
            "{message}"
        );
    }
}

proptest! {
    #[test]
    fn display_and_parse_are_inverse(width in 1u32..=65_535, height in 1u32..=65_535, index in any::<prop::sample::Index>()) {
        if let Ok(format) = FrameFormat::new(width, height, *index.get(PixelFormat::ALL)) {
            prop_assert_eq!(format.to_string().parse::<FrameFormat>().unwrap(), format);
            prop_assert!(format.frame_bytes() <= 1 << 30);
            // No plane is empty, so no format has frames of nothing.
            prop_assert!(format.frame_bytes() >= (width * height) as usize);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}|[0-9x:]{0,20}(rgb24)?") {
        if let Ok(format) = text.parse::<FrameFormat>() {
            prop_assert_eq!(format.to_string().parse::<FrameFormat>().unwrap(), format);
        }
        let _ = text.parse::<FormatWish>();
        let _ = text.parse::<FrameRate>();
    }
}
