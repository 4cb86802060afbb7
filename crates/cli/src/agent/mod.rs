//! `catchment agent`: one device shared among applications; and what they have had of it.
use crate::args::{
    AgentArgs, AgentCommand, AgentExplainArgs, AgentMode, AgentStatusArgs, PeerFiles,
};
use crate::cert::tls_failure;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::table::Table;
use crate::output::{self, say};
use crate::stop;
use catchment::session::io::{ClientSecurity, ServerSecurity};
use catchment::session::names::printable;
use catchment::session::reread::{ClientTls, ServerTls};
use catchment_agent::explain::{Binds, ExplainError, Explanation, explain};
use catchment_agent::peer::PeerSecurity;
use catchment_agent::policy::{Mode, Policy, PolicyError};
use catchment_agent::protocol::{Account, socket_name};
use catchment_agent::{Agent, peers, rounds, status};
use serde::Serialize;
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
        Some(AgentCommand::Status(args)) => return show(args),
        Some(AgentCommand::Explain(args)) => return tell(args),
        None => {}
    }
    let Some(file) = &args.policy else {
        return Err(Failure::new(Code::Usage, anyhow::anyhow!("--policy FILE is needed")));
    };
    let policy = read_policy(file, args).or_fail(Code::Local)?;
    let (name, applications) = (policy.name.clone(), policy.applications.len());
    let stop = stop::watch(args.until_stdin_closes, || {})?;
    let agent = Agent::start_secured(policy, security(&args.security)?).or_fail(Code::Local)?;
    let agent = Arc::new(agent);
    let (file, given, running) = (file.clone(), args.clone(), Arc::downgrade(&agent));
    stop.on_hangup(Arc::new(move || {
        let Some(agent) = running.upgrade() else { return };
        reload(&file, &given, &agent);
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
    while !stop.wait(Duration::from_secs(3600)) {}
    if args.json {
        let applications = status(&name).or_fail(Code::Failed)?;
        output::print_json(&Summary { event: "summary", applications })?;
    }
    drop(agent);
    Ok(())
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
    let between = &mut policy.between;
    between.listen = args.listen.clone().or(between.listen.take());
    between.peers.extend(args.peers.iter().cloned());
    Ok(policy)
}

/// Lets an agent go over to what the policy says now, if it can.
fn reload(file: &Path, args: &AgentArgs, agent: &Agent) {
    let read = read_policy(file, args).and_then(|policy| {
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

fn show(args: &AgentStatusArgs) -> Result<(), Failure> {
    let accounts = status(&args.agent).or_fail(Code::Unreachable)?;
    let known = peers(&args.agent).or_fail(Code::Unreachable)?;
    let rounds = rounds(&args.agent).or_fail(Code::Unreachable)?;
    if args.prometheus {
        return output::print(&output::metrics::of_agent(&args.agent, &accounts));
    }
    if args.json {
        accounts.iter().try_for_each(output::print_json)?;
        known.iter().try_for_each(output::print_json)?;
        return rounds.iter().try_for_each(output::print_json);
    }
    let heading = [
        "application", "process", "weight", "share", "queue pairs", "requests", "done", "failed",
        "waiting", "bytes", "memory", "bytes/s agreed",
    ];
    let mut table = Table::new(&heading, 1);
    for account in &accounts {
        table.row(vec![
            account.application.clone(),
            account.process.to_string(),
            account.weight.to_string(),
            format!("{:.1} %", 100.0 * account.share),
            account.queue_pairs.to_string(),
            account.requests.to_string(),
            account.done.to_string(),
            account.failed.to_string(),
            account.waiting.to_string(),
            account.bytes.to_string(),
            account.memory_bytes.to_string(),
            agreed(account.rate_bytes_per_s),
        ]);
    }
    output::print(&table.text())?;
    let Some(rounds) = rounds else { return Ok(()) };
    output::print(&format!(
        "host {}, epoch {}: {} rounds, {}\n",
        rounds.host,
        rounds.epoch,
        rounds.rounds,
        if rounds.still {
            "still".to_owned()
        } else {
            format!("moving by {:.1e}", rounds.residual)
        },
    ))?;
    let heading = ["peer", "host", "epoch", "session", "connections", "shared queue pairs"];
    let mut table = Table::new(&heading, 1);
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    for peer in &known {
        let name = peer.address.as_ref().unwrap_or(&peer.name);
        let session = if peer.connected { "yes" } else { &peer.reason };
        table.row(vec![
            printable(name, 64),
            number(peer.host),
            number(peer.epoch),
            session.to_owned(),
            peer.connections.to_string(),
            peer.queue_pairs.to_string(),
        ]);
    }
    output::print(&table.text())
}

/// Returns a rate that was agreed with other hosts, if there is one.
fn agreed(bytes_per_s: f64) -> String {
    if bytes_per_s > 0.0 { format!("{bytes_per_s:.0}") } else { String::new() }
}

fn tell(args: &AgentExplainArgs) -> Result<(), Failure> {
    let wrong = |text: String| Failure::new(Code::Usage, anyhow::anyhow!(text));
    let interval = Duration::try_from_secs_f64(args.seconds);
    let interval =
        interval.map_err(|error| wrong(format!("--seconds {}: {error}", args.seconds)))?;
    let explained = explain(&args.agent, &args.application, interval);
    let explained = explained.map_err(|error| {
        let is_gone = matches!(error, ExplainError::Agent(_));
        Failure::new(if is_gone { Code::Unreachable } else { Code::Failed }, error)
    })?;
    for one in &explained {
        if args.json {
            output::print_json(one)?;
        } else {
            output::print(&text(one, args.seconds))?;
        }
    }
    Ok(())
}

fn text(one: &Explanation, seconds: f64) -> String {
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let Explanation { application, process, weight, alpha, applications, .. } = one;
    let measured = one.measured_share.map_or("nobody had any".to_owned(), percent);
    let (has_shares, is_agreed) = (one.share > 0.0, one.rate_bytes_per_s > 0.0);
    let (decided, doubled) = if is_agreed {
        (format!("{:.0} bytes/s, agreed with other hosts", one.rate_bytes_per_s), String::new())
    } else if has_shares {
        let doubled = percent(one.doubled_share);
        let decided = percent(one.share) + " of the device while all have something to send";
        (decided, format!("weight {}  would give it {doubled}\n", 2.0 * weight))
    } else {
        ("nothing: the agent serves requests as they come".to_owned(), String::new())
    };
    let binds = match one.binds {
        Binds::Device if is_agreed => "what was agreed: capacities here and there".to_owned(),
        Binds::Device if !has_shares => "the device's sending".to_owned(),
        Binds::Device => format!("the device's sending, at a price of {:.3}", one.price),
        Binds::Demand => "what it asks for: it did not always have something waiting".to_owned(),
    };
    format!(
        "{application} (process {process}): weight {weight}, {applications} connected, alpha {alpha}\n\
         decided   {decided}\n\
         measured  {:.0} bytes/s, {measured} of all, in {seconds} s\n\
         bound by  {binds}\n\
         {doubled}",
        one.bytes_per_s,
    )
}
