//! The side that waits to be measured.

use super::blocks::{self, BlockPlan, Ports, Side};
use super::control::{Control, PATIENCE};
use super::end::End;
use super::message::{FromClient, FromServer, Hello, VERSION, Welcome};
use super::plan::{Amount, Figure, Operation, Plan};
use super::{PerfError, Setup, bandwidth, latency};
use crate::observe::cpu::usage_of_self;
use crate::session::host::Host;
use crate::session::message::SessionPath;
use crate::session::path::{PathChoice, SourceFacts};
use crate::session::providers::{Ends, Providers};
use crate::session::refusal::Refusal;
use catchment_verbs::Context;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// The port of RDMA's own measuring programs.
pub const PORT: u16 = 18515;
/// A client that plans nothing for so long is sent away.
const IDLE: Duration = Duration::from_secs(60);

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

/// A connected client.
struct Serving {
    control: Control,
    context: Arc<dyn Context>,
    path: SessionPath,
}

impl Server {
    /// Listens at `address`.
    ///
    /// # Errors
    /// [`PerfError::Listen`], [`PerfError::Host`].
    pub fn bind(address: SocketAddr, setup: Setup) -> Result<Server, PerfError> {
        let listener =
            TcpListener::bind(address).map_err(|source| PerfError::Listen { address, source })?;
        Ok(Server {
            listener,
            setup,
            host: Host::read()?,
        })
    }

    /// Where it listens.
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
        let ends = Ends {
            local: stream.local_addr().ok().map(|at| plain(at.ip())),
            peer: Some(plain(client.ip())),
        };
        let mut serving = self.greet(Control::new(stream)?, ends)?;
        match serving.all() {
            Ok(plans) => Ok(Served { client, plans }),
            Err(error) => {
                // It may be gone, or know already.
                let _ = serving.control.send(&FromServer::Failed {
                    error: error.to_string(),
                });
                Err(error)
            }
        }
    }

    fn greet(&self, mut control: Control, ends: Ends) -> Result<Serving, PerfError> {
        let said = control.recv::<FromClient>("hello", PATIENCE)?;
        let FromClient::Hello(hello) = said else {
            return Err(said.unexpected("hello"));
        };
        if hello.version != VERSION {
            let reason = format!("it speaks version {}, this is {VERSION}", hello.version);
            return Err(refuse(
                &mut control,
                reason,
                "use the same release on both sides",
            ));
        }
        let providers = self.setup.providers();
        match self.choose(&providers, &hello, ends) {
            Ok((choice, context)) => {
                let welcome = Welcome {
                    path: choice.path.clone(),
                    reason: choice.reason,
                };
                control.send(&FromServer::Welcome(welcome))?;
                Ok(Serving {
                    control,
                    context,
                    path: choice.path,
                })
            }
            Err(refusal) => Err(refuse(&mut control, refusal.reason, &refusal.remedy)),
        }
    }

    /// The way, and the device for it.
    fn choose(
        &self,
        providers: &Providers,
        hello: &Hello,
        ends: Ends,
    ) -> Result<(PathChoice, Arc<dyn Context>), Refusal> {
        let client = SourceFacts {
            host: &hello.host,
            offers: &hello.offers,
            missing: &hello.missing,
            failed: &[],
            seen: ends.peer,
        };
        providers.choose(&self.host, &client, ends)
    }
}

impl Serving {
    /// Carries out plans until the client leaves; how many there were.
    fn all(&mut self) -> Result<u64, PerfError> {
        let mut plans = 0;
        while let Some(said) = self.control.next::<FromClient>("a plan", IDLE)? {
            match said {
                FromClient::Run { plan, place } => {
                    match self.prepare(plan, |end, path| end.connect(&place, path)) {
                        Ok(end) => self.run(end)?,
                        Err(error) => self.refuse(&error)?,
                    }
                }
                FromClient::Blocks { plan, ports } => self.blocks(plan, ports)?,
                FromClient::Hello(_) | FromClient::Here | FromClient::Over { .. } => {
                    return Err(said.unexpected("a plan"));
                }
            }
            plans += 1;
        }
        Ok(plans)
    }

    fn prepare(
        &self,
        plan: Plan,
        connect: impl FnOnce(&mut End, &SessionPath) -> Result<(), PerfError>,
    ) -> Result<End, PerfError> {
        plan.check()?;
        let mut end = End::open(&self.context, plan)?;
        connect(&mut end, &self.path)?;
        match (plan.test.operation, plan.test.figure) {
            (Operation::Send, Figure::Latency) => latency::prepare(&mut end)?,
            (Operation::Send, Figure::Bandwidth) => {
                for n in 0..u64::from(plan.depth) {
                    end.post_receive(n, end.offset(n))?;
                }
            }
            (Operation::Write | Operation::Read, _) => {}
        }
        Ok(end)
    }

    fn run(&mut self, mut end: End) -> Result<(), PerfError> {
        let before = cpu_s();
        self.control
            .send(&FromServer::Ready { place: end.place() })?;
        let test = end.plan.test;
        if test.is_answered() {
            latency::answer(&mut end, &mut self.control)?;
            bandwidth::over(&mut self.control, PATIENCE)?;
        } else if test.operation == Operation::Send {
            bandwidth::take(&mut end, &mut self.control)?;
        } else {
            // The device does it all.
            bandwidth::over(&mut self.control, longest(&end.plan))?;
        }
        self.control.send(&FromServer::Used {
            cpu_s: cpu_s() - before,
        })
    }

    fn blocks(&mut self, plan: BlockPlan, ports: Ports) -> Result<(), PerfError> {
        if let Err(error) = plan.check() {
            return self.refuse(&error);
        }
        let side = Side {
            plan,
            context: &self.context,
            path: &self.path,
            control: &mut self.control,
        };
        blocks::serve(side, ports)
    }

    fn refuse(&mut self, error: &PerfError) -> Result<(), PerfError> {
        self.control.send(&FromServer::Refused {
            reason: error.to_string(),
            remedy: "change the plan, or the server's limits".to_owned(),
        })
    }
}

/// An IPv4 address is one, also where it came over a socket for both families.
fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn longest(plan: &Plan) -> Duration {
    PATIENCE
        + match plan.amount {
            Amount::Seconds(seconds) => Duration::from_secs_f64(seconds),
            Amount::Iterations(_) => Duration::from_secs_f64(Plan::SECONDS_MAX),
        }
}

/// Tells the client, and is the error of this side.
fn refuse(control: &mut Control, reason: String, remedy: &str) -> PerfError {
    let remedy = remedy.to_owned();
    let refused = FromServer::Refused {
        reason: reason.clone(),
        remedy: remedy.clone(),
    };
    match control.send(&refused) {
        Ok(()) => PerfError::Refused { reason, remedy },
        Err(error) => error,
    }
}

/// Processor time of this process so far; 0 where the kernel does not say.
pub(super) fn cpu_s() -> f64 {
    usage_of_self().map_or(0.0, |usage| usage.cpu_s)
}
