//! Checks of the parameters of new objects.
use crate::mem::Region;
use crate::{
    Access, Caps, CompletionChannel, Cq, Mr, QpInit, RateError, RateLimit, Service, VerbsError,
};
use std::sync::Arc;

/// Checks that a value is within a limit of the device; `what` names the field.
///
/// # Errors
/// [`VerbsError::Limit`] if it is beyond.
pub fn check_limit(what: &'static str, asked: u32, limit: u32) -> Result<(), VerbsError> {
    if asked <= limit {
        return Ok(());
    }
    Err(VerbsError::Limit { what, asked: asked.into(), limit: limit.into() })
}

fn foreign(what: &str) -> VerbsError {
    VerbsError::Invalid(format!("the {what} belongs to another device"))
}

/// Returns the completion queue as the provider's type, if `is_ours`: of this device.
///
/// # Errors
/// [`VerbsError::Invalid`] if not.
pub fn own_cq<T: 'static>(
    cq: &Arc<dyn Cq>,
    is_ours: impl FnOnce(&T) -> bool,
) -> Result<&T, VerbsError> {
    let own = cq.as_any().downcast_ref().filter(|cq| is_ours(cq));
    own.ok_or_else(|| foreign("completion queue"))
}

/// Like [`own_cq`], for the optional channel of a completion queue.
///
/// # Errors
/// [`VerbsError::Invalid`] for a channel of another device.
pub fn own_channel<T: 'static>(
    channel: Option<&Arc<dyn CompletionChannel>>,
    is_ours: impl FnOnce(&T) -> bool,
) -> Result<Option<&T>, VerbsError> {
    let Some(channel) = channel else { return Ok(None) };
    let own = channel.as_any().downcast_ref().filter(|channel| is_ours(channel));
    own.map(Some).ok_or_else(|| foreign("completion channel"))
}

/// Returns the error for one object more than a table has room for.
pub fn full(what: &'static str, limit: usize) -> VerbsError {
    VerbsError::Limit { what, asked: limit as u64 + 1, limit: limit as u64 }
}

/// Checks that the device can create a completion queue of `capacity` entries.
///
/// # Errors
/// [`VerbsError::Invalid`] for none, [`VerbsError::Limit`] beyond [`Caps::max_cqe`].
pub fn check_cq(caps: &Caps, capacity: u32) -> Result<(), VerbsError> {
    if capacity == 0 {
        return Err(VerbsError::Invalid("a completion queue needs at least one entry".into()));
    }
    check_limit("max_cqe", capacity, caps.max_cqe)
}

/// Checks that a region can be registered with these rights (IBTA 10.6.3.1).
///
/// # Errors
/// [`VerbsError::Invalid`] if the rights contradict each other, the region's mapping, or [`Caps`].
pub fn check_mr(caps: &Caps, region: &Region, access: Access) -> Result<(), VerbsError> {
    if access.contains(Access::REMOTE_INVALIDATE) && !caps.remote_invalidate {
        return Err(VerbsError::Invalid(
            "regions of this device cannot be invalidated by peers: register without \
             REMOTE_INVALIDATE, and deregister the region instead"
                .into(),
        ));
    }
    let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !access.contains(Access::LOCAL_WRITE) {
        return Err(VerbsError::Invalid("remote writing or atomics need LOCAL_WRITE too".into()));
    }
    if access.contains(Access::LOCAL_WRITE) && !region.is_writable() {
        return Err(VerbsError::Invalid("the region is mapped for reading only".into()));
    }
    Ok(())
}

/// Checks that a part of a registered region can be bound with these rights. `registered` is the region that the device
/// has under the local key of `mr`.
///
/// # Errors
/// [`VerbsError::Invalid`] if the region is another device's, the part is of another region, or the rights need one that
/// the region does not have; and as [`check_mr`].
pub fn check_bind(
    caps: &Caps,
    (mr, registered): (&dyn Mr, Option<&Arc<Region>>),
    part: &Arc<Region>,
    access: Access,
) -> Result<(), VerbsError> {
    check_mr(caps, part, access)?;
    if !registered.is_some_and(|region| Arc::ptr_eq(region, mr.region())) {
        return Err(foreign("region"));
    }
    if !part.is_within(mr.region()) {
        return Err(VerbsError::Invalid("the part is of another region".into()));
    }
    if access.contains(Access::LOCAL_WRITE) && !mr.access().contains(Access::LOCAL_WRITE) {
        return Err(VerbsError::Invalid("the region was registered for reading only".into()));
    }
    Ok(())
}

/// Checks that the device offers this service.
///
/// # Errors
/// [`VerbsError::Service`] with the services that it offers.
pub fn check_service(caps: &Caps, asked: Service) -> Result<(), VerbsError> {
    if caps.services.has(asked) {
        return Ok(());
    }
    Err(VerbsError::Service { asked, offered: caps.services })
}

/// Checks that the device can create a queue pair of this service and these capacities. The
/// provider checks that the completion queues are its own.
///
/// # Errors
/// [`VerbsError::Service`] for a service that it does not offer, [`VerbsError::Invalid`] for a
/// queue pair without queues, [`VerbsError::Limit`] for a capacity beyond [`Caps`].
pub fn check_qp(caps: &Caps, init: &QpInit) -> Result<(), VerbsError> {
    check_service(caps, init.service)?;
    if init.max_send_wr == 0 && init.max_recv_wr == 0 {
        return Err(VerbsError::Invalid("a queue pair needs room for at least one request".into()));
    }
    check_limit("max_send_wr", init.max_send_wr, caps.max_send_wr)?;
    check_limit("max_recv_wr", init.max_recv_wr, caps.max_recv_wr)?;
    check_limit("max_sge", init.max_sge, caps.max_sge)?;
    check_limit("max_inline_bytes", init.max_inline_bytes, caps.max_inline_bytes)
}

/// Checks that the queue pairs of a device can keep this rate; no limit is always possible.
/// `device` names it in the error.
///
/// # Errors
/// [`RateError::Unsupported`] without [`Caps::rate`], [`RateError::OutOfRange`] beyond it.
pub fn check_rate(caps: &Caps, device: &str, limit: Option<RateLimit>) -> Result<(), RateError> {
    let range = caps.rate.ok_or_else(|| RateError::Unsupported(device.to_owned()))?;
    limit.map_or(Ok(()), |asked| range.check(asked.rate_bps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::RegionOptions;
    use crate::provider::post::tests::{caps, init};

    #[test]
    fn a_completion_queue_has_one_entry_to_the_limit() {
        let caps = caps();
        assert!(check_cq(&caps, 1).is_ok());
        assert!(check_cq(&caps, caps.max_cqe).is_ok());
        assert!(matches!(check_cq(&caps, 0), Err(VerbsError::Invalid(_))));
        let error = check_cq(&caps, caps.max_cqe + 1).unwrap_err();
        assert_eq!(error.to_string(), "max_cqe = 101 is beyond this device's limit of 100");
    }

    #[test]
    fn rights_must_fit_each_other_and_the_mapping() {
        let region = Region::alloc(4096, RegionOptions::default()).unwrap();
        for access in [Access::empty(), Access::REMOTE_READ, Access::LOCAL_WRITE | Access::REMOTE] {
            assert!(check_mr(&caps(), &region, access).is_ok(), "{access:?}");
        }
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::REMOTE] {
            assert!(check_mr(&caps(), &region, access).is_err(), "{access:?}");
        }
        let mapped = Region::from_peer(region.read_only_fd().unwrap(), 4096, false).unwrap();
        assert!(check_mr(&caps(), &mapped, Access::REMOTE_READ).is_ok());
        assert!(check_mr(&caps(), &mapped, Access::LOCAL_WRITE).is_err());
    }

    #[test]
    fn what_the_device_does_not_offer_is_refused_with_what_it_does() {
        let region = Region::alloc(4096, RegionOptions::default()).unwrap();
        let (mut caps, mut init) = (caps(), init());
        let right = Access::REMOTE_READ | Access::REMOTE_INVALIDATE;
        assert!(check_mr(&caps, &region, right).is_ok());
        caps.remote_invalidate = false;
        assert!(check_mr(&caps, &region, right).is_err());
        caps.services = crate::Services::RC | crate::Services::UC;
        init.service = Service::Ud;
        assert_eq!(
            check_qp(&caps, &init).unwrap_err().to_string(),
            "this device offers no UD: it has RC, UC"
        );
    }

    #[test]
    fn a_queue_pair_at_every_limit_is_made_and_one_beyond_any_is_not() {
        let (caps, init) = (caps(), init());
        assert!(check_qp(&caps, &init).is_ok());
        let [mut sends, mut recvs, mut sges, mut inline] = [(); 4].map(|()| init.clone());
        sends.max_send_wr += 1;
        recvs.max_recv_wr += 1;
        sges.max_sge += 1;
        inline.max_inline_bytes += 1;
        for (field, more) in [
            ("max_send_wr", sends),
            ("max_recv_wr", recvs),
            ("max_sge", sges),
            ("max_inline_bytes", inline),
        ] {
            let error = check_qp(&caps, &more).unwrap_err();
            assert!(matches!(error, VerbsError::Limit { what, .. } if what == field), "{error}");
        }
    }

    #[test]
    fn a_queue_pair_needs_one_queue() {
        let (caps, mut init) = (caps(), init());
        init.max_send_wr = 0;
        assert!(check_qp(&caps, &init).is_ok());
        init.max_recv_wr = 0;
        assert!(matches!(check_qp(&caps, &init), Err(VerbsError::Invalid(_))));
    }
}
