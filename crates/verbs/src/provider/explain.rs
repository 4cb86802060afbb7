//! Failures described for users: the queue pair, what happened, the most likely cause.
use crate::{Endpoint, Failure, WcStatus};

/// Describes a queue pair, its peer, and what happened.
pub fn explain_queue_pair(qpn: u32, peer: Option<&Endpoint>, reason: &str) -> String {
    match peer {
        None => format!("queue pair {qpn}, not connected: {reason}"),
        Some(peer) => format!(
            "queue pair {qpn} to queue pair {} at {} (GID {}): {reason}",
            peer.qpn,
            peer.gid.ip(),
            peer.gid
        ),
    }
}

/// Returns why a request failed and the most likely cause. `path_mtu` is that of the queue pair, in
/// bytes, where there are packets; `acknowledged` is how many sends were acknowledged before.
pub fn explain_failure(failure: &Failure, path_mtu: Option<u32>, acknowledged: u64) -> String {
    let vendor = match failure.vendor_err {
        0 => String::new(),
        code => format!(", vendor error {code:#x}"),
    };
    format!(
        "{}{vendor}; {}; {}",
        failure.status,
        position(acknowledged),
        cause(failure.status, path_mtu)
    )
}

/// Returns how far a queue pair got, according to its completions.
pub fn position(acknowledged: u64) -> String {
    match acknowledged {
        0 => "no request is known to be acknowledged".to_owned(),
        1 => "the first request is acknowledged".to_owned(),
        many => format!("the first {many} requests are acknowledged"),
    }
}

fn cause(status: WcStatus, path_mtu: Option<u32>) -> String {
    match status {
        WcStatus::TransportRetryExceeded => {
            let packets = path_mtu.map_or("packets".to_owned(), |mtu| {
                format!("packets of the path MTU {mtu}")
            });
            format!(
                "most likely the peer's process has ended, or its queue pair or GID is not the one \
                 it announced; otherwise a link is down, {packets} do not pass, or a firewall \
                 drops UDP port 4791"
            )
        }
        WcStatus::RnrRetryExceeded => {
            "the peer posts receives more slowly than this side sends, or has stopped".to_owned()
        }
        WcStatus::RemoteAccess => {
            "most likely the peer has deregistered that memory (its rkey is revoked), or the range is \
             beyond it, or the peer's rights do not allow this operation"
                .to_owned()
        }
        WcStatus::RemoteInvalidRequest => {
            "most likely a message longer than the peer's receive, an operation that its queue pair \
             does not allow, more READs at once than its max_dest_rd_atomic, or a misaligned atomic"
                .to_owned()
        }
        WcStatus::RemoteOperation => {
            "the peer failed to execute the request: most likely its receive names memory that it \
             may not access"
                .to_owned()
        }
        WcStatus::LocalProtection => {
            "a region that the request names was deregistered here, or the element is beyond it"
                .to_owned()
        }
        WcStatus::LocalLength => {
            "a message longer than the receive posted for it, or than the device can send".to_owned()
        }
        WcStatus::Flushed => {
            "the queue pair was already in the error state: an asynchronous event may report why"
                .to_owned()
        }
        WcStatus::BadResponse
        | WcStatus::LocalQpOperation
        | WcStatus::General
        | WcStatus::Other(_) => {
            "see the kernel's log (dmesg) for messages of the device's driver".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gid;

    #[test]
    fn a_failure_names_the_peer_and_a_cause() {
        let peer = Endpoint { gid: Gid::from_ip([10, 0, 0, 2].into()), qpn: 77, psn: 1, net: None };
        let failed = |status, vendor_err| {
            let reason = explain_failure(&Failure { status, vendor_err }, Some(1024), 9);
            explain_queue_pair(17, Some(&peer), &reason)
        };
        let text = failed(WcStatus::TransportRetryExceeded, 0x81);
        for part in [
            "queue pair 17 to queue pair 77 at 10.0.0.2",
            "00000000000000000000ffff0a000002",
            "does not answer",
            "vendor error 0x81",
            "first 9 requests are acknowledged",
            "1024",
            "4791",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(position(0).contains("no request"));
        assert!(position(1).contains("the first request is"));
        assert!(failed(WcStatus::RemoteAccess, 0).contains("rkey is revoked"));
        assert!(!failed(WcStatus::RemoteAccess, 0).contains("vendor"));
        assert!(failed(WcStatus::RnrRetryExceeded, 0).contains("receives"));
    }
}
