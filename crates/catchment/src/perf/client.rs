//! The side that measures.
use super::greeting::{FromClient, FromServer, Hello, VERSION, Welcome};
use super::{BlockMechanism, BlockPlan, Control, PATIENCE, PerfError, Plan, Row, Setup, device};
use crate::providers::Ends;
use crate::session::message::SessionPath;
use catchment_perf::LocalDevice;
use std::net::{TcpStream, ToSocketAddrs as _};

/// A connected client.
pub struct Client {
    control: Control,
    device: LocalDevice,
    path: SessionPath,
    reason: String,
    mechanisms: &'static [&'static dyn BlockMechanism],
}

impl Client {
    /// Connects to the server at `host` and `port`, and agrees on the path.
    ///
    /// # Errors
    /// [`PerfError::Unreachable`], [`PerfError::Refused`] with the server's reason, and what the
    /// control connection and devices say.
    pub fn connect((host, port): (&str, u16), setup: &Setup) -> Result<Self, PerfError> {
        let stream = reach(host, port)?;
        let offers = setup.providers().for_source(Ends::of_socket(&stream));
        let mut control = Control::over_tcp(stream)?;
        control.send(&FromClient::Hello(Hello {
            version: VERSION,
            host: super::host()?,
            offers: offers.list(),
            missing: offers.missing.clone(),
        }))?;
        let Welcome { path, reason } = match control.recv("welcome", PATIENCE)? {
            FromServer::Welcome(welcome) => welcome,
            FromServer::Refused { reason, remedy } => {
                return Err(PerfError::Refused { reason, remedy });
            }
        };
        let context = offers.context(&path).cloned().ok_or_else(|| PerfError::Protocol {
            seen: format!("a path from {}", path.source),
            expected: "one from a provider that was offered".to_owned(),
        })?;
        Ok(Self {
            control,
            device: device(context, path.clone()),
            path,
            reason,
            mechanisms: setup.mechanisms,
        })
    }

    /// Returns the path that is measured: this side's provider is `source`, the server's `collector`.
    pub fn path(&self) -> &SessionPath {
        &self.path
    }

    /// Returns why this path was chosen.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Carries out one plan. Blocks.
    ///
    /// # Errors
    /// [`PerfError`]; after anything but [`PerfError::Plan`] and [`PerfError::Refused`] the
    /// connection is of no use any more.
    pub fn measure(&mut self, plan: &Plan) -> Result<Row, PerfError> {
        Ok(catchment_perf::measure(&mut self.control, &self.device, plan)?.row)
    }

    /// Carries out one plan for blocks. Blocks.
    ///
    /// # Errors
    /// As [`Client::measure`].
    pub fn measure_blocks(&mut self, plan: &BlockPlan) -> Result<Row, PerfError> {
        let (control, device) = (&mut self.control, &self.device);
        Ok(catchment_perf::measure_blocks(control, device, self.mechanisms, plan)?.row)
    }
}

fn reach(host: &str, port: u16) -> Result<TcpStream, PerfError> {
    let unreachable = |source| PerfError::Unreachable { to: format!("{host}:{port}"), source };
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address");
    for address in (host, port).to_socket_addrs().map_err(unreachable)? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}
