//! A run as a packet capture.
use crate::{Event, EventKind, Observer};
use catchment_roce::pcap;
use catchment_roce::wire::NetHeader;

/// Records every packet that a node offers to a link, with virtual time, in libpcap format: write
/// [`Capture::bytes`] to a file and open it with Wireshark.
#[derive(Debug, Clone)]
pub(crate) struct Capture {
    bytes: Vec<u8>,
}

impl Default for Capture {
    fn default() -> Self {
        Self { bytes: pcap::file_header().to_vec() }
    }
}

impl Capture {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Observer for Capture {
    fn event(&mut self, event: &Event<'_>) {
        let offered = matches!(event.kind, EventKind::Offered(_));
        if let (true, Ok((net, datagram))) = (offered, NetHeader::decode(event.frame.bytes())) {
            pcap::append(&mut self.bytes, event.at, &net, datagram);
        }
    }
}
