//! Cleanup: device objects are released in the order of their dependencies.
//!
//! The queue pair first: after it, nothing moves and nothing completes. Then the memory it could
//! reach, the completion queue, its channel, the protection domain, and the device. The same order
//! serves an orderly end, a failure at any step of connecting, and a peer that died.
use super::error::{ChannelError, StillUsed};
use super::operations::Operations;
use catchment_verbs::{CompletionChannel, Context, Cq, Mr, Pd, Qp};
use std::sync::Arc;

/// Device objects of an end, in the order of cleanup. Owns all that is not part of a connected
/// channel.
#[derive(Default)]
pub struct Held {
    pub(super) qp: Option<Box<dyn Qp>>,
    pub(super) memory: Vec<Arc<dyn Mr>>,
    pub(super) cq: Option<Arc<dyn Cq>>,
    pub(super) channel: Option<Arc<dyn CompletionChannel>>,
    pub(super) pd: Option<Arc<dyn Pd>>,
    pub(super) context: Option<Arc<dyn Context>>,
}

impl Held {
    /// Ends the connection of a channel and releases everything. Drop all parts of the channel but
    /// its operations before.
    ///
    /// # Errors
    /// [`StillUsed`] with what the program still holds.
    pub fn close(mut self, operations: Arc<Operations>) -> Result<(), ChannelError> {
        operations.with_qp(super::qp::end);
        match Arc::try_unwrap(operations) {
            Ok(operations) => {
                let (qp, memory) = operations.into_parts();
                self.qp = Some(qp);
                self.memory = memory;
                Ok(release(self)?)
            }
            Err(shared) => {
                let users = Arc::strong_count(&shared) - 1;
                Err(StillUsed { objects: vec![("the queue pair", users)] }.into())
            }
        }
    }
}

/// Releases everything. The device is shared: others may use it.
///
/// # Errors
/// [`StillUsed`] with what the program still holds; everything else is released all the same.
pub(super) fn release(held: Held) -> Result<(), StillUsed> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelShape, Resources};
    use catchment_probe::census::Census;
    use catchment_provider_shm::ShmProvider;
    use catchment_verbs::Provider;

    /// S3.1: what the program still holds is named, and everything else is released all the same.
    #[test]
    fn s3_1_what_is_still_used_is_named_and_the_rest_released() {
        let (context, census) = Census::of(ShmProvider::new().open("shm0").unwrap());
        let resources = Resources::acquire(context, ChannelShape::new(4, 256)).unwrap();
        let (.., held) = resources.into_parts();
        let kept = Arc::clone(&held.memory[1]);
        let StillUsed { objects } = release(held).unwrap_err();
        assert_eq!(objects, [("registered memory", 1)]);
        drop(kept);
        assert_eq!(census.total(), 0);
    }
}
