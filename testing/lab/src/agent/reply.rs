//! What the agent answers.

use super::Handle;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The envelope of every reply.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer<T> {
    Ok(T),
    Error(String),
}

/// The guest.
#[derive(Debug, Deserialize)]
pub struct Hello {
    /// Release of its kernel.
    pub kernel: String,
    /// GIDs of its device by index.
    pub gids: Vec<String>,
}

/// An object, and its key if it is a window.
#[derive(Deserialize)]
pub(super) struct Made {
    #[serde(alias = "pd", alias = "cq", alias = "mw")]
    pub(super) number: Handle,
    pub(super) rkey: Option<u32>,
}

/// Registered memory of the guest.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct MemoryKey {
    /// The memory region.
    pub mr: Handle,
    /// Its virtual address.
    pub addr: u64,
    /// The key for peers.
    pub rkey: u32,
}

/// A queue pair of the guest.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct QpNumber {
    /// The queue pair.
    pub qp: Handle,
    /// Its number on the wire.
    pub qpn: u32,
}

#[derive(Deserialize)]
pub(super) struct State {
    pub(super) state: String,
}

#[derive(Deserialize)]
pub(super) struct Completions {
    pub(super) completions: Vec<Completion>,
}

#[derive(Deserialize)]
pub(super) struct Data {
    pub(super) data: String,
}

#[derive(Deserialize)]
pub(super) struct Crc {
    pub(super) crc: u32,
}

#[derive(Deserialize)]
pub(super) struct Counters {
    pub(super) counters: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
pub(super) struct Lines {
    pub(super) lines: Vec<String>,
}

/// Packets that the guest's switch has dropped.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Lost {
    /// By rules for chosen packets.
    pub chosen: u64,
    /// By chance, on their way to the guest.
    pub to_guest: u64,
    /// By chance, on their way from the guest.
    pub from_guest: u64,
}

/// A work completion of the guest.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Completion {
    /// Of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What ended; undefined unless it succeeded.
    pub opcode: Kind,
    /// Bytes received.
    pub byte_len: u32,
    /// Immediate data, as pyverbs shows it; an invalidated key stands here too.
    pub imm_data: u32,
    /// `IBV_WC_*` flags.
    pub wc_flags: u32,
}

/// `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "u32")]
pub enum Status {
    /// Done.
    Success,
    /// A message was longer than the receive.
    LocalLength,
    /// Local memory was not registered for it.
    LocalProtection,
    /// The queue pair was in error.
    Flushed,
    /// The peer called the request invalid.
    RemoteInvalidRequest,
    /// The peer's memory may not be accessed so.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// No answer came.
    RetryExceeded,
    /// The peer had no receive.
    RnrRetryExceeded,
    /// Another of the standard's codes.
    Other(u32),
}

impl From<u32> for Status {
    fn from(code: u32) -> Self {
        match code {
            0 => Self::Success,
            1 => Self::LocalLength,
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::RetryExceeded,
            13 => Self::RnrRetryExceeded,
            other => Self::Other(other),
        }
    }
}

/// `ibv_wc_opcode`, as far as the lab sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "u32")]
pub enum Kind {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// A receive that a SEND took.
    Receive,
    /// A receive that an RDMA WRITE with immediate data took.
    ReceiveWriteImm,
    /// Another one.
    Other(u32),
}

impl From<u32> for Kind {
    fn from(code: u32) -> Self {
        match code {
            0 => Self::Send,
            1 => Self::Write,
            2 => Self::Read,
            3 => Self::CompareSwap,
            4 => Self::FetchAdd,
            128 => Self::Receive,
            129 => Self::ReceiveWriteImm,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_results_or_refusals() {
        let text = r#"{"ok": {"completions": [{"wr_id": 7, "status": 10, "opcode": 129,
            "byte_len": 5, "imm_data": 1, "wc_flags": 2, "vendor_err": 0}]}}"#;
        let Answer::Ok(Completions { completions }) = serde_json::from_str(text).unwrap() else {
            panic!("not a result");
        };
        assert_eq!(completions[0].status, Status::RemoteAccess);
        assert_eq!(completions[0].opcode, Kind::ReceiveWriteImm);
        let refused = serde_json::from_str(r#"{"error": "make_mr: no memory"}"#).unwrap();
        assert!(matches!(refused, Answer::<Made>::Error(text) if text.contains("no memory")));
    }
}
