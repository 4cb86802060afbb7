//! Cleanup: what was acquired is given back in the order in which it depends on each other.
//!
//! The queue pair first: nothing moves any more and nothing completes. Then the memory that it could
//! reach, the completion queue, the channel that it woke, the protection domain, and the device. The
//! same order serves the orderly end, a failure at any step of the way up, and a peer that died.
use super::qp::ManagedQp;
use catchment_verbs::{CompletionChannel, Context, Cq, Mr, Pd};
use std::sync::Arc;

/// Everything that an end may have acquired, in the order of cleanup.
#[derive(Default)]
pub struct Held {
    /// The queue pair.
    pub qp: Option<ManagedQp>,
    /// Registered memory.
    pub memory: Vec<Arc<dyn Mr>>,
    /// The completion queue.
    pub cq: Option<Arc<dyn Cq>>,
    /// The channel to sleep on.
    pub channel: Option<Arc<dyn CompletionChannel>>,
    /// The protection domain.
    pub pd: Option<Arc<dyn Pd>>,
    /// The device.
    pub context: Option<Arc<dyn Context>>,
}

/// Something else of the program still has an object. It lives until that one drops it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("still in use: {}", list(.objects))]
pub struct StillUsed {
    /// What, and by how many.
    pub objects: Vec<(&'static str, usize)>,
}

fn list(objects: &[(&'static str, usize)]) -> String {
    let each = objects.iter();
    let each: Vec<_> = each
        .map(|(what, users)| format!("{what} (by {users})"))
        .collect();
    each.join(", ")
}

/// Gives everything back. The device is shared: others may use it.
///
/// # Errors
/// [`StillUsed`] with what the program has not let go of; everything else is given back all the
/// same.
pub fn release(held: Held) -> Result<(), StillUsed> {
    let mut objects = Vec::new();
    drop(held.qp);
    for mr in held.memory {
        give_back("registered memory", mr, &mut objects);
    }
    if let Some(cq) = held.cq {
        give_back("the completion queue", cq, &mut objects);
    }
    if let Some(channel) = held.channel {
        give_back("the completion channel", channel, &mut objects);
    }
    if let Some(pd) = held.pd {
        give_back("the protection domain", pd, &mut objects);
    }
    drop(held.context);
    if objects.is_empty() {
        return Ok(());
    }
    Err(StillUsed { objects })
}

fn give_back<T: ?Sized>(
    what: &'static str,
    object: Arc<T>,
    still_used: &mut Vec<(&'static str, usize)>,
) {
    let others = Arc::strong_count(&object) - 1;
    drop(object);
    if others > 0 {
        still_used.push((what, others));
    }
}
