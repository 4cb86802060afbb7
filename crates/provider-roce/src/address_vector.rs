//! The destination of packets to a peer, and the contents of an address handle. `ah` creates both.
use crate::io::Route;
use catchment_roce::wire::PathMtu;
use catchment_verbs::PortAddr;
use catchment_verbs::provider::HandleTable;

/// Address handles of one context.
const MOST: usize = 1 << 16;

/// The destination of packets to a port, and their largest size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddressVector {
    pub(crate) route: Route,
    /// The path MTU that both ends and the route allow.
    pub(crate) path_mtu: PathMtu,
}

/// What queue pairs and the engine need of an address handle.
pub(crate) struct AhCore {
    pub(crate) pd: u64,
    pub(crate) vector: AddressVector,
    pub(crate) to: PortAddr,
}

/// Returns the address handles of a device.
pub(crate) fn table() -> HandleTable<AhCore> {
    HandleTable::new("address handles of a context", MOST)
}
