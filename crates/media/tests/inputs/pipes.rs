//! Y4M and raw frames from files and pipes, cut short, slow, non-blocking and wrong.
use crate::common::{
    assert_same_bytes, dir_for_ffmpeg, make, open_path, read_all, reference, wish,
};
use catchment_media::format::{FrameFormat, FrameRate, PixelFormat};
use catchment_media::input::{
    FillError, FrameBuffer, FrameInput, FrameRead, InputError, InputOptions, RawInput, Y4mError,
    Y4mHeader, Y4mInput, open,
};
use proptest::prelude::*;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Bytes that repeat nowhere near a frame or chunk.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

/// A path by which this process opens a pipe's reading end again.
fn path_of(reader: &PipeReader) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()))
}

fn write_slowly(mut to: PipeWriter, bytes: Vec<u8>, piece: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for (index, chunk) in bytes.chunks(piece).enumerate() {
            to.write_all(chunk).unwrap();
            if index % 16 == 0 {
                // Time for the reader to empty the pipe, so that its reads end at odd places.
                thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

#[test]
fn raw_frames_through_a_pipe_in_odd_pieces() {
    let format: FrameFormat = "161x121:rgb24".parse().unwrap();
    let sent = noise(format.frame_bytes() * 5);
    let (reader, writer) = pipe().unwrap();
    let mut input = RawInput::open(&path_of(&reader), format).unwrap();
    drop(reader);
    let writer = write_slowly(writer, sent.clone(), 1013);
    assert_same_bytes(&read_all(&mut input).unwrap(), &sent, "raw");
    assert!(!input.rewind().unwrap(), "a pipe does not rewind");
    writer.join().unwrap();
}

#[test]
fn a_cut_frame_is_named_and_the_frames_before_it_are_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.raw");
    let bytes = noise(300 * 2 + 299);
    std::fs::write(&path, &bytes).unwrap();
    let mut input = open_path(&path, &wish("10x10:rgb24")).unwrap();
    let mut got = Vec::new();
    for _ in 0..2 {
        assert_eq!(input.read_frame(&mut got).unwrap(), FrameRead::Frame);
    }
    assert_same_bytes(&got, &bytes[..600], "whole frames");
    let error = input.read_frame(&mut got).unwrap_err();
    assert!(
        matches!(error, InputError::Truncated { frame: 2, seen: 299, needed: 300, .. }),
        "{error}"
    );
    let message = error.to_string();
    for part in ["cut.raw", "299 bytes seen", "300 needed", "10x10:rgb24"] {
        assert!(message.contains(part), "{message} lacks {part}");
    }
}

#[test]
fn raw_files_repeat_and_need_a_format() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.raw");
    let bytes = noise(1200);
    std::fs::write(&path, &bytes).unwrap();
    let error = open_path(&path, &InputOptions::default()).err().unwrap();
    assert!(matches!(error, InputError::NeedsFormat(_)), "{error}");
    assert!(error.to_string().contains("--format 640x480:rgb24"), "{error}");
    let options = InputOptions {
        format: "20x20:rgb24".parse().unwrap(),
        repeat: true,
        ..InputOptions::default()
    };
    let mut input = open_path(&path, &options).unwrap();
    let mut got = Vec::new();
    for _ in 0..3 {
        assert_eq!(input.read_frame(&mut got).unwrap(), FrameRead::Frame);
    }
    assert_same_bytes(&got, &bytes.repeat(3), "three rounds");
    // A repeated file without a frame ends; it does not spin.
    std::fs::write(&path, "").unwrap();
    assert_eq!(open_path(&path, &options).unwrap().read_frame(&mut got).unwrap(), FrameRead::End);
}

#[test]
fn a_non_blocking_descriptor_is_waited_for() {
    let (reader, writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    let sent = noise(200_000);
    let writer = write_slowly(writer, sent.clone(), 4099);
    let mut got = Vec::new();
    // Asks for more than comes, so the end is met as well.
    assert_eq!(got.fill_from(reader.as_fd(), 300_000).unwrap(), sent.len());
    assert_same_bytes(&got, &sent, "non-blocking");
    writer.join().unwrap();
}

struct Block(Vec<u8>, usize);

impl Write for Block {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let fits = bytes.len().min(self.1 - self.0.len());
        self.0.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl FrameBuffer for Block {}

#[test]
fn whose_fault_a_failure_is_stays_visible() {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&[7; 100]).unwrap();
    let mut small = Block(Vec::new(), 60);
    let error = small.fill_from(reader.as_fd(), 100).unwrap_err();
    assert!(matches!(error, FillError::Write(_)), "{error}");
    assert_eq!(small.0.len(), 60);
    let error = Vec::new().fill_from(writer.as_fd(), 100).unwrap_err();
    assert!(matches!(error, FillError::Read(_)), "{error}");
    let mut input = open("synthetic:10x10:rgb24".as_ref(), &InputOptions::default()).unwrap();
    let error = input.read_frame(&mut Block(Vec::new(), 299)).unwrap_err();
    assert!(matches!(error, InputError::Buffer { .. }), "{error}");
}

#[test]
fn y4m_of_every_colour_space_is_what_ffmpeg_reads() {
    let Some(dir) = dir_for_ffmpeg() else { return };
    let pixels = "yuv420p yuv411p yuv422p yuv444p yuva444p gray gray10le gray12le gray16le \
                  yuv420p10le yuv422p10le yuv444p10le yuv420p12le yuv422p12le yuv444p12le yuvj420p";
    for pixel in pixels.split(' ') {
        let args = format!(
            "-f lavfi -i testsrc2=s=67x49:r=30000/1001:d=0.2 -pix_fmt {pixel} -strict -1 -f yuv4mpegpipe"
        );
        let clip = make(dir.path(), &format!("{pixel}.y4m"), &args);
        let mut input = Y4mInput::open(&clip).unwrap();
        let wanted = reference(&clip, "");
        assert_same_bytes(&read_all(&mut input).unwrap(), &wanted, pixel);
        assert_eq!(Some(input.format().pixel()), PixelFormat::from_name(pixel));
        assert_eq!(input.frame_rate(), FrameRate::new(30_000, 1001));
        assert!(input.rewind().unwrap());
        assert_same_bytes(&read_all(&mut input).unwrap(), &wanted, "second round");
    }
    // Asked for something else, the file is converted by ffmpeg.
    let clip = dir.path().join("yuv444p.y4m");
    let mut input = open_path(&clip, &wish("rgb24")).unwrap();
    assert_same_bytes(
        &read_all(&mut *input).unwrap(),
        &reference(&clip, "-pix_fmt rgb24"),
        "converted",
    );
}

fn y4m(bytes: &[u8]) -> Result<Vec<u8>, InputError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.y4m");
    std::fs::write(&path, bytes).unwrap();
    read_all(&mut Y4mInput::open(&path)?)
}

#[test]
fn y4m_frame_parameters_and_unknown_fields_are_skipped() {
    let stream =
        b"YUV4MPEG2 H2 W2 F0:0 Ip A0:0 Cmono XYSCSS=MONO Q\nFRAME Ixyz Xc\nabcdFRAME\nefgh";
    assert_eq!(y4m(stream).unwrap(), b"abcdefgh");
}

#[test]
fn y4m_errors_name_the_field_and_the_frame() {
    let long = [b"YUV4MPEG2 W2 H2 ".as_slice(), &[b'X'; 5000]].concat();
    for (stream, part) in [
        (b"RIFF....AVI ".as_slice(), "starts with \"RIFF....A\""),
        (b"", "starts with"),
        (b"YUV4MPEG2 W2 Cmono\n", "no H (height)"),
        (b"YUV4MPEG2 W2 H-2 Cmono\n", "height \"-2\""),
        (b"YUV4MPEG2 W2 H2 F25 Cmono\n", "frame rate \"25\""),
        (b"YUV4MPEG2 W2 H2 C420p9\n", "\"420p9\""),
        (b"YUV4MPEG2 W0 H2\n", "width 0"),
        (b"YUV4MPEG2 W65535 H65535 C444p12\n", "choose a smaller size"),
        (b"YUV4MPEG2 W2 H2", "no end within"),
        (&long, "no end within 4096 bytes"),
        (b"YUV4MPEG2x W2 H2\n", "starts with"),
        (b"YUV4MPEG2 W2 H2 Cmono\nabcdFRAME\n", "frame 0 starts with \"abcdFR\""),
        (b"YUV4MPEG2 W2 H2 Cmono\nFRAME\nabcdFRAM", "frame 1 starts with \"FRAM\""),
        (b"YUV4MPEG2 W2 H2 Cmono\nFRAME\nabc", "3 bytes seen, 4 needed"),
        (b"YUV4MPEG2 W2 H2 Cmono\nFRAME\nabcdFRAME\n", "inside frame 1: 0 bytes seen"),
        (b"YUV4MPEG2 W2 H2 Cmono\nFRAME", "no end within"),
    ] {
        let message = y4m(stream).unwrap_err().to_string();
        assert!(
            message.contains(part),
            "{:?}: {message:?} lacks {part:?}",
            String::from_utf8_lossy(stream)
        );
    }
}

const STDIN_VAR: &str = "CATCHMENT_TEST_STDIN_FORMAT";
const OUT_VAR: &str = "CATCHMENT_TEST_STDIN_OUT";

/// Runs this program again with `bytes` on stdin and returns what `open("-")` made of them.
fn through_stdin(bytes: &[u8], format: &str) -> Result<Vec<u8>, String> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pipes::reader_of_stdin", "--nocapture"])
        .env(STDIN_VAR, format)
        .env(OUT_VAR, &out)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // A reader that refuses the first bytes closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    assert!(child.wait().unwrap().success());
    std::fs::read(&out).map_err(|_| std::fs::read_to_string(out.with_extension("error")).unwrap())
}

/// Not a test by itself: the other process of [`through_stdin`].
#[test]
fn reader_of_stdin() {
    let (Ok(format), Some(out)) = (std::env::var(STDIN_VAR), std::env::var_os(OUT_VAR)) else {
        return;
    };
    let format = if format.is_empty() { Default::default() } else { format.parse().unwrap() };
    let options = InputOptions { format, ..InputOptions::default() };
    let out = PathBuf::from(out);
    match open("-".as_ref(), &options).and_then(|mut input| read_all(&mut *input)) {
        Ok(bytes) => std::fs::write(out, bytes).unwrap(),
        Err(error) => std::fs::write(out.with_extension("error"), error.to_string()).unwrap(),
    }
}

#[test]
fn stdin_is_y4m_or_raw_with_a_format() {
    let raw = noise(640 * 480 * 3 * 2);
    assert_same_bytes(&through_stdin(&raw, "640x480:rgb24").unwrap(), &raw, "raw stdin");
    let y4m = [
        b"YUV4MPEG2 W640 H480 F25:1 C444\nFRAME\n".as_slice(),
        &raw[..921_600],
        b"FRAME\n",
        &raw[921_600..],
    ]
    .concat();
    assert_same_bytes(&through_stdin(&y4m, "").unwrap(), &raw, "y4m stdin");
    let refused = through_stdin(&raw, "").unwrap_err();
    assert!(refused.contains("input -") && refused.contains("--format 640x480:rgb24"), "{refused}");
}

fn any_header() -> impl Strategy<Value = Y4mHeader> {
    let names = ["420", "422", "444alpha", "mono", "mono16", "420p10", "444p12", "411"];
    (1u32..5000, 1u32..5000, 0u32..100_000, 0u32..2000, prop::sample::select(names.to_vec()))
        .prop_map(|(width, height, num, den, colour)| {
            Y4mHeader::parse(
                format!("YUV4MPEG2 C{colour} W{width} H{height} F{num}:{den}").as_bytes(),
            )
            .unwrap()
        })
}

proptest! {
    #[test]
    fn headers_come_back(header in any_header()) {
        prop_assert_eq!(Y4mHeader::parse(header.to_string().as_bytes()).unwrap(), header);
    }

    #[test]
    fn any_header_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..80), tail in "[WHFCIA][0-9:p]{0,8}( [WHFC][0-9:p]{0,8}){0,4}") {
        let refused = matches!(Y4mHeader::parse(&line), Err(Y4mError::Magic(_)));
        prop_assert!(refused || line.starts_with(b"YUV4MPEG2"));
        let _ = Y4mHeader::parse(format!("YUV4MPEG2 {tail}").as_bytes());
    }

    #[test]
    fn any_stream_ends_or_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = y4m(&[b"YUV4MPEG2 W3 H3 Cmono\nFRAME\n".as_slice(), &bytes].concat());
    }
}
