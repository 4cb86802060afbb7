//! A status as JSON, made once for all viewers, and as events.
use axum::body::Bytes;
use axum::http::header;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::IntervalStream;

/// Time between two events of a page. Not a multiple of what frames come in: a page that looks each 500 ms at a
/// camera of 4 frames a second would see it always in the same moment of its frame.
const INTERVAL: Duration = Duration::from_millis(467);
/// A status this young serves the next viewer too.
const FRESH: Duration = Duration::from_millis(400);

/// The last status that was made.
#[derive(Debug, Default)]
pub(super) struct Last(Option<(Instant, Bytes)>);

impl Last {
    /// Returns it, or a new one if it is older than 0.4 s.
    pub(super) fn or_make(&mut self, make: impl FnOnce() -> Bytes) -> Bytes {
        if let Some((at, json)) = &self.0
            && at.elapsed() < FRESH
        {
            return json.clone();
        }
        let json = make();
        self.0 = Some((Instant::now(), json.clone()));
        json
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

/// Answers with a status.
pub(super) fn answer_once(json: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// Answers with a status about twice a second, until the viewer is gone.
pub(super) fn answer<F>(mut json: impl FnMut() -> F + Send + 'static) -> Response
where
    F: Future<Output = Bytes> + Send + 'static,
{
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = IntervalStream::new(ticks).then(move |_| json()).map(|json| {
        Ok::<_, Infallible>(Event::default().event("status").data(String::from_utf8_lossy(&json)))
    });
    Sse::new(stream).into_response()
}
