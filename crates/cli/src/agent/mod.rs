//! `catchment agent`: one device shared among applications; and what they have had of it.
mod show;

use crate::args::{AgentArgs, AgentCommand, AgentMode, PeerFiles};
use crate::cert::tls_failure;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::{self, say};
use crate::{page, stop};
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
use std::path::Path;
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
struct Summary {
    event: &'static str,
    applications: Vec<Account>,
}

pub(crate) fn run(args: &AgentArgs) -> Result<(), Failure> {
    match &args.command {
        Some(AgentCommand::Status(args)) => return show::status(args),
        Some(AgentCommand::Top(args)) => return show::top(args),
        Some(AgentCommand::Explain(args)) => return show::explanation(args),
        None => {}
    }
    let Some(file) = &args.policy else {
        return Err(Failure::new(Code::Usage, anyhow::anyhow!("--policy FILE is needed")));
    };
    let mut policy = read_policy(file, args).or_fail(Code::Local)?;
    let measured = measured(args, &policy)?;
    if let Some(measured) = &measured {
        measured.fill(&mut policy);
    }
    let (name, applications) = (policy.name.clone(), policy.applications.len());
    let stop = stop::watch(args.until_stdin_closes, || {})?;
    let security = security(&args.security)?;
    let server = security.server.clone();
    let agent = Agent::start_secured(policy, security).or_fail(Code::Local)?;
    let agent = Arc::new(agent);
    let (file, given, running) = (file.clone(), args.clone(), Arc::downgrade(&agent));
    stop.on_hangup(Arc::new(move || {
        let Some(agent) = running.upgrade() else { return };
        reload(&file, &given, measured.as_ref(), &agent);
    }));
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
    let shown = show::Shown { observer: Observer::new(name.clone()) };
    let page = page::start(&args.page, &server, args.json, StatusView::Agent, shown)?;
    while !stop.wait(Duration::from_secs(3600)) {}
    drop(page);
    if args.json {
        let applications = status(&name).or_fail(Code::Failed)?;
        output::print_json(&Summary { event: "summary", applications })?;
    }
    drop(agent);
    Ok(())
}

/// Measures the device, if that was asked for, and says what was found.
fn measured(args: &AgentArgs, policy: &Policy) -> Result<Option<Calibration>, Failure> {
    if !args.calibrate {
        return Ok(None);
    }
    let found = calibrate(policy.device, policy.limits().chunk_bytes).or_fail(Code::Local)?;
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

/// Lets an agent go over to what the policy says now, if it can.
fn reload(file: &Path, args: &AgentArgs, measured: Option<&Calibration>, agent: &Agent) {
    let read = read_policy(file, args).and_then(|mut policy| {
        if let Some(measured) = measured {
            measured.fill(&mut policy);
        }
        let applications = policy.applications.len();
        agent.reload(policy).map(|()| applications)
    });
    match read {
        Ok(applications) => say!("the policy is read again: {applications} applications by name"),
        Err(error) => say!("warning: {}: nothing has changed: {error}", file.display()),
    }
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
