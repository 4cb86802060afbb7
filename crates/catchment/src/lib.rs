//! Collects frames from many devices into collectors over RDMA.
//!
//! A [`collector`] has memory, a [`source`] has devices. The source writes the frames of its devices
//! one-sidedly into the collector's memory; there they go to a [`sink`], each [`Frame`] once, in the
//! order of its device, or counted with the reason why not. Without an RNIC the same happens through
//! shared memory or in UDP packets: [`providers`] has what this host can use, and the two sides choose
//! the best path and say why.
//!
//! # Quick start
//!
//! ```
//! use catchment::collector::Collector;
//! use catchment::source::{DeviceSpec, Source};
//! use std::time::Duration;
//!
//! let collector = Collector::builder("127.0.0.1:0")
//!     .on_frame(|frame| println!("{}: {} bytes", frame.device(), frame.bytes()))
//!     .start()?;
//!
//! let source = Source::builder(collector.local_addr().to_string())
//!     .device(DeviceSpec::new("cam0").format("64x48:rgb24".parse()?))
//!     .connect()?;
//! let mut cam0 = source.device("cam0")?;
//! let picture = vec![128; 64 * 48 * 3];
//! cam0.frame(picture.len())?.send_bytes(&picture)?;
//! source.close(Duration::from_secs(10))?;
//!
//! assert_eq!(collector.stop().totals.frames_received, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! All are on by default; without them the library is the same with less.
//!
//! | feature | what | brings |
//! |---|---|---|
//! | `live-page` | the live page of a collector | a web server, a PNG encoder |
//! | `pictures` | directories of PNG and JPEG files as inputs | picture codecs |
//! | `certificates` | making certificates | a maker of certificates |
#![forbid(unsafe_code)]

pub mod collector;
pub mod ibverbs;
mod in_clear;
pub mod perf;
pub mod roce;
pub mod source;

pub use catchment_media::{format, input};
pub use catchment_observe as observe;
pub use catchment_providers as providers;
pub use catchment_session as session;
pub use catchment_sink::{self as sink, Frame};
