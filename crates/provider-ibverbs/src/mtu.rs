//! Path MTUs, and their codes in libibverbs.
use crate::sys::types::{IBV_MTU_256, IBV_MTU_4096};
use std::ffi::c_uint;

/// Returns the bytes of an `ibv_mtu`.
pub(crate) fn mtu_bytes(code: c_uint) -> Option<u32> {
    (IBV_MTU_256..=IBV_MTU_4096).contains(&code).then(|| 128 << code)
}

/// Returns the `ibv_mtu` of this many bytes.
pub(crate) fn mtu_code(bytes: u32) -> Option<c_uint> {
    (IBV_MTU_256..=IBV_MTU_4096).find(|code| mtu_bytes(*code) == Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_have_codes() {
        for (bytes, code) in [(256, 1), (512, 2), (1024, 3), (2048, 4), (4096, 5)] {
            assert_eq!(mtu_code(bytes), Some(code));
            assert_eq!(mtu_bytes(code), Some(bytes));
        }
        for wrong in [0, 128, 1000, 8192] {
            assert_eq!(mtu_code(wrong), None);
        }
        for wrong in [0, 6] {
            assert_eq!(mtu_bytes(wrong), None);
        }
    }
}
