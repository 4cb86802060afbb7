//! What is shown of the data paths: sessions, and software RoCE devices.
use crate::sync::lock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The path of one session: which provider each side uses, between which queue pairs, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// The other end of the control connection.
    pub peer: String,
    /// Devices whose frames go through it.
    pub devices: u64,
    /// The collector's provider.
    pub provider: String,
    /// The source's provider.
    pub source_provider: String,
    /// GID of the collector's queue pair, 32 hexadecimal digits.
    pub collector_gid: String,
    /// GID of the source's queue pair.
    pub source_gid: String,
    /// Number of the collector's queue pair.
    pub collector_qpn: u32,
    /// Number of the source's queue pair.
    pub source_qpn: u32,
    /// Network address of the collector's queue pair; `None` where there are no packets.
    pub collector_address: Option<String>,
    /// Network address of the source's queue pair.
    pub source_address: Option<String>,
    /// Payload of a full packet in bytes.
    pub path_mtu: Option<u32>,
    /// How losses are repaired: `selective repeat` or `go-back-N`.
    pub recovery: Option<String>,
    /// Why these providers.
    pub reason: String,
    /// The queues of this end's queue pair; `None` where they are not known yet.
    pub queues: Option<QueueSizes>,
}

/// How much the queues of a queue pair hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSizes {
    /// Send requests outstanding at once.
    pub send: u32,
    /// Receives outstanding at once: none is ever posted where this is 0.
    pub receive: u32,
    /// Completions that the completion queue has room for, as the provider made it: it may have
    /// rounded up.
    pub completions: u32,
}

impl SessionSnapshot {
    /// Creates a session between these providers, of which nothing else is known.
    pub fn new(provider: &str, source_provider: &str, reason: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            source_provider: source_provider.to_owned(),
            reason: reason.to_owned(),
            ..Self::default()
        }
    }
}

impl std::fmt::Display for SessionSnapshot {
    /// One line for a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = |provider: &str, address: &Option<String>, gid: &str, qpn: u32| {
            let at = address.as_deref().unwrap_or(gid);
            format!("{provider} at {at} (QPN {qpn})")
        };
        let source =
            end(&self.source_provider, &self.source_address, &self.source_gid, self.source_qpn);
        let collector =
            end(&self.provider, &self.collector_address, &self.collector_gid, self.collector_qpn);
        write!(f, "{source} to {collector}")?;
        if let Some(path_mtu) = self.path_mtu {
            write!(f, ", path MTU {path_mtu}")?;
        }
        match &self.recovery {
            Some(recovery) => write!(f, ", {recovery}"),
            None => Ok(()),
        }
    }
}

/// Counters of a software RoCEv2 device since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoceSnapshot {
    /// Where it listens: address and UDP port.
    pub device: String,
    /// Queue pairs now.
    pub queue_pairs: u64,
    /// Packets handed to the kernel, acknowledgements and those sent again too.
    pub packets_sent: u64,
    /// Their bytes, without the headers of UDP and below.
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Packets found lost by later ones that arrived.
    pub lost: u64,
    /// Packets sent again that had arrived.
    pub spurious: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// NAKs for a gap in the sequence, received.
    pub sequence_naks_received: u64,
    /// NAKs for a gap in the sequence, sent.
    pub sequence_naks_sent: u64,
    /// Duplicates received.
    pub duplicates: u64,
    /// Packets received before an earlier one.
    pub out_of_order: u64,
    /// Congestion notifications received.
    pub cnps_received: u64,
    /// Packets that the kernel refused to send.
    pub refused_packets: u64,
    /// Packets received and dropped, by reason; reasons that never occurred are absent.
    pub dropped: BTreeMap<String, u64>,
    /// The kernel cuts trains for this device.
    pub gso: bool,
    /// The kernel merges packets for this device.
    pub gro: bool,
}

/// Returns the numbers of the devices that are open now.
type Ask = dyn Fn() -> Vec<RoceSnapshot> + Send + Sync;

/// Source of the numbers of the devices, once there are any.
#[derive(Default)]
pub(crate) struct Devices(Mutex<Option<Arc<Ask>>>);

impl Devices {
    pub(crate) fn set(&self, ask: impl Fn() -> Vec<RoceSnapshot> + Send + Sync + 'static) {
        *lock(&self.0) = Some(Arc::new(ask));
    }

    pub(crate) fn ask(&self) -> Vec<RoceSnapshot> {
        // Nobody waits for the lock while devices are asked.
        let ask = lock(&self.0).clone();
        ask.map_or(Vec::new(), |ask| ask())
    }

    /// Asks once more, and returns that from now on.
    pub(crate) fn end(&self) {
        let last = self.ask();
        self.set(move || last.clone());
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Devices")
    }
}
