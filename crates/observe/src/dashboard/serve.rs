//! The connections of the live page: each has a place, little time for a request, and TLS where that is
//! wanted.
use super::places::{Place, Places};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Time for a TLS handshake, for the head of a request, and until a viewer takes some bytes.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Certificates of the page, asked for at each connection, so that they may change.
#[derive(Clone)]
pub struct PageTls(Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>);

impl PageTls {
    /// Creates them from a function that returns what holds now.
    pub fn new(current: impl Fn() -> Arc<ServerConfig> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }
}

impl fmt::Debug for PageTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageTls")
    }
}

/// Answers connections until this is dropped.
pub(super) async fn serve(socket: TcpListener, app: Router, tls: Option<PageTls>) {
    let places = Places::new();
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => {
                let place = places.take(peer.ip());
                tokio::spawn(attend(stream, place, app.clone(), tls.clone()));
                // Connections that gave way close now: there are never many more than places.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::debug!(%error, "the live page cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn attend(stream: TcpStream, place: Place, app: Router, tls: Option<PageTls>) {
    let place = Arc::new(place);
    let stream = Watched { stream, place: place.clone(), stall: None };
    tokio::select! {
        () = place.evicted() => tracing::debug!("a connection to the live page gives way"),
        () = converse(stream, app, tls) => {}
    }
}

async fn converse(stream: Watched, app: Router, tls: Option<PageTls>) {
    let Some(PageTls(current)) = tls else { return answer(stream, app).await };
    match timeout(PATIENCE, TlsAcceptor::from(current()).accept(stream)).await {
        Ok(Ok(stream)) => answer(stream, app).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS with a viewer failed"),
        Err(_) => tracing::debug!("a viewer did not finish its TLS handshake"),
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, app: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)).await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the live page ended");
    }
}

/// A connection that fails when its peer takes nothing for too long.
struct Watched {
    stream: TcpStream,
    place: Arc<Place>,
    /// Runs while bytes wait for the peer.
    stall: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.place.moved();
        Poll::Ready(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, bytes) {
            self.stall = None;
            self.place.moved();
            return Poll::Ready(written);
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
