//! Keeps a queue pair going whose requests take time.
//!
//! A block that found the send queue full is posted when earlier requests complete. Filling threads
//! see completions when they claim and commit; when they pause, this thread does. Where requests are
//! done inside of the post (shm) there is nothing to wait for and no such thread.
use super::link::Link;
use catchment_verbs::{CompletionChannel, Cq};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Only a backstop: completions and the end of the link wake the thread.
const LONG: Duration = Duration::from_secs(3600);

/// Where completions can be waited for.
pub(super) struct Completions {
    pub(super) cq: Arc<dyn Cq>,
    pub(super) channel: Arc<dyn CompletionChannel>,
}

/// Starts the thread. It ends with the link, which must know where it sleeps.
pub(super) fn start(link: &Arc<Link>, completions: Completions) -> io::Result<()> {
    let link = Arc::downgrade(link);
    std::thread::Builder::new()
        .name("catchment-link".to_owned())
        .spawn(move || drive(&link, &completions))?;
    Ok(())
}

fn drive(link: &Weak<Link>, completions: &Completions) {
    while let Some(link) = link.upgrade() {
        // Arm first, then check: what completes in between rings.
        completions.cq.req_notify(false);
        if link.is_over() || link.sender.progress().is_err() {
            return;
        }
        drop(link);
        if let Err(error) = completions.channel.wait(LONG) {
            tracing::warn!(%error, "cannot wait for completions");
            return;
        }
    }
}
