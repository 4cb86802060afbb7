//! Formats, inputs and pacing, as a program that uses the crate sees them.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "test names say it; a failed unwrap fails the test"
)]

mod common;
mod ffmpeg;
mod ffmpeg_child;
mod format;
mod images;
mod pace;
mod pipes;
mod synthetic;
