//! Settings of the RoCEv2 devices that a source or collector opens for itself.
//!
//! ```
//! use catchment::roce::{PathMtu, RoceOptions};
//!
//! let options = RoceOptions {
//!     path_mtu: Some(PathMtu::Mtu1024),
//!     ..RoceOptions::default()
//! };
//! # drop(options);
//! ```
pub use catchment_provider_roce::{FaultParseError, Faults, PathMtu, RoceOptions};
