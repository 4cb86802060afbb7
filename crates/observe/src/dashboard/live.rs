//! What viewers see, sampled once for all of them and only on request.
use super::events::Last;
use crate::metrics::CollectorMetrics;
use crate::sampler::Sampler;
use crate::sync::lock;
use axum::body::Bytes;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
struct Sampled {
    sampler: Sampler,
    last: Last,
}

/// Samples shared by all viewers.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) metrics: Arc<CollectorMetrics>,
    sampled: Mutex<Sampled>,
    viewers: AtomicUsize,
}

impl Live {
    pub(super) fn new(metrics: Arc<CollectorMetrics>) -> Self {
        let sampler = Sampler::new(metrics.clone());
        let sampled = Mutex::new(Sampled { sampler, last: Last::default() });
        Self { metrics, sampled, viewers: AtomicUsize::new(0) }
    }

    pub(super) fn viewers(&self) -> usize {
        self.viewers.load(Relaxed)
    }

    /// Returns whether a sample taken now would have rates.
    pub(super) fn is_warm(&self) -> bool {
        lock(&self.sampled).sampler.is_warm()
    }

    /// Returns the status as JSON, at most 0.4 s old.
    pub(super) fn json(&self) -> Bytes {
        let sampled = &mut *lock(&self.sampled);
        sampled.last.or_make(|| {
            // Plain structs with string keys: serialisation has nothing to fail at.
            Bytes::from(serde_json::to_vec(&*sampled.sampler.sample()).unwrap_or_default())
        })
    }

    /// Takes a sample so that the next one has rates.
    pub(super) fn warm_up(&self) {
        let mut sampled = lock(&self.sampled);
        sampled.sampler.sample();
        sampled.last.forget();
    }

    /// Adds a viewer. Its connection has a place, of which there are few.
    pub(super) fn join(self: &Arc<Self>) -> Viewer {
        self.viewers.fetch_add(1, Relaxed);
        Viewer(self.clone())
    }
}

/// An open page; dropping it counts it as gone.
pub(super) struct Viewer(pub(super) Arc<Live>);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Relaxed);
    }
}
