//! Registered regions.
use crate::handles::IbPd;
use crate::sys::Registration;
use catchment_verbs::mem::Region;
use catchment_verbs::{Access, Mr};
use std::sync::Arc;

/// A registered region. Dropping it deregisters: afterwards the device cannot reach the memory, and
/// requests that still name it fail. So only this object has to keep it mapped.
pub(crate) struct IbMr {
    registration: Registration,
    access: Access,
    /// Keeps the device open, with the thread for its events.
    pd: IbPd,
}

impl IbMr {
    pub(crate) fn new(registration: Registration, access: Access, pd: IbPd) -> Self {
        Self { registration, access, pd }
    }
}

impl Drop for IbMr {
    fn drop(&mut self) {
        self.pd.device().retired_keys.add(self.registration.rkey);
    }
}

impl Mr for IbMr {
    fn region(&self) -> &Arc<Region> {
        &self.registration.region
    }

    fn lkey(&self) -> u32 {
        self.registration.lkey
    }

    fn rkey(&self) -> u32 {
        self.registration.rkey
    }

    fn access(&self) -> Access {
        self.access
    }
}
