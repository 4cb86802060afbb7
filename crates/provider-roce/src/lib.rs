//! RoCEv2 without an RNIC: UDP sockets with GSO, GRO and ECN under the RoCE protocol.
//!
//! [`io`] moves packets between registered memory and the network. It knows what a packet looks
//! like from outside (addresses, lengths, ICRC) and nothing of queue pairs.
#![deny(unsafe_code)]
#[allow(
    unsafe_code,
    reason = "system calls that no crate wraps; the only module with any"
)]
pub mod io;
