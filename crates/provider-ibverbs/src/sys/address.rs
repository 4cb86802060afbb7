//! Address handles.
use super::Domain;
use super::answer::{destroyed, object};
use super::types::{ibv_ah, ibv_ah_attr};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

pub(crate) struct AddressHandle {
    domain: Arc<Domain>,
    ah: NonNull<ibv_ah>,
}

// SAFETY: as for `Device`.
unsafe impl Send for AddressHandle {}
// SAFETY: as for `Device`.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    pub(crate) fn new(domain: Arc<Domain>, mut attr: ibv_ah_attr) -> io::Result<AddressHandle> {
        let create = domain.device.library.functions.ibv_create_ah;
        // SAFETY: the domain is alive, and is kept so by this object; the call reads the attributes.
        let ah = object(unsafe { create(domain.pd.as_ptr(), &raw mut attr) })?;
        Ok(AddressHandle { domain, ah })
    }

    pub(super) fn raw(&self) -> *mut ibv_ah {
        self.ah.as_ptr()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        let destroy = self.domain.device.library.functions.ibv_destroy_ah;
        // SAFETY: who posts a request with the handle holds it until the request is done, so the
        // device uses it no more; it is given back once.
        destroyed("giving back an address handle", unsafe { destroy(self.raw()) });
    }
}
