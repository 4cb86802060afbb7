//! The live page of a program that says how it stands in one JSON object: a controller, an agent, a source.
use super::events::{self, Last};
use super::guard::{self, Guard};
use super::page::{self, Texts};
use super::server::Server;
use super::{DashboardConfig, DashboardError};
use crate::prometheus;
use crate::sync::lock;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const STYLE: &str = include_str!("status.css");

/// What a status page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusView {
    /// A transmission controller: its links, classes and sources.
    Controller,
    /// A host agent: its applications, rounds and peers.
    Agent,
    /// A source: its devices, its path, and how it stands with a transmission controller.
    Source,
}

impl StatusView {
    fn texts(self) -> Texts {
        let (title, body, script) = match self {
            Self::Controller => (
                "Catchment controller",
                include_str!("controller.html"),
                include_str!("controller.js"),
            ),
            Self::Agent => {
                ("Catchment agent", include_str!("agent.html"), include_str!("agent.js"))
            }
            Self::Source => {
                ("Catchment source", include_str!("source.html"), include_str!("source.js"))
            }
        };
        Texts { title, body, style: STYLE, script }
    }
}

/// What a status page shows, asked for only while somebody looks, at most every 0.4 s.
pub trait StatusSource: Send + 'static {
    /// Returns how the program stands: the object that `--json` of its status prints. It may take a while.
    ///
    /// # Errors
    /// Why it cannot say so; the page shows it.
    fn status(&mut self) -> Result<Value, String>;

    /// Returns the same as Prometheus text.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    fn metrics(&mut self) -> Result<String, String>;

    /// Returns in words what the streams of a name wait for, one text each; `None` where streams are not explained.
    ///
    /// # Errors
    /// [`ExplainError`].
    fn explain(&mut self, _name: &str) -> Result<Option<Vec<String>>, ExplainError> {
        Ok(None)
    }
}

/// Why streams are not explained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// No device can have this name: what is wrong with it.
    #[error("{0}")]
    Name(String),
    /// As [`StatusSource::status`].
    #[error("{0}")]
    Status(String),
}

impl From<String> for ExplainError {
    fn from(reason: String) -> Self {
        Self::Status(reason)
    }
}

/// A running live page of a status. Dropping it stops it.
#[derive(Debug)]
pub struct StatusPage(Server);

impl StatusPage {
    /// Starts the page on a thread of its own. When this returns, it answers.
    ///
    /// # Errors
    /// [`DashboardError`]: the address is taken, not ours, or not loopback without permission.
    pub fn start(
        config: DashboardConfig,
        view: StatusView,
        source: impl StatusSource,
    ) -> Result<Self, DashboardError> {
        let sampled = Mutex::new((Last::default(), Box::new(source) as Box<dyn StatusSource>));
        let shown = Shown { view, sampled: Arc::new(sampled) };
        Ok(Self(Server::start(config, |guard| router(shown, guard))?))
    }

    /// Returns where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Returns what to open in a browser.
    pub fn url(&self) -> String {
        self.0.url()
    }
}

type Sampled = (Last, Box<dyn StatusSource>);

#[derive(Clone)]
struct Shown {
    view: StatusView,
    sampled: Arc<Mutex<Sampled>>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("view", &self.view).finish_non_exhaustive()
    }
}

impl Shown {
    /// Asks the source where that keeps no viewer waiting.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Sampled) -> T + Send + 'static,
    ) -> Result<T, String> {
        let sampled = self.sampled.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&mut lock(&sampled)));
        asked.await.map_err(|error| error.to_string())
    }

    /// Returns the status as JSON; an object with a member `error` where there is none.
    async fn json(&self) -> Bytes {
        let failed = |reason: String| json!({ "error": reason });
        let asked = self.ask(move |(last, source)| {
            last.or_make(|| {
                let status = source.status().unwrap_or_else(failed);
                Bytes::from(status.to_string())
            })
        });
        asked.await.unwrap_or_else(|reason| Bytes::from(failed(reason).to_string()))
    }
}

fn router(shown: Shown, guard: Guard) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/api/status", get(status))
        .route("/api/events", get(follow))
        .route("/api/explain/{name}", get(explain))
        .fallback(nothing_here)
        .with_state(shown)
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

async fn nothing_here() -> Response {
    let text = "Nothing here. There are /, /metrics, /api/status and /api/events; and of a controller \
                /api/explain/DEVICE\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn page(State(shown): State<Shown>) -> Response {
    page::answer(&shown.view.texts())
}

async fn metrics(State(shown): State<Shown>) -> Response {
    match shown.ask(|(_, source)| source.metrics()).await.flatten() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn status(State(shown): State<Shown>) -> Response {
    events::answer_once(shown.json().await)
}

async fn explain(State(shown): State<Shown>, Path(name): Path<String>) -> Response {
    let asked = shown.ask(move |(_, source)| source.explain(&name)).await;
    match asked.map_err(ExplainError::from).flatten() {
        Ok(Some(streams)) => {
            events::answer_once(Bytes::from(json!({ "streams": streams }).to_string()))
        }
        Ok(None) => nothing_here().await,
        Err(error) => {
            let status = match error {
                ExplainError::Name(_) => StatusCode::BAD_REQUEST,
                ExplainError::Status(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{error}\n")).into_response()
        }
    }
}

async fn follow(State(shown): State<Shown>) -> Response {
    events::answer(move || {
        let shown = shown.clone();
        async move { shown.json().await }
    })
}
