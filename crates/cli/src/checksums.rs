//! `catchment checksums`: checksums of the frames of an input, for tests that check what arrived.
use crate::args::ChecksumsArgs;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output;
use catchment::input::{FrameRead, InputOptions, open};
use std::fmt::Write as _;

pub(crate) fn run(args: &ChecksumsArgs) -> Result<(), Failure> {
    let number = args.device_index;
    let options = InputOptions {
        device: args.device.clone().unwrap_or_else(|| format!("cam{number}")),
        device_index: number,
        ..InputOptions::default()
    };
    let mut input = open(&args.input, &options).or_fail(Code::Input)?;
    let mut frame = Vec::new();
    let mut text = String::new();
    for _ in 0..args.frames {
        frame.clear();
        if input.read_frame(&mut frame).or_fail(Code::Input)? == FrameRead::End {
            break;
        }
        let _ = writeln!(text, "{:08x}", crc32c::crc32c(&frame));
    }
    output::print(&text)
}
