//! The routes of the live page. All of them only read.
use super::guard::{self, Guard};
use super::live::{INTERVAL, Live};
use crate::preview::Preview;
use crate::snapshot::CpuSnapshot;
use crate::{cpu, prometheus};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::IntervalStream;

/// Page, style and script; assembled with a fresh nonce for each visit.
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// How long the first answer to a lone viewer takes: rates need two samples.
const FIRST_SAMPLE: Duration = Duration::from_millis(250);

pub(super) fn router(live: Arc<Live>, guard: Guard) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/api/status", get(status))
        .route("/api/events", get(events))
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

/// Serves the page, which may run its own script and style, ask its own server, and nothing else.
async fn page() -> Response {
    let nonce = match fresh_nonce() {
        Ok(nonce) => nonce,
        Err(error) => return unavailable(&format!("no random numbers: {error}\n")),
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let page =
        PAGE.replace("{{nonce}}", &nonce).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = ([(header::CONTENT_TYPE, html)], page).into_response();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn fresh_nonce() -> rustix::io::Result<String> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn unavailable(text: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, text.to_owned()).into_response()
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
    ([(header::CONTENT_TYPE, "application/json")], live.json()).into_response()
}

async fn events(State(live): State<Arc<Live>>) -> Response {
    let viewer = live.join();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The stream owns the viewer: when the connection ends, both go.
    let stream = IntervalStream::new(ticks).map(move |_| {
        let json = viewer.0.json();
        Ok::<_, Infallible>(Event::default().event("status").data(String::from_utf8_lossy(&json)))
    });
    Sse::new(stream).into_response()
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
