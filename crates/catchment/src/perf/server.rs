//! The side that waits to be measured.
use super::greeting::{FromClient, FromServer, VERSION, Welcome};
use super::{Control, PATIENCE, PerfError, Setup, device};
use crate::providers::Ends;
use crate::session::host::Host;
use crate::session::path::SourceFacts;
use catchment_perf::LocalDevice;
use std::net::{SocketAddr, TcpListener};

/// The port of RDMA's own measuring programs.
pub const PORT: u16 = 18515;

/// Waits for clients, one at a time.
pub struct Server {
    listener: TcpListener,
    setup: Setup,
    host: Host,
}

/// What a client was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Where it was.
    pub client: SocketAddr,
    /// Plans that were carried out.
    pub plans: u64,
}

impl Server {
    /// Listens at `address`.
    ///
    /// # Errors
    /// [`PerfError::Listen`], [`PerfError::Host`].
    pub fn bind(address: SocketAddr, setup: Setup) -> Result<Self, PerfError> {
        let listener =
            TcpListener::bind(address).map_err(|source| PerfError::Listen { address, source })?;
        Ok(Self { listener, setup, host: super::host()? })
    }

    /// Returns where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_address(&self) -> Result<SocketAddr, PerfError> {
        self.listener.local_addr().map_err(PerfError::Control)
    }

    /// Serves the next client until it leaves.
    ///
    /// # Errors
    /// What ended it; the next client can be served.
    pub fn serve(&self) -> Result<Served, PerfError> {
        let (stream, client) = self.listener.accept().map_err(PerfError::Control)?;
        let ends = Ends::of_socket(&stream);
        let mut control = Control::over_tcp(stream)?;
        let device = self.greet(&mut control, ends)?;
        let plans = catchment_perf::serve(&mut control, &device, self.setup.mechanisms)?;
        Ok(Served { client, plans })
    }

    /// Agrees on the path; the device for it.
    fn greet(&self, control: &mut Control, ends: Ends) -> Result<LocalDevice, PerfError> {
        let FromClient::Hello(hello) = control.recv("hello", PATIENCE)?;
        if hello.version != VERSION {
            let reason = format!("the client speaks version {}, this is {VERSION}", hello.version);
            return Err(refuse(control, reason, "use the same release on both sides"));
        }
        let source = SourceFacts {
            host: &hello.host,
            offers: &hello.offers,
            missing: &hello.missing,
            failed: &[],
            seen: ends.peer,
        };
        match self.setup.providers().choose(&self.host, &source, ends) {
            Ok((choice, context)) => {
                control.send(&FromServer::Welcome(Welcome {
                    path: choice.path.clone(),
                    reason: choice.reason,
                }))?;
                Ok(device(context, choice.path))
            }
            Err(refusal) => Err(refuse(control, refusal.reason, &refusal.remedy)),
        }
    }
}

/// Refuses the client; returns the error of this side.
fn refuse(control: &mut Control, reason: String, remedy: &str) -> PerfError {
    let remedy = remedy.to_owned();
    let refused = FromServer::Refused { reason: reason.clone(), remedy: remedy.clone() };
    match control.send(&refused) {
        Ok(()) => PerfError::Refused { reason, remedy },
        Err(error) => error,
    }
}
