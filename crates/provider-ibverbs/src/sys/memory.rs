//! Protection domains and registered memory.
use super::Device;
use super::answer::{Object, check, made};
use super::types::{ibv_mr, ibv_pd};
use catchment_verbs::mem::Region;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::{io, mem};

pub(crate) struct Domain {
    pub(super) pd: Object<ibv_pd>,
    pub(super) device: Arc<Device>,
}

impl Domain {
    pub(crate) fn new(device: Arc<Device>) -> io::Result<Self> {
        let functions = &device.library.functions;
        // SAFETY: the context is open.
        let pd = made(unsafe { (functions.ibv_alloc_pd)(device.raw()) })?;
        // SAFETY: what is created from the domain keeps it alive.
        let pd =
            unsafe { Object::new(pd, functions.ibv_dealloc_pd, "giving back a protection domain") };
        Ok(Self { pd, device })
    }
}

/// Registered memory. Dropping it revokes the keys; afterwards the device cannot reach it.
pub(crate) struct Registration {
    domain: Arc<Domain>,
    pub(crate) region: Arc<Region>,
    mr: NonNull<ibv_mr>,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

// SAFETY: as for `Object`.
unsafe impl Send for Registration {}
// SAFETY: as for `Object`.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers a region with rights as bits of `ibv_access_flags`, and optional ones that are
    /// omitted where the library does not know them.
    pub(crate) fn new(
        domain: Arc<Domain>,
        region: Arc<Region>,
        access: c_uint,
        optional: c_uint,
    ) -> io::Result<Self> {
        let functions = &domain.device.library.functions;
        let (pd, at, bytes) = (domain.pd.as_ptr(), region.addr(), region.bytes());
        let start = at as *mut c_void;
        let registered = match functions.ibv_reg_mr_iova2 {
            Some(register) if optional != 0 => {
                // SAFETY: the region stays mapped as long as this object, which holds it.
                unsafe { register(pd, start, bytes, at, access | optional) }
            }
            _ => {
                // SAFETY: as above.
                unsafe { (functions.ibv_reg_mr)(pd, start, bytes, access as c_int) }
            }
        };
        let mr = made(registered)?;
        // SAFETY: the library has filled in the keys.
        let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
        Ok(Self { domain, region, mr, lkey, rkey })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let functions = &self.domain.device.library.functions;
        // SAFETY: the registration is given back once.
        let code = unsafe { (functions.ibv_dereg_mr)(self.mr.as_ptr()) };
        if let Err(error) = check(code) {
            // The device may still reach the memory: it must stay mapped.
            tracing::warn!(%error, "taking back a memory region; its memory stays mapped");
            mem::forget(Arc::clone(&self.region));
        }
    }
}
