//! Raw frames: what they look like in memory ([`format`](mod@format)) and where they come from
//! ([`input`]).
//!
//! - In: video files and streams through ffmpeg, Y4M and raw bytes from files and pipes, directories
//!   of pictures (feature `pictures`), a synthetic pattern.
//! - Out: whole frames of one [`FrameFormat`](format::FrameFormat), written into the caller's
//!   [`FrameBuffer`](input::FrameBuffer), such as a block of registered memory: one copy from a pipe
//!   to that block.
//! - Promises: an input yields only whole frames, all of one format; a format is always within its
//!   limits, so its size in bytes cannot overflow; every error names the input and the remedy.
//!   Nothing here paces: an input yields frames as fast as they are read, and [`input::pace`] says
//!   when to read.
//!
//! It knows nothing of verbs, sessions or the network. Inputs that need system calls without a safe
//! wrapper (cameras by V4L2) get a module of their own here, the only one that may be unsafe.
#![deny(unsafe_code)]

pub mod format;
pub mod input;
