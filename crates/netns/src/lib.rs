//! Hosts in one: network namespaces joined by a veth pair, by a long path, or by a router before a link that sources share; and such
//! a link on this host where there may be no namespaces.
//!
//! The namespaces have no name. They exist while a descriptor, a thread or a socket refers to them, so
//! nothing is left behind, however the process ends.
//!
//! Creating one needs `CAP_SYS_ADMIN`. [`with_privilege`] runs a test that lacks it in a user namespace
//! of its own (`unshare(1)`).
//!
//! [`in_own_process`] is for tests that inspect all threads or descriptors of their process;
//! [`children_of`], [`running`] and [`wait_until`] are for those that inspect other processes.
#![deny(unsafe_code)]
#[allow(unsafe_code, reason = "no crate at hand wraps the count of a socket's drops")]
mod detour;
#[allow(unsafe_code, reason = "no crate at hand wraps sched_setscheduler(2)")]
mod line;
#[allow(unsafe_code, reason = "unshare(2) is an unsafe call")]
mod namespace;
mod privilege;
mod process;
#[allow(unsafe_code, reason = "no crate at hand wraps the request that makes a TUN interface")]
mod relay;
mod shared_link;
mod star;

pub use detour::Detour;
pub use namespace::{Namespace, NetnsError, VethPair};
pub use privilege::{again_with_privilege, has_privilege, why_no_user_namespace, with_privilege};
pub use process::{children_of, in_own_process, running, wait_until};
pub use relay::{LongPath, PathCounts, PathSpec};
pub use shared_link::SharedLink;
pub use star::{QueueCounts, Star, StarSpec};
