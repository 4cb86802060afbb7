//! The live page of a command that serves one only when it is asked for.
use crate::args::PageArgs;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::{self, say};
use catchment::observe::{DashboardConfig, PageTls, StatusPage, StatusSource, StatusView};
use catchment::session::io::ServerSecurity;
use serde_json::json;

/// Starts the page, if there is to be one, and says where it is.
pub(crate) fn start(
    args: &PageArgs,
    security: &ServerSecurity,
    json: bool,
    view: StatusView,
    source: impl StatusSource,
) -> Result<Option<StatusPage>, Failure> {
    let Some(listen) = args.dashboard else { return Ok(None) };
    let config = DashboardConfig {
        listen,
        tls: security.tls.clone().map(|tls| PageTls::new(move || tls.current())),
        insecure_remote: security.insecure,
        host_names: args.dashboard_name.clone(),
    };
    let page = StatusPage::start(config, view, source).or_fail(Code::Local)?;
    if json {
        output::print_json(&json!({"event": "page", "url": page.url()}))?;
    } else {
        say!("live page: {}", page.url());
    }
    Ok(Some(page))
}
