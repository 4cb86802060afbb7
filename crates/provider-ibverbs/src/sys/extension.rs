//! Functions of a device that precede its context, in newer libraries than the first.
//!
//! The header calls them by `verbs_get_ctx_op`; its macros are not symbols, so this does the same.
use super::QueuePair;
use super::answer::check;
use super::device::Device;
use super::types::*;
use std::mem::{self, offset_of};
use std::{io, ptr};

/// Returns the function of this name; `None` if the library or the driver does not have it.
///
/// Safety: the context is open.
macro_rules! operation {
    ($context:expr, $name:ident) => {{
        let reach = size_of::<verbs_context>() - offset_of!(verbs_context, $name);
        extended($context, reach).and_then(|extended| (*extended).$name)
    }};
}

/// Returns the structure that the context ends, of which only the last `reach` bytes may be read;
/// none if the library made less.
///
/// # Safety
/// The context is one that a library opened, and still open.
unsafe fn extended(context: *mut ibv_context, reach: usize) -> Option<*const verbs_context> {
    // SAFETY: the context is open. Since libibverbs 1.1.7 the field tells whether it is extended.
    if unsafe { (*context).abi_compat }.addr() != VERBS_ABI_IS_EXTENDED {
        return None;
    }
    let extended = context.wrapping_byte_sub(offset_of!(verbs_context, context));
    let extended = extended.cast_const().cast::<verbs_context>();
    // SAFETY: an extended context has its size before it.
    (unsafe { (*extended).sz } >= reach).then_some(extended)
}

impl Device {
    /// Queries the rates that queue pairs can be limited to; `None` where the library, the driver
    /// or the kernel does not report them.
    pub(crate) fn query_pacing(&self) -> Option<ibv_packet_pacing_caps> {
        // SAFETY: the context is open.
        let query = unsafe { operation!(self.raw(), query_device_ex) }?;
        // SAFETY: zeros are a value of this structure of numbers.
        let mut attr: ibv_device_attr_ex = unsafe { mem::zeroed() };
        // SAFETY: the call fills as much of the structure as it is said to have.
        let code = unsafe { query(self.raw(), ptr::null(), &raw mut attr, size_of_val(&attr)) };
        if let Err(error) = check(code) {
            tracing::debug!(%error, "ibv_query_device_ex");
            return None;
        }
        Some(attr.packet_pacing_caps)
    }

    /// Returns whether the rate of a queue pair can be limited, if the device reports that it can.
    pub(crate) fn has_rate_limit(&self) -> bool {
        // SAFETY: the context is open.
        unsafe { operation!(self.raw(), modify_qp_rate_limit) }.is_some()
    }
}

impl QueuePair {
    /// Limits the rate, in kbit/s; 0 removes the limit.
    pub(crate) fn limit_rate(&self, kbps: u32) -> io::Result<()> {
        // SAFETY: the context is open as long as something of it is alive.
        let modify = unsafe { operation!(self.device().raw(), modify_qp_rate_limit) };
        let modify = modify.ok_or(io::ErrorKind::Unsupported)?;
        let mut attr = ibv_qp_rate_limit_attr { rate_limit: kbps, ..Default::default() };
        // SAFETY: the queue pair is alive; the call reads the attributes.
        check(unsafe { modify(self.raw(), &raw mut attr) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::types::ibv_qp;
    use std::ffi::c_int;

    extern "C" fn limit(_: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int {
        // SAFETY: the test passes a structure of its own.
        unsafe { (*attr).rate_limit as c_int }
    }

    /// Returns what `operation!` finds in a context whose library reports `sz` bytes.
    fn find(compat: usize, sz: usize) -> Option<c_int> {
        // SAFETY: zeros are a value of this structure of pointers that may be null, and numbers.
        let mut made: Box<verbs_context> = Box::new(unsafe { mem::zeroed() });
        made.modify_qp_rate_limit = Some(limit);
        made.sz = sz;
        made.context.abi_compat = ptr::without_provenance_mut(compat);
        let made = Box::into_raw(made);
        // SAFETY: the structure lives to the end of this function.
        let found = unsafe { operation!(&raw mut (*made).context, modify_qp_rate_limit) };
        // SAFETY: as above.
        assert!(unsafe { operation!(&raw mut (*made).context, query_device_ex) }.is_none());
        let mut attr = ibv_qp_rate_limit_attr { rate_limit: 25, ..Default::default() };
        // SAFETY: the function found is the one of this module.
        let answer = found.map(|limit| unsafe { limit(ptr::null_mut(), &raw mut attr) });
        // SAFETY: it was made of a box above.
        drop(unsafe { Box::from_raw(made) });
        answer
    }

    #[test]
    fn an_operation_is_found_only_where_the_library_has_it() {
        let whole = size_of::<verbs_context>();
        assert_eq!(find(VERBS_ABI_IS_EXTENDED, whole), Some(25));
        assert_eq!(find(VERBS_ABI_IS_EXTENDED, whole + 4096), Some(25), "a newer library");
        assert_eq!(find(VERBS_ABI_IS_EXTENDED, whole - 8), None, "an older library");
        assert_eq!(find(0, whole), None, "a library without extensions");
    }
}
