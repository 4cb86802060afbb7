//! What the live page of a source shows.
use crate::args::SendArgs;
use crate::cert::tls_failure;
use crate::failure::Failure;
use crate::page;
use catchment::observe::prometheus::source_text;
use catchment::observe::{
    SourceMetrics, SourceSampler, SourceSnapshot, StatusPage, StatusSource, StatusView,
};
use catchment::session::io::ServerSecurity;
use catchment::session::reread::ServerTls;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The numbers of the source; none until a collector has answered.
pub(super) type Running = Arc<OnceLock<Arc<SourceMetrics>>>;

/// Starts the page, if there is to be one. Changed certificates are read again before each handshake.
pub(super) fn start(args: &SendArgs, running: Running) -> Result<Option<StatusPage>, Failure> {
    if args.page.dashboard.is_none() {
        return Ok(None);
    }
    let tls = args.security.files().map(ServerTls::open).transpose().map_err(tls_failure)?;
    let security = ServerSecurity { tls, insecure: args.security.insecure };
    let shown = Shown { running, sampler: None };
    page::start(&args.page, &security, args.json, StatusView::Source, shown)
}

struct Shown {
    running: Running,
    sampler: Option<SourceSampler>,
}

impl Shown {
    fn sample(&mut self) -> Result<SourceSnapshot, String> {
        let metrics = self.running.get().ok_or("no collector has answered yet")?;
        let sampler = self.sampler.get_or_insert_with(|| SourceSampler::new(metrics.clone()));
        Ok(sampler.sample())
    }
}

impl StatusSource for Shown {
    fn status(&mut self) -> Result<Value, String> {
        serde_json::to_value(self.sample()?).map_err(|error| error.to_string())
    }

    fn metrics(&mut self) -> Result<String, String> {
        Ok(source_text(&self.sample()?))
    }
}
