//! Arguments of a live page that is served only when asked for.
use super::values;
use clap::{ArgAction, Args};
use std::net::SocketAddr;

/// Where a command that runs shows how it stands.
#[derive(Debug, Clone, Args)]
pub(crate) struct PageArgs {
    /// Address of a live page and of the metrics, such as 127.0.0.1:7180 (port 0: a free one); off loopback they are
    /// for who has a certificate, with --insecure for everybody
    #[arg(long, value_name = "ADDR", value_parser = values::socket_address)]
    pub(crate) dashboard: Option<SocketAddr>,
    /// Name by which browsers may call the live page, besides addresses and `localhost`; may be repeated
    #[arg(long, value_name = "HOST", action = ArgAction::Append, requires = "dashboard")]
    pub(crate) dashboard_name: Vec<String>,
}
