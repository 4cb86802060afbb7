//! The live page: a small HTTP server beside the collector.
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
mod guard;
mod live;
mod places;
mod routes;
mod serve;

pub use serve::PageTls;

use super::metrics::CollectorMetrics;
use guard::Guard;
use live::Live;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Where the live page listens, and under which names it answers.
#[derive(Debug, Clone)]
pub struct DashboardConfig {
    /// Address of its own; port 0 takes a free one. Default `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Certificates for an address that other machines reach, in the way of the control connection: the
    /// viewer needs one too. A loopback address does without. Default none.
    pub tls: Option<PageTls>,
    /// Allows an address that other machines reach without certificates: everyone who reaches the address
    /// sees the pictures. Default false.
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
        "the live page at {0} would show its pictures to every machine that reaches that \
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

/// A running live page. Dropping it stops it.
#[derive(Debug)]
pub struct Dashboard {
    address: SocketAddr,
    scheme: &'static str,
    live: Arc<Live>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
        let listen = config.listen;
        let is_remote = !listen.ip().to_canonical().is_loopback();
        let tls = config.tls.filter(|_| is_remote);
        if is_remote && tls.is_none() && !config.insecure_remote {
            return Err(DashboardError::NotLoopback(listen));
        }
        let refused = |source| DashboardError::Listen { listen, source };
        let socket = TcpListener::bind(listen).map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        let live = Arc::new(Live::new(metrics));
        let (scheme, guard) = match tls {
            Some(_) => ("https", Guard::Certificate),
            None => ("http", Guard::Names(config.host_names.into())),
        };
        let app = routes::router(live.clone(), guard);
        let (stop, stopped) = oneshot::channel();
        let thread = spawn(socket, app, tls, stopped).map_err(DashboardError::Thread)?;
        Ok(Self { address, scheme, live, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns what to open in a browser.
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.address)
    }

    /// Returns how many pages are open and following the events.
    pub fn viewers(&self) -> usize {
        self.live.viewers()
    }

    /// Stops it: closes all connections and ends its thread. The same as dropping it.
    pub fn stop(self) {}
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails if the thread has ended by itself.
            let _ = stop.send(());
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the live page panicked");
        }
    }
}

fn spawn(
    socket: TcpListener,
    app: axum::Router,
    tls: Option<PageTls>,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<JoinHandle<()>> {
    socket.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let socket = runtime.block_on(async { tokio::net::TcpListener::from_std(socket) })?;
    let body = move || {
        runtime.block_on(async {
            // Open event streams never end by themselves: they are cut when the runtime goes.
            tokio::select! {
                () = serve::serve(socket, app, tls) => {}
                _ = stopped => {}
            }
        });
    };
    std::thread::Builder::new().name("live page".into()).spawn(body)
}
