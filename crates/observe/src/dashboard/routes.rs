//! The routes of the live page. All of them only read.
use super::events;
use super::guard::{self, Guard};
use super::live::Live;
use super::page::{self, Texts};
use crate::preview::Preview;
use crate::snapshot::CpuSnapshot;
use crate::{cpu, prometheus};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use std::sync::Arc;
use std::time::Duration;

const TEXTS: Texts = Texts {
    title: "Catchment",
    body: include_str!("collector.html"),
    style: "",
    script: include_str!("collector.js"),
};

/// How long the first answer to a lone viewer takes: rates need two samples.
const FIRST_SAMPLE: Duration = Duration::from_millis(250);

pub(super) fn router(live: Arc<Live>, guard: Guard) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/api/status", get(status))
        .route("/api/events", get(follow))
        .route("/api/preview/{file}", get(preview))
        .fallback(nothing_here)
        .with_state(live)
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

async fn nothing_here() -> Response {
    let text = "Nothing here. There are /, /metrics, /api/status, /api/events and \
                /api/preview/DEVICE.png\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn page() -> Response {
    page::answer(&TEXTS)
}

async fn metrics(State(live): State<Arc<Live>>) -> Response {
    let mut snapshot = live.metrics.snapshot();
    // Prometheus derives the percentage from the seconds.
    snapshot.cpu = cpu::usage_of_self().ok().map(|usage| CpuSnapshot {
        cpu_s: usage.cpu_s,
        cpu_percent: 0.0,
        rss_bytes: usage.rss_bytes,
    });
    let text = prometheus::collector_text(&snapshot);
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

async fn status(State(live): State<Arc<Live>>) -> Response {
    if !live.is_warm() {
        live.warm_up();
        tokio::time::sleep(FIRST_SAMPLE).await;
    }
    events::answer_once(live.json())
}

async fn follow(State(live): State<Arc<Live>>) -> Response {
    // The stream owns the viewer: when the connection ends, both go.
    let viewer = live.join();
    events::answer(move || std::future::ready(viewer.0.json()))
}

async fn preview(
    State(live): State<Arc<Live>>,
    Path(file): Path<String>,
    request: HeaderMap,
) -> Response {
    let device = file.strip_suffix(".png").and_then(|name| live.metrics.device(name));
    match device {
        Some(device) => picture(device.preview(), &request),
        None => (StatusCode::NOT_FOUND, "There is no such device.\n").into_response(),
    }
}

/// Answers with the last picture; 204 while there is none, 304 when the browser has it already.
fn picture(preview: &Preview, request: &HeaderMap) -> Response {
    preview.demand().request();
    let Some((number, picture)) = preview.latest() else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let tag = format!("\"{number}\"");
    // The browser may keep it, but has to ask whether there is a newer one.
    let headers = [(header::ETAG, tag.clone()), (header::CACHE_CONTROL, "no-cache".to_owned())];
    if request.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    match picture.png() {
        Some(png) => {
            let png = png.to_vec();
            (headers, [(header::CONTENT_TYPE, "image/png")], png).into_response()
        }
        None => StatusCode::NO_CONTENT.into_response(),
    }
}
