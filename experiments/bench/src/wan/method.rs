//! Who sends how.
use catchment_sim::admission::Policy;
use std::fmt::Write as _;

/// DSCP EF: what a network with bands carries first.
pub(super) const URGENT_DSCP: u8 = 46;

/// A method; each on the same events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, derive_more::Display)]
pub(crate) enum Method {
    /// RoCE without a controller: go-back-N
    #[display("plain")]
    Plain,
    /// The same, and a bottleneck that carries the urgent source's packets first
    #[display("spq")]
    Spq,
    /// A controller that grants frames in the order of requests (RDMA-TCM as we read it)
    #[display("fifo")]
    Fifo,
    /// A controller that grants frames, urgent ones first (P-RDMA-TCM as we read it)
    #[display("priority")]
    Priority,
    /// The controller as it ships
    #[display("deadline")]
    Deadline,
    /// A TCP stream for each source, CUBIC
    #[display("kernel-cubic")]
    KernelCubic,
    /// A TCP stream for each source, BBR
    #[display("kernel-bbr")]
    KernelBbr,
}

impl Method {
    /// Returns the policy of its controller.
    pub(super) const fn policy(self) -> Option<Policy> {
        match self {
            Self::Fifo => Some(Policy::Fifo),
            Self::Priority => Some(Policy::Priority),
            Self::Deadline => Some(Policy::Deadline),
            Self::Plain | Self::Spq | Self::KernelCubic | Self::KernelBbr => None,
        }
    }

    /// Returns the kernel's name of its congestion control, where it is TCP.
    pub(super) const fn congestion(self) -> Option<&'static str> {
        match self {
            Self::KernelCubic => Some("cubic"),
            Self::KernelBbr => Some("bbr"),
            Self::Plain | Self::Spq | Self::Fifo | Self::Priority | Self::Deadline => None,
        }
    }

    /// Returns why it needs the queues of a kernel between namespaces, if it does.
    pub(super) const fn why_no_relay(self) -> Option<&'static str> {
        match self {
            Self::Spq => Some("the relay has one queue for all classes"),
            Self::KernelCubic | Self::KernelBbr => {
                Some("the relay carries packets of RoCE; TCP goes past it")
            }
            Self::Plain | Self::Fifo | Self::Priority | Self::Deadline => None,
        }
    }

    /// Returns how many frames a source may have on their way or waiting for a grant: a request at a time, where the
    /// paper has it so.
    pub(super) const fn blocks(self) -> u32 {
        match self {
            Self::Fifo | Self::Priority => 1,
            Self::Plain | Self::Spq | Self::Deadline | Self::KernelCubic | Self::KernelBbr => 64,
        }
    }

    /// Returns the controller's file, for a link and NICs of these rates.
    pub(super) fn config(
        self,
        capacity_bps: u64,
        nic_bps: u64,
        chunk_kib: u64,
        queue_bytes: u64,
        guard_us: u64,
    ) -> String {
        let mut text = String::new();
        let slot = format!("slot = \"{nic_bps}bit\"");
        let (policy, slot) = match self {
            Self::Fifo => ("fifo", slot.as_str()),
            Self::Priority => ("priority", slot.as_str()),
            Self::Plain | Self::Spq | Self::Deadline | Self::KernelCubic | Self::KernelBbr => {
                ("deadline", "")
            }
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "policy = \"{policy}\"\nchunk = \"{chunk_kib}KiB\"\n{slot}");
        let _ = writeln!(text, "[[link]]\nname = \"bottleneck\"\ncapacity = \"{capacity_bps}bit\"");
        let _ = writeln!(text, "guard = \"{guard_us}us\"\nqueue = \"{}KiB\"", queue_bytes >> 10);
        text
    }
}
