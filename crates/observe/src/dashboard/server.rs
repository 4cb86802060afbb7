//! The thread of a page: it listens, and answers until it is dropped.
use super::guard::Guard;
use super::serve::{self, PageTls};
use super::{DashboardConfig, DashboardError};
use axum::Router;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A page that answers. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    scheme: &'static str,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a page on a thread of its own. When this returns, it answers.
    pub(super) fn start(
        config: DashboardConfig,
        routes: impl FnOnce(Guard) -> Router,
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
        let (scheme, guard) = match tls {
            Some(_) => ("https", Guard::Certificate),
            None => ("http", Guard::Names(config.host_names.into())),
        };
        let (stop, stopped) = oneshot::channel();
        let thread = spawn(socket, routes(guard), tls, stopped).map_err(DashboardError::Thread)?;
        Ok(Self { address, scheme, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.address)
    }
}

impl Drop for Server {
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
    app: Router,
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
