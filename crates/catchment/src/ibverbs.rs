//! Settings of the RDMA devices that a source or collector opens for itself, through libibverbs.
//!
//! ```
//! use catchment::ibverbs::IbverbsOptions;
//!
//! let options = IbverbsOptions {
//!     path_mtu: Some(1024),
//!     ..IbverbsOptions::default()
//! };
//! # drop(options);
//! ```
pub use catchment_provider_ibverbs::IbverbsOptions;
