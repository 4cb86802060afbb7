//! What a Welcome must be, beyond the checks of the state machine, for this library to work with it.
use crate::session::check::NUMBER_MAX;
use crate::session::message::{DEVICES_MAX, Welcome};
use crate::session::refusal::{Refusal, RefusalCode};
use catchment_transfer::{RemoteRing, RingLayout};

/// What the state machine leaves to the engine: that this source can work with it.
pub fn check_welcome(welcome: &Welcome) -> Result<(), Refusal> {
    let layout = layout_of(welcome)?;
    let ring = &welcome.ring;
    if ring.addr.checked_add(layout.total_bytes() as u64).is_none() {
        return Err(unusable(&format!(
            "a ring of {} bytes at address {:#x} goes beyond the last address",
            layout.total_bytes(),
            ring.addr
        )));
    }
    for grant in &welcome.streams {
        if grant.stream as usize >= DEVICES_MAX {
            let what = format!("device {} has stream {}", grant.device, grant.stream);
            return Err(unusable(&format!("{what}; 0 to {} are possible", DEVICES_MAX - 1)));
        }
        if grant.next_packet.is_some_and(|next| next >= NUMBER_MAX) {
            return Err(unusable(&format!(
                "device {} has no packet number left at the collector",
                grant.device
            )));
        }
    }
    Ok(())
}

/// The ring that it grants.
pub(super) fn ring_of(welcome: &Welcome) -> Result<RemoteRing, Refusal> {
    Ok(RemoteRing { addr: welcome.ring.addr, rkey: welcome.ring.rkey, layout: layout_of(welcome)? })
}

fn layout_of(welcome: &Welcome) -> Result<RingLayout, Refusal> {
    let ring = &welcome.ring;
    let layout = RingLayout::new(ring.blocks, ring.block_bytes).map_err(|e| unusable(&e))?;
    if layout.hash() == ring.layout_hash {
        return Ok(layout);
    }
    Err(unusable(&format!(
        "layout hash {:#x} of the ring, this source computes {:#x}",
        ring.layout_hash,
        layout.hash()
    )))
}

/// Returns the refusal of a Welcome that this library cannot work with.
pub fn unusable(what: &dyn std::fmt::Display) -> Refusal {
    let remedy = "use source and collector of the same version on the same host";
    Refusal::new(RefusalCode::BadRing, what.to_string(), remedy)
}
