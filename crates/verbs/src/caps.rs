//! What a device can do, as data. The conformance suite checks that these claims are true.
use crate::{RateRange, Services};

/// The operations and limits of a device.
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
    /// Most bytes of one message of any kind; of a datagram (UD) at most `path_mtu`.
    pub max_message_bytes: u64,
    /// Most outstanding READ and atomic requests of one queue pair.
    pub max_rd_atomic: u32,
    /// Path MTU in bytes; `None` where the provider has no packets.
    pub path_mtu: Option<u32>,
    /// Compare-and-swap and fetch-and-add work.
    pub atomics: bool,
    /// [`crate::SendOp::SendInvalidate`] can be posted on RC queue pairs.
    pub send_invalidate: bool,
    /// Regions can be registered with [`REMOTE_INVALIDATE`](crate::Access::REMOTE_INVALIDATE).
    /// Devices behind libibverbs let peers invalidate memory windows only, never a region that
    /// `ibv_reg_mr` made.
    pub remote_invalidate: bool,
    /// The last eight bytes of one WRITE become visible after all the others, when the WRITE is a
    /// multiple of eight bytes and ends on an eight-byte boundary.
    pub data_in_order: bool,
    /// A WRITE becomes visible after every earlier WRITE of the same queue pair. Verbs do not
    /// promise this.
    pub writes_in_order: bool,
    /// [`crate::Qp::map_remote`] works.
    pub direct: bool,
    /// [`crate::Mr::watch`] works, and with `direct` [`crate::Qp::watch_remote`] too: no
    /// process can sleep on a peer's memory over a network.
    pub doorbell: bool,
    /// Rates that [`crate::Qp::set_rate`] can keep; `None` where it is refused.
    pub rate: Option<RateRange>,
    /// [`crate::QpInit::strict`] creates queues of exactly the requested capacity. A completion
    /// queue may be larger than requested on any device: see [`crate::Cq::capacity`].
    pub strict_capacity: bool,
}

/// What two providers exchange. Those of the same wire interoperate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Memory of one kernel: it reaches processes of one host.
    Memory,
    /// RoCEv2 packets: they reach every host that the network reaches.
    RoceV2,
}

/// What is known of a provider before it is opened: each provider crate has one constant of this
/// type, and the choice between providers uses nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Its name on the command line, in JSON and in messages: 1 to 32 characters of `[a-z0-9-]`.
    pub name: &'static str,
    /// Its place in the order of preference; the lowest is the best.
    pub rank: u32,
    /// What it speaks, and so which peers it reaches.
    pub wire: Wire,
    /// An RNIC does the work: it uses only the standard's UDP port, users know its devices by name,
    /// and it can run out of memory that may be locked.
    pub is_hardware: bool,
}

/// One device of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name to open it by; unique within the provider.
    pub name: String,
    /// What the device is, in one line for users.
    pub description: String,
}
