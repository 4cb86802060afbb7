//! `catchment agent`: devices shared among applications, each by an agent of its own; and what they have had of it.
mod show;

use crate::args::{AgentArgs, AgentCommand, AgentMode, PeerFiles};
use crate::cert::tls_failure;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::{self, say};
use crate::{page, stop};
use anyhow::anyhow;
use catchment::observe::StatusView;
use catchment::session::io::{ClientSecurity, ServerSecurity};
use catchment::session::reread::{ClientTls, ServerTls};
use catchment_agent::calibrate::{Calibration, calibrate};
use catchment_agent::explain::Observer;
use catchment_agent::peer::PeerSecurity;
use catchment_agent::policy::{Mode, Policy, PolicyError};
use catchment_agent::protocol::{Account, socket_name};
use catchment_agent::{Agent, status};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The first line.
#[derive(Serialize)]
struct Listening<'a> {
    event: &'static str,
    agent: &'a str,
    /// Of its socket: an abstract name.
    address: String,
    applications: usize,
    /// Where the agents of other hosts reach it.
    peers_at: Option<String>,
}

/// The last line.
#[derive(Serialize)]
struct Summary<'a> {
    event: &'static str,
    agent: &'a str,
    applications: Vec<Account>,
}

pub(crate) fn run(args: &AgentArgs) -> Result<(), Failure> {
    match &args.command {
        Some(AgentCommand::Status(args)) => return show::status(args),
        Some(AgentCommand::Top(args)) => return show::top(args),
        Some(AgentCommand::Explain(args)) => return show::explanation(args),
        None => {}
    }
    if args.policies.is_empty() {
        return Err(Failure::new(Code::Usage, anyhow!("--policy FILE is needed")));
    }
    if args.policies.len() > 1 && (args.listen.is_some() || args.page.dashboard.is_some()) {
        let error = anyhow!("--listen and --dashboard are for one agent, and these are several");
        let hint =
            "give each policy a \"listen\" of its \"between\"; a page needs a process of its own";
        return Err(Failure::new(Code::Usage, error).hint(hint));
    }
    let stop = stop::watch(args.until_stdin_closes, || {})?;
    let security = security(&args.security)?;
    let server = security.server.clone();
    let start = |file: &PathBuf| Running::start(file, args, &security);
    let all: Result<Vec<Running>, Failure> = args.policies.iter().map(start).collect();
    let all = Arc::new(all?);
    let (running, given) = (Arc::downgrade(&all), args.clone());
    stop.on_hangup(Arc::new(move || {
        let Some(all) = running.upgrade() else { return };
        all.iter().for_each(|one| one.reload(&given));
    }));
    let observer = all.first().map(|one| Observer::new(one.name.clone()));
    let shown = observer.map(|observer| show::Shown { observer });
    let page = shown.map(|it| page::start(&args.page, &server, args.json, StatusView::Agent, it));
    let page = page.transpose()?;
    while !stop.wait(Duration::from_secs(3600)) {}
    drop(page);
    if args.json {
        for one in &*all {
            let applications = status(&one.name).or_fail(Code::Failed)?;
            output::print_json(&Summary { event: "summary", agent: &one.name, applications })?;
        }
    }
    drop(all);
    Ok(())
}

/// An agent that runs by a policy file.
struct Running {
    file: PathBuf,
    name: String,
    measured: Option<Calibration>,
    agent: Agent,
}

impl Running {
    /// Starts it, and says where it is found.
    fn start(file: &Path, args: &AgentArgs, security: &PeerSecurity) -> Result<Self, Failure> {
        let mut policy = read_policy(file, args).or_fail(Code::Local)?;
        let measured = measured(args, &policy)?;
        if let Some(measured) = &measured {
            measured.fill(&mut policy);
        }
        let (name, applications) = (policy.name.clone(), policy.applications.len());
        let agent = Agent::start_secured(policy, security.clone()).or_fail(Code::Local)?;
        let peers_at = agent.local().map(ToString::to_string);
        if args.json {
            let address = format!("@{}", socket_name(&name));
            let event = "listening";
            let listening = Listening { event, agent: &name, address, applications, peers_at };
            output::print_json(&listening)?;
        } else {
            say!("agent {name:?} serves {applications} applications by name");
            if let Some(peers_at) = peers_at {
                say!(
                    "agents of other hosts reach it at {peers_at}: catchment agent --peer {peers_at} ..."
                );
            }
        }
        Ok(Self { file: file.to_owned(), name, measured, agent })
    }

    /// Lets it go over to what the policy says now, if it can.
    fn reload(&self, args: &AgentArgs) {
        let read = read_policy(&self.file, args).and_then(|mut policy| {
            if let Some(measured) = &self.measured {
                measured.fill(&mut policy);
            }
            let applications = policy.applications.len();
            self.agent.reload(policy).map(|()| applications)
        });
        match read {
            Ok(applications) => {
                say!("the policy is read again: {applications} applications by name")
            }
            Err(error) => say!("warning: {}: nothing has changed: {error}", self.file.display()),
        }
    }
}

/// Measures the device, if that was asked for, and says what was found.
fn measured(args: &AgentArgs, policy: &Policy) -> Result<Option<Calibration>, Failure> {
    if !args.calibrate {
        return Ok(None);
    }
    let found = calibrate(&policy.device, policy.limits().chunk_bytes).or_fail(Code::Local)?;
    let (bytes_per_s, requests_per_s) = (found.bytes_per_s, found.requests_per_s);
    let request_bytes = found.request_bytes(policy.between.send_bytes_per_s);
    if args.json {
        let event = "calibrated";
        output::print_json(
            &json!({"event": event, "bytes_per_s": bytes_per_s, "requests_per_s": requests_per_s, "request_bytes": request_bytes}),
        )?;
    } else {
        say!(
            "the device moves {bytes_per_s:.2e} bytes/s and {requests_per_s:.2e} requests/s: one costs {request_bytes} bytes at least"
        );
    }
    Ok(Some(found))
}

/// Reads the policy; words of the command line are in place of what it says.
fn read_policy(file: &Path, args: &AgentArgs) -> Result<Policy, PolicyError> {
    let mut policy = Policy::read(file)?;
    if let Some(mode) = args.mode {
        policy.mode = match mode {
            AgentMode::Drum => Mode::Drum,
            AgentMode::Share => Mode::Share,
            AgentMode::Justitia => Mode::Justitia,
            AgentMode::Raw => Mode::Raw,
            AgentMode::Unlimited => Mode::Unlimited,
        };
    }
    policy.alpha = args.alpha.unwrap_or(policy.alpha);
    let between = &mut policy.between;
    between.listen = args.listen.clone().or(between.listen.take());
    between.peers.extend(args.peers.iter().cloned());
    Ok(policy)
}

fn security(files: &PeerFiles) -> Result<PeerSecurity, Failure> {
    let insecure = files.insecure;
    let client = files.files().map(ClientTls::open).transpose().map_err(tls_failure)?;
    let server = files.files().map(ServerTls::open).transpose().map_err(tls_failure)?;
    Ok(PeerSecurity {
        client: ClientSecurity { tls: client, insecure },
        server: ServerSecurity { tls: server, insecure },
    })
}
