//! HTTP with JSON, for people and programs that run the controller: how it stands, and settings that change.
//!
//! | request | what |
//! |---|---|
//! | `GET /status` | [`Status`](crate::Status) |
//! | `PUT /links/NAME` with `{"capacity": "15Gbit"}` | the link carries that from now on |
//! | `PUT /config` with `{"toml": "..."}` | the text of a configuration, whole; what cannot be taken over changes nothing |
//!
//! Over a unix socket this user may, and root; elsewhere the owner of a certificate that `[[allow]]` calls admin.
mod client;

pub use client::{AskError, ask, set};

use crate::config::{Settings, parse_rate};
use crate::grants::Command;
use crate::serve::{Context, LIMIT};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use catchment_session::io::{Arriving, Peer, Place, SecuredStream, StreamListener};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::json;
use std::sync::PoisonError;
use tokio::sync::oneshot;

/// What both ends of TLS are exported for: nothing uses it.
const LABEL: &[u8] = b"EXPORTER-catchment-admin";
/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLink {
    capacity: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewConfig {
    toml: String,
}

pub(crate) async fn accept_all(listener: StreamListener, context: Context) {
    let serve = |arriving: Arriving, place: Place| {
        let context = context.clone();
        async move {
            let _place = place;
            if let Err(reason) = serve(arriving, context).await {
                tracing::info!(%reason, "a connection to change settings ended");
            }
        }
    };
    listener.serve_each(CONNECTIONS_MAX, serve).await;
}

async fn serve(arriving: Arriving, context: Context) -> Result<(), String> {
    let stream = tokio::time::timeout(LIMIT, arriving.secure(LABEL)).await;
    let stream = stream.map_err(|_| "no handshake in time".to_owned())??;
    let who = stream.peer().to_string();
    let app = if may(&stream, &context) {
        Router::new()
            .route("/status", get(status))
            .route("/links/{name}", put(set_link))
            .route("/config", put(set_config))
            .with_state(context)
    } else {
        tracing::warn!(who, "may not change settings");
        Router::new().fallback(|| async {
            let why = "use a unix socket of the controller's user, or TLS with a certificate that [[allow]] calls admin";
            refusal(StatusCode::FORBIDDEN, why)
        })
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(LIMIT).keep_alive(false);
    let io = TokioIo::new(stream.into_stream());
    let served = http.serve_connection(io, TowerToHyperService::new(app));
    let served = tokio::time::timeout(2 * LIMIT, served).await;
    served.map_err(|_| "no request in time".to_owned())?.map_err(|error| error.to_string())
}

/// Returns whether the other end may change settings.
fn may(stream: &SecuredStream, context: &Context) -> bool {
    match (stream.peer(), stream.certificate()) {
        (Peer::Unix { uid, .. }, _) => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
        (Peer::Tcp(_), Some(certificate)) => {
            let settings = context.settings.read().unwrap_or_else(PoisonError::into_inner);
            settings.is_admin(certificate)
        }
        (Peer::Tcp(_), None) => false,
    }
}

fn refusal(code: StatusCode, reason: impl ToString) -> Response {
    (code, Json(json!({"error": reason.to_string()}))).into_response()
}

async fn status(State(context): State<Context>) -> Response {
    let (answer, status) = oneshot::channel();
    context.grants.tell(Command::Status(answer));
    match status.await {
        Ok(status) => Json(status).into_response(),
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the controller ends"),
    }
}

async fn set_link(
    State(context): State<Context>,
    Path(name): Path<String>,
    Json(NewLink { capacity }): Json<NewLink>,
) -> Response {
    let capacity_bps = match parse_rate(&capacity) {
        Ok(capacity_bps) => capacity_bps,
        Err(remedy) => return refusal(StatusCode::UNPROCESSABLE_ENTITY, remedy),
    };
    match context.set_capacity(&name, capacity_bps) {
        Some(changed) => {
            tracing::warn!(link = %changed.link, before_bps = changed.before_bps, capacity_bps, "a link is said to carry something else");
            Json(changed).into_response()
        }
        None => {
            let settings = context.settings.read().unwrap_or_else(PoisonError::into_inner);
            let names: Vec<&str> = settings.links.iter().map(|link| link.name.as_str()).collect();
            refusal(
                StatusCode::NOT_FOUND,
                format!("there is no such link; there are: {}", names.join(", ")),
            )
        }
    }
}

async fn set_config(
    State(context): State<Context>,
    Json(NewConfig { toml }): Json<NewConfig>,
) -> Response {
    let listen = {
        let settings = context.settings.read().unwrap_or_else(PoisonError::into_inner);
        settings.listen.clone()
    };
    let changed = Settings::parse(&toml, &listen).map_err(|error| error.to_string());
    match changed.and_then(|new| context.reload(new).map_err(|error| error.to_string())) {
        Ok(reloaded) => {
            tracing::warn!(?reloaded, "settings have changed");
            Json(reloaded).into_response()
        }
        Err(reason) => refusal(StatusCode::UNPROCESSABLE_ENTITY, reason),
    }
}
