//! The synthetic pattern: the same bytes for the same numbers, different ones otherwise.
use catchment_media::format::{FrameFormat, PixelFormat};
use catchment_media::input::{FrameRead, InputOptions, Pattern, open};
use std::collections::HashSet;
use std::hint::black_box;
use std::time::Duration;

#[test]
fn a_frame_depends_on_its_number_and_not_on_what_was_drawn_before() {
    for pixel in PixelFormat::ALL {
        for (width, height) in [(161, 123), (64, 48), (5, 3), (1, 1)] {
            let format = FrameFormat::new(width, height, *pixel).unwrap();
            let mut used = Pattern::new(format, 3, "cam3");
            for number in [0, 1, 2, 9, 10, 99, 100, 7, 12_345_678, u64::MAX, 0] {
                let mut fresh = Pattern::new(format, 3, "cam3");
                let fresh = fresh.draw(number);
                assert_eq!(fresh.len(), format.frame_bytes());
                assert!(used.draw(number) == fresh, "{format} frame {number}");
            }
        }
    }
}

#[test]
fn frames_and_devices_differ() {
    let format: FrameFormat = "64x48:yuv420p".parse().unwrap();
    let mut seen = HashSet::new();
    for device in 0..20 {
        let mut pattern = Pattern::new(format, device, "cam");
        for number in 0..100 {
            assert!(seen.insert(pattern.draw(number).to_vec()), "device {device} frame {number}");
        }
    }
    let mut other = Pattern::new(format, 0, "cab");
    assert!(seen.insert(other.draw(0).to_vec()), "the name is in the picture");
}

/// Reads the counter back from the picture, as a person would, by comparing with pictures of
/// single digits.
#[test]
fn the_counter_can_be_read_from_the_picture() {
    let format: FrameFormat = "640x480:gray".parse().unwrap();
    let digit = |frame: &[u8], index: usize| -> Vec<u8> {
        let (left, width) = (4 + index * 72, 72);
        (4..100).flat_map(|y| frame[y * 640 + left..y * 640 + left + width].to_vec()).collect()
    };
    let mut pattern = Pattern::new(format, 0, "cam0");
    let digits: Vec<Vec<u8>> = (0..10).map(|number| digit(pattern.draw(number), 7)).collect();
    assert_eq!(digits.iter().collect::<HashSet<_>>().len(), 10);
    for number in [0u64, 7, 42, 1_234_567, 98_765_432, 1_098_765_432] {
        let frame = pattern.draw(number).to_vec();
        let read = (0..8).fold(0, |sum, index| {
            let seen = digit(&frame, index);
            sum * 10 + digits.iter().position(|known| *known == seen).expect("a digit") as u64
        });
        assert_eq!(read, number % 100_000_000);
    }
}

#[test]
fn open_draws_the_device_it_is_told() {
    let options = InputOptions {
        device: "door".to_owned(),
        device_index: 7,
        first_frame: 41,
        ..InputOptions::default()
    };
    let mut input = open("synthetic:160x120:nv12".as_ref(), &options).unwrap();
    let mut pattern = Pattern::new("160x120:nv12".parse().unwrap(), 7, "door");
    for number in [41, 42, 43] {
        let mut frame = Vec::new();
        assert_eq!(input.read_frame(&mut frame).unwrap(), FrameRead::Frame);
        assert!(frame == pattern.draw(number), "frame {number}");
    }
    assert_eq!(open("synthetic".as_ref(), &options).unwrap().format().to_string(), "640x480:rgb24");
    let message = open("synthetic:640x480:rgb42".as_ref(), &options).err().unwrap().to_string();
    assert!(
        message.contains("synthetic:640x480:rgb42") && message.contains("\"rgb42\""),
        "{message}"
    );
}

/// In processor time, best of several rounds, as other work on the machine must not count. The bound
/// is far below what is reached, so that only a gross slowdown fails.
#[test]
fn frames_are_made_at_two_gigabytes_a_second_or_more() {
    const ROUNDS: usize = 10;
    const FRAMES: usize = 50;
    for text in ["640x480:rgb24", "1920x1080:yuv420p"] {
        let spec = format!("synthetic:{text}");
        let mut input = open(spec.as_ref(), &InputOptions::default()).unwrap();
        let frame_bytes = input.format().frame_bytes();
        let mut block = Vec::with_capacity(frame_bytes);
        let mut best_gb_per_s = 0.0_f64;
        for _ in 0..ROUNDS {
            let start = processor_time();
            for _ in 0..FRAMES {
                block.clear();
                input.read_frame(&mut block).unwrap();
                black_box(&block);
            }
            let ns = (processor_time() - start).as_nanos() as f64;
            best_gb_per_s = best_gb_per_s.max((FRAMES * frame_bytes) as f64 / ns);
        }
        println!("synthetic {text}: {best_gb_per_s:.2} GB/s");
        assert!(best_gb_per_s >= 2.0, "{text}: {best_gb_per_s:.2} GB/s");
    }
}

fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
