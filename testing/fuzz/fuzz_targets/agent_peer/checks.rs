//! What must hold for any frame between agents. The fuzz target and the ordinary test that replays its corpus
//! share this file.
use catchment_agent::peer::message::{ALPHAS, Frame, FrameError, LEASES_MS, PeerMessage, VERSION};

/// Panics when something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    match Frame::decode(bytes) {
        Ok(Frame::Round(round)) => assert_eq!(round.encode(), bytes),
        Ok(Frame::Message(message)) => {
            let again = Frame::decode(&message.encode());
            assert_eq!(again, Ok(Frame::Message(message.clone())), "it is read as it was written");
            if let PeerMessage::Hello(hello) | PeerMessage::Welcome(hello) = message {
                assert_eq!(hello.version, VERSION);
                assert!(hello.epoch > 0 && ALPHAS.contains(&hello.alpha));
                assert!(LEASES_MS.contains(&hello.lease_ms));
            }
        }
        Err(error) => {
            assert!(
                !matches!(error, FrameError::Version(version) if version == u64::from(VERSION))
            );
            let reason = error.to_string();
            assert!(reason.len() < 4096 && !reason.contains('\u{1b}'), "{reason}");
        }
    }
}
