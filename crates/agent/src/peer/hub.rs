//! What the sessions of all peers are about.
use super::session::Event;
use tokio::sync::mpsc::Receiver;

/// See the module.
pub(super) struct Hub {}

impl Hub {
    pub(super) const fn new() -> Self {
        Self {}
    }

    /// Takes what comes until all sessions have ended.
    pub(super) async fn run(self, mut events: Receiver<Event>) {
        while let Some(event) = events.recv().await {
            match event {
                Event::Opened(hello) => tracing::debug!(?hello, "opened"),
                // Nobody shares rates yet: what peers say about them changes nothing.
                Event::Frame { host, epoch, frame } => {
                    tracing::debug!(host, epoch, ?frame, "received");
                }
                Event::Closed { host, said_goodbye } => {
                    tracing::debug!(host, said_goodbye, "closed");
                }
            }
        }
        std::future::pending::<()>().await;
    }
}
