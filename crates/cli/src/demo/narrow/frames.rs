//! What became of the frames in a directory: a file has its capture time as time of modification, and was made when it
//! was there.
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Frames of a class.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Frames {
    pub(super) frames: usize,
    /// Of them, how many were there before their deadline.
    pub(super) on_time: usize,
    /// From capture until the frame was stored.
    pub(super) latency_ms_p50: Option<f64>,
    pub(super) latency_ms_p95: Option<f64>,
}

/// Measures the frames of some devices.
pub(super) fn measure(
    out: &Path,
    names: impl Iterator<Item = String>,
    deadline_ms: f64,
) -> Result<Frames> {
    let mut ages_ms = Vec::new();
    for name in names {
        let folder = out.join(name);
        // One that has sent nothing has none.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.with_context(|| folder.display().to_string())?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let data = entry.metadata().with_context(|| entry.path().display().to_string())?;
            let seconds = (data.ctime() - data.mtime()) as f64;
            ages_ms.push(seconds * 1e3 + (data.ctime_nsec() - data.mtime_nsec()) as f64 / 1e6);
        }
    }
    ages_ms.sort_unstable_by(f64::total_cmp);
    let percentile = |percent: usize| {
        let at = (ages_ms.len() * percent).div_ceil(100).checked_sub(1)?;
        ages_ms.get(at).map(|ms| (ms * 10.0).round() / 10.0)
    };
    Ok(Frames {
        frames: ages_ms.len(),
        on_time: ages_ms.iter().filter(|ms| **ms <= deadline_ms).count(),
        latency_ms_p50: percentile(50),
        latency_ms_p95: percentile(95),
    })
}
