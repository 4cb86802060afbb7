//! The live pages: a small HTTP server beside a collector ([`Dashboard`]), a controller or an agent
//! ([`StatusPage`]).
//!
//! It runs on a thread of its own and only reads, so no viewer can delay a frame. With no page open
//! it sleeps in `epoll`; all sampling is driven by the requests of viewers. It listens on loopback by
//! default, answers only under known host names ([`guard`]) and has no route that changes anything.
//!
//! | path | content |
//! |---|---|
//! | `/` | the page, one file without anything external |
//! | `/metrics` | Prometheus text |
//! | `/api/status` | [`CollectorSnapshot`](super::CollectorSnapshot) as JSON |
//! | `/api/events` | the same as server-sent events, two a second |
//! | `/api/preview/DEVICE.png` | the last picture of a device; 204 when there is none yet |
//!
//! A status page has the same routes but the pictures; its status is the object of its program.
mod events;
mod guard;
mod live;
mod page;
mod places;
mod routes;
mod serve;
mod server;
mod status;

pub use serve::PageTls;
pub use status::{ExplainError, StatusPage, StatusSource, StatusView};

use super::metrics::CollectorMetrics;
use live::Live;
use server::Server;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Where the live page listens, and under which names it answers.
#[derive(Debug, Clone)]
pub struct DashboardConfig {
    /// Address of its own; port 0 takes a free one. Default `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Certificates for an address that other machines reach, in the way of the control connection: the
    /// viewer needs one too. A loopback address does without. Default none.
    pub tls: Option<PageTls>,
    /// Allows an address that other machines reach without certificates: everyone who reaches the address
    /// sees what it shows. Default false.
    pub insecure_remote: bool,
    /// Names by which browsers may call the page, besides `localhost` and IP addresses. With certificates
    /// those in the certificate, which the browser checks.
    pub host_names: Vec<String>,
}

impl Default for DashboardConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: None,
            insecure_remote: false,
            host_names: Vec::new(),
        }
    }
}

/// Why the live page could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// An address that other machines reach was given without saying that this is meant.
    #[error(
        "the live page at {0} would be open to every machine that reaches that \
         address; listen on 127.0.0.1 and forward the port (ssh -L), or give certificates, which \
         viewers then need too, or allow it as insecure"
    )]
    NotLoopback(SocketAddr),
    /// The address could not be taken.
    #[error("the live page cannot listen on {listen}: {source}; choose another address or port 0")]
    Listen {
        /// The address given.
        listen: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The thread of the page or its event loop could not be made.
    #[error("cannot start the thread of the live page: {0}")]
    Thread(std::io::Error),
}

/// A running live page of a collector. Dropping it stops it.
#[derive(Debug)]
pub struct Dashboard {
    server: Server,
    live: Arc<Live>,
}

impl Dashboard {
    /// Starts the page of a collector on a thread of its own. When this returns, it answers.
    ///
    /// # Errors
    /// [`DashboardError`]: the address is taken, not ours, or not loopback without permission.
    pub fn start(
        config: DashboardConfig,
        metrics: Arc<CollectorMetrics>,
    ) -> Result<Self, DashboardError> {
        let live = Arc::new(Live::new(metrics));
        let server = Server::start(config, |guard| routes::router(live.clone(), guard))?;
        Ok(Self { server, live })
    }

    /// Returns where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Returns what to open in a browser.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns how many pages are open and following the events.
    pub fn viewers(&self) -> usize {
        self.live.viewers()
    }

    /// Stops it: closes all connections and ends its thread. The same as dropping it.
    pub fn stop(self) {}
}
