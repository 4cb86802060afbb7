//! What a device can do, as data. The conformance suite proves that a provider tells the truth.
use crate::Services;
use bitflags::bitflags;

bitflags! {
    /// Rights on a memory region (IBTA 10.6.3; `ibv_reg_mr(3)`).
    ///
    /// Local reading is always allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// Receives and READ responses may land here.
        const LOCAL_WRITE = 1;
        /// A peer may WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may READ.
        const REMOTE_READ = 1 << 2;
        /// A peer may compare-and-swap and fetch-and-add.
        const REMOTE_ATOMIC = 1 << 3;
        /// A peer may take the region's rkey away, by SEND with invalidate
        /// ([`Caps::remote_invalidate`]). Local use of the region goes on.
        const REMOTE_INVALIDATE = 1 << 19;
        /// The device may place writes in any order (`IBV_ACCESS_RELAXED_ORDERING`).
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// The rights that let a peer reach the region's bytes.
    pub const REMOTE: Access = Access::REMOTE_WRITE
        .union(Access::REMOTE_READ)
        .union(Access::REMOTE_ATOMIC);

    /// Whether a peer may reach the region at all.
    pub fn is_remote(self) -> bool {
        self.intersects(Access::REMOTE)
    }
}

/// What a device can do and how much of it.
///
/// Limits are inclusive. A request beyond a limit is refused with an error that names the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// Services that queue pairs can have; RC is always there.
    pub services: Services,
    /// Most send requests outstanding on one queue pair.
    pub max_send_wr: u32,
    /// Most receive requests outstanding on one queue pair.
    pub max_recv_wr: u32,
    /// Most scatter-gather elements of one request.
    pub max_sge: u32,
    /// Most bytes of inline data in one request.
    pub max_inline_bytes: u32,
    /// Most entries of one completion queue.
    pub max_cqe: u32,
    /// Most bytes of one message of any kind; of a datagram (UD) no more than `path_mtu`.
    pub max_message_bytes: u64,
    /// Most outstanding READ and atomic requests of one queue pair.
    pub max_rd_atomic: u32,
    /// Path MTU in bytes; `None` where the provider has no packets.
    pub path_mtu: Option<u32>,
    /// Compare-and-swap and fetch-and-add work.
    pub atomics: bool,
    /// [`crate::SendOp::SendInvalidate`] can be posted on RC queue pairs.
    pub send_invalidate: bool,
    /// Regions can be registered with [`Access::REMOTE_INVALIDATE`]. Devices behind libibverbs let
    /// peers invalidate memory windows only, never a region that `ibv_reg_mr` made.
    pub remote_invalidate: bool,
    /// The last eight bytes of one WRITE become visible after all the others, when the WRITE is a
    /// multiple of eight bytes and ends on an eight-byte boundary.
    pub data_in_order: bool,
    /// A WRITE becomes visible after every earlier WRITE of the same queue pair. Verbs do not
    /// promise this.
    pub writes_in_order: bool,
    /// [`crate::Qp::map_remote`] works.
    pub direct: bool,
    /// [`crate::Mr::watch`] works, and with `direct` [`crate::Qp::watch_remote`] too: over a network
    /// nobody can sleep on the memory of a peer.
    pub doorbell: bool,
    /// [`crate::QpInit::strict`] gives queues of exactly the requested capacity. A completion queue
    /// may be larger than asked for anywhere: [`crate::Cq::capacity`] says what it is.
    pub strict_capacity: bool,
}

/// One device of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name to open it by; unique within the provider.
    pub name: String,
    /// One line for a person: what the device is.
    pub description: String,
}
