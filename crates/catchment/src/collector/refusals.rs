//! What a session is refused for at the collector, with the remedy.
use super::device::Device;
use super::devices::OpenError;
use super::owners::NotYours;
use super::receive::IntakeError;
use crate::session::collector_side::Ended;
use crate::session::message::SessionPath;
use crate::session::refusal::{Refusal, RefusalCode};
use catchment_verbs::ModifyError;

/// When a source may try again whose queue pair could not be reached.
const CONNECT_AGAIN_MS: u32 = 1_000;

/// The label under which an end counts as a refusal; `None` for ends that are no fault.
pub(super) fn refused_for(ended: &Ended) -> Option<&'static str> {
    match ended {
        Ended::Withdrawn(refusal) | Ended::Misbehaved(refusal) => {
            let no_fault = [RefusalCode::Superseded, RefusalCode::ShuttingDown];
            (!no_fault.contains(&refusal.code)).then(|| refusal.code.label())
        }
        Ended::HandshakeTimeout { .. } => Some(RefusalCode::Timeout.label()),
        ended if is_path_failure(ended) => Some(RefusalCode::PathFailed.label()),
        Ended::Finished
        | Ended::Refused(_)
        | Ended::Revoked(_)
        | Ended::LeaseExpired { .. }
        | Ended::Disconnected(_) => None,
    }
}

/// Returns whether the source reports that packets do not pass.
pub(super) fn is_path_failure(ended: &Ended) -> bool {
    ended.peer_refusal().is_some_and(|refusal| refusal.code == RefusalCode::PathFailed)
}

/// The queue pair could not be made ready for the source's.
pub(super) fn not_reached(path: &SessionPath, error: &ModifyError) -> Refusal {
    let remedy = "check that source and collector can reach each other over this provider";
    if path.is_network() {
        return Refusal::new(RefusalCode::PathFailed, error.to_string(), remedy);
    }
    // The source may just have been too slow to answer.
    Refusal::new(RefusalCode::NoPath, error.to_string(), remedy).retry_after_ms(CONNECT_AGAIN_MS)
}

/// Why devices cannot be received.
pub(super) fn not_opened(error: &OpenError) -> Refusal {
    let (code, remedy) = match error {
        OpenError::Sink(_) | OpenError::TooMany => {
            (RefusalCode::NoResource, "fix this on the collector; the source retries automatically")
        }
        OpenError::OfOneSource { .. } | OpenError::NotYours(NotYours::TooMany { .. }) => {
            (RefusalCode::NotAllowed, "send fewer, or raise --devices-max at the collector")
        }
        OpenError::NotYours(NotYours::NotAllowed { .. }) => (
            RefusalCode::NotAllowed,
            "use another name, or allow this one with --allow at the collector",
        ),
        OpenError::NotYours(NotYours::Owned { .. }) => (
            RefusalCode::NotAllowed,
            "use another name, or free this one at the collector: catchment collect --out OUT --forget NAME",
        ),
    };
    Refusal::new(code, error.to_string(), remedy)
}

/// The session that had the device before has not given its sink back.
pub(super) fn sink_in_use(device: &Device) -> Refusal {
    let reason = format!("the sink of device {} is still in use", &device.name);
    let remedy = "wait; the source retries automatically";
    Refusal::new(RefusalCode::Busy, reason, remedy).retry_after_ms(CONNECT_AGAIN_MS)
}

/// The source still has what it committed, and sends it again in a new session.
pub(super) fn damaged(reason: &str) -> Refusal {
    let remedy =
        "nothing: the source sends it again; if this lasts, check the memory of both hosts";
    Refusal::new(RefusalCode::Damaged, reason, remedy)
}

pub(super) fn misbehaved(error: &IntakeError) -> Refusal {
    let remedy = "use a source that follows docs/spec/block.md";
    Refusal::new(RefusalCode::BadMessage, error.to_string(), remedy)
}

pub(super) fn lost_page() -> Refusal {
    let reason = "a page of the ring cannot be had (SIGBUS): the source took it away and this host has no \
        other, or its memory is defective";
    let remedy = "none if it comes once; else look at vm.overcommit_memory and the memory of the collector's host";
    Refusal::new(RefusalCode::NoResource, reason, remedy)
}

pub(super) fn fault(what: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalCode::Internal, what.to_string(), "report this with the collector's log")
}
