//! Address handles.
use super::Domain;
use super::answer::{Object, made};
use super::types::{ibv_ah, ibv_ah_attr};
use std::io;
use std::sync::Arc;

pub(crate) struct AddressHandle {
    ah: Object<ibv_ah>,
    /// Must outlive the handle.
    _domain: Arc<Domain>,
}

impl AddressHandle {
    pub(crate) fn new(domain: Arc<Domain>, mut attr: ibv_ah_attr) -> io::Result<Self> {
        let functions = &domain.device.library.functions;
        // SAFETY: the domain is alive, and is kept so by this object; the call reads the
        // attributes.
        let ah = made(unsafe { (functions.ibv_create_ah)(domain.pd.as_ptr(), &raw mut attr) })?;
        // SAFETY: the poster of a request with the handle holds it until the request is done.
        let ah =
            unsafe { Object::new(ah, functions.ibv_destroy_ah, "giving back an address handle") };
        Ok(Self { ah, _domain: domain })
    }

    pub(super) fn raw(&self) -> *mut ibv_ah {
        self.ah.as_ptr()
    }
}
