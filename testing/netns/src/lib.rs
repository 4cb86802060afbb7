//! Two hosts in one: network namespaces joined by a veth pair.
//!
//! The namespaces have no name. They live while a descriptor, a thread or a socket is in them, so
//! nothing is left behind, whatever ends the process.
//!
//! Making one needs `CAP_SYS_ADMIN`. [`with_privilege`] gets it for a test that does not have it,
//! in a user namespace of its own (`unshare(1)`).
//!
//! [`in_own_process`] is for tests that look at all threads or descriptors of their process;
//! [`children_of`], [`running`] and [`wait_until`] are for those that look at others.
#![deny(unsafe_code)]
#[allow(unsafe_code, reason = "unshare(2), the only call with a condition")]
mod namespace;
mod privilege;
mod process;

pub use namespace::{Namespace, NetnsError, VethPair};
pub use privilege::{has_privilege, with_privilege};
pub use process::{children_of, in_own_process, running, wait_until};
