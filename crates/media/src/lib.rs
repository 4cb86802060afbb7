//! Raw frames: what they look like in memory ([`format`](mod@format)) and where they come from
//! ([`input`]).
//!
//! - In: video files and streams through ffmpeg, Y4M and raw bytes from files and pipes, directories
//!   of pictures (feature `pictures`), a synthetic pattern.
//! - Out: whole frames of one [`FrameFormat`](format::FrameFormat), written where the caller says:
//!   any [`FrameBuffer`](input::FrameBuffer), such as a block of registered memory. So a frame goes
//!   from a pipe into that block with one copy.
//! - Promises: an input gives only whole frames, all of the same format; a format is always within
//!   its limits, so that its number of bytes cannot overflow; what is wrong with an input is said
//!   with its name and with what to do. Nothing here paces: an input gives frames as fast as it is
//!   asked, and [`input::pace`] says when to ask.
//!
//! It knows nothing of verbs, sessions or the network. Inputs that need system calls without a safe
//! wrapper (cameras by V4L2) get a module of their own here, the only one that may be unsafe.
#![deny(unsafe_code)]

pub mod format;
pub mod input;
