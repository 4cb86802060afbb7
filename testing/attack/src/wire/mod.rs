//! Small encoders of their own, written by the specifications.
pub(crate) mod http;
pub(crate) mod relay;
pub(crate) mod roce;
pub(crate) mod session;
pub(crate) mod shm;
pub(crate) mod tls;
