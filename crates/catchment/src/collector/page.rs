//! The live page beside a collector; without the feature `live-page` there is none.

use super::CollectorError;
use crate::observe::CollectorMetrics;
#[cfg(feature = "live-page")]
use crate::observe::{Dashboard, DashboardConfig};
use std::sync::Arc;

/// Where to serve it.
#[derive(Debug, Default)]
pub(super) struct PageOptions {
    #[cfg(feature = "live-page")]
    pub(super) listen: Option<std::net::SocketAddr>,
}

/// The page while it is served.
#[derive(Default)]
pub(super) struct Page {
    #[cfg(feature = "live-page")]
    dashboard: Option<Dashboard>,
}

#[cfg(feature = "live-page")]
impl PageOptions {
    pub(super) fn start(&self, metrics: &Arc<CollectorMetrics>) -> Result<Page, CollectorError> {
        let start = |listen| {
            let config = DashboardConfig {
                listen,
                ..DashboardConfig::default()
            };
            Dashboard::start(config, metrics.clone())
        };
        let dashboard = self.listen.map(start).transpose()?;
        Ok(Page { dashboard })
    }
}

#[cfg(not(feature = "live-page"))]
impl PageOptions {
    pub(super) fn start(&self, _: &Arc<CollectorMetrics>) -> Result<Page, CollectorError> {
        Ok(Page::default())
    }
}

impl Page {
    /// Its address.
    #[cfg(feature = "live-page")]
    pub(super) fn url(&self) -> Option<String> {
        self.dashboard.as_ref().map(Dashboard::url)
    }

    pub(super) fn stop(self) {
        #[cfg(feature = "live-page")]
        if let Some(dashboard) = self.dashboard {
            dashboard.stop();
        }
    }
}
