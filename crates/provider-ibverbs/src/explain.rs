//! Failures in the words of a user: who, what was seen, what most likely caused it.
use catchment_verbs::{Endpoint, Failure, WcStatus};

/// A queue pair, its peer, and what happened.
pub(crate) fn queue_pair(qpn: u32, peer: Option<&Endpoint>, reason: &str) -> String {
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

/// A failed request, after `done` that were completed, and the most likely cause.
pub(crate) fn failure(failure: &Failure, path_mtu: u32, done: u64) -> String {
    let vendor = match failure.vendor_err {
        0 => String::new(),
        code => format!(", vendor error {code:#x}"),
    };
    format!(
        "{}{vendor}, after {done} requests; {}",
        failure.status,
        cause(failure.status, path_mtu)
    )
}

fn cause(status: WcStatus, path_mtu: u32) -> String {
    match status {
        WcStatus::TransportRetryExceeded => format!(
            "most likely the peer's process has ended, or its queue pair or GID is another one than \
             it said; else a link is down, packets of the path MTU {path_mtu} do not pass, or a \
             firewall drops UDP port 4791"
        ),
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
            "the peer failed while it did the request: most likely its receive names memory that it \
             may not use"
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
            "the device moved the queue pair to the error state before: an event may say why"
                .to_owned()
        }
        WcStatus::LocalQpOperation | WcStatus::General | WcStatus::Other(_) => {
            "look at the kernel's log (dmesg) for the device's own words".to_owned()
        }
        _ => "no likely cause is known".to_owned(),
    }
}

/// What this process may lock; none without a limit.
pub(crate) fn memlock_bytes() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// What devices have pinned of this process's memory: it counts against the limit.
pub(crate) fn locked_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    pinned_bytes(&status)
}

/// `VmPin:     1234 kB`
fn pinned_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_verbs::Gid;

    #[test]
    fn a_failure_names_the_peer_and_a_cause() {
        let peer = Endpoint {
            gid: Gid::from_ip([10, 0, 0, 2].into()),
            qpn: 77,
            psn: 1,
            net: None,
        };
        let failed = |status, vendor_err| {
            let reason = failure(&Failure { status, vendor_err }, 1024, 9);
            queue_pair(17, Some(&peer), &reason)
        };
        let text = failed(WcStatus::TransportRetryExceeded, 0x81);
        for part in [
            "queue pair 17 to queue pair 77 at 10.0.0.2",
            "00000000000000000000ffff0a000002",
            "does not answer",
            "vendor error 0x81",
            "after 9 requests",
            "1024",
            "4791",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(failed(WcStatus::RemoteAccess, 0).contains("rkey is revoked"));
        assert!(!failed(WcStatus::RemoteAccess, 0).contains("vendor"));
        assert!(failed(WcStatus::RnrRetryExceeded, 0).contains("receives"));
    }

    #[test]
    fn pinned_memory_is_read_as_the_kernel_writes_it() {
        let status = "VmLck:\t       8 kB\nVmPin:\t    1234 kB\nVmHWM:\t    1 kB\n";
        assert_eq!(pinned_bytes(status), 1234 * 1024);
        assert_eq!(pinned_bytes("VmLck: 8 kB"), 0);
    }
}
