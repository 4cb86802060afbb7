//! Connects a queue pair to its peer on a thread that may block, since the proof of a path takes as
//! long as the retries of lost packets.
use super::prepared::{LinkError, Prepared, Target};
use super::welcome::ring_of;
use crate::observe::SessionSnapshot;
use crate::providers::describe;
use crate::session::message::Welcome;
use crate::session::refusal::Refusal;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;

/// A queue pair that is being connected. Dropping it cancels that.
pub struct Connecting<T> {
    job: JoinHandle<Result<T, LinkError>>,
    cancelled: Arc<AtomicBool>,
    /// The session it belongs to.
    pub session: SessionSnapshot,
}

impl<T: Send + 'static> Connecting<T> {
    /// Starts `connect` with what the collector has granted. `peer` is its address, for log
    /// messages.
    ///
    /// # Errors
    /// The ring is impossible.
    pub fn begin(
        prepared: Prepared,
        welcome: &Welcome,
        peer: String,
        connect: impl FnOnce(Prepared, Target) -> Result<T, LinkError> + Send + 'static,
    ) -> Result<Self, Refusal> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let target = Target {
            endpoint: welcome.path.agreed(welcome.endpoint),
            ring: ring_of(welcome)?,
            path_mtu: welcome.path.path_mtu,
            cancelled: cancelled.clone(),
        };
        let ends = (prepared.endpoint(), welcome.endpoint);
        let session = SessionSnapshot {
            peer,
            devices: welcome.streams.len() as u64,
            queues: Some(prepared.queues()),
            ..describe(&welcome.path, ends, &welcome.reason)
        };
        let job = tokio::task::spawn_blocking(move || connect(prepared, target));
        Ok(Self { job, cancelled, session })
    }

    /// Waits for the result; forever while nothing is being connected.
    pub async fn done(connecting: &mut Option<Self>) -> Result<T, LinkError> {
        match connecting {
            Some(connecting) => match (&mut connecting.job).await {
                Ok(connected) => connected,
                Err(error) => Err(LinkError::Thread(io::Error::other(error))),
            },
            None => std::future::pending().await,
        }
    }
}

impl<T> Drop for Connecting<T> {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
