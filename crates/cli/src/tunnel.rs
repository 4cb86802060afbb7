//! `catchment tunnel`: connections of unmodified programs over RDMA, at either end.
use crate::args::{TunnelArgs, TunnelCommand, TunnelEndArgs, TunnelServeArgs};
use crate::cert::tls_failure;
use crate::failure::{Code, Failure};
use crate::hint::warn_insecure;
use crate::output::{self, say};
use crate::stop::{self, Stop};
use catchment::providers::ProviderSet;
use catchment::roce::RoceOptions;
use catchment::session::io::{Address, ClientSecurity, ServerSecurity, raise_descriptor_limit};
use catchment::session::reread::{ClientTls, ServerTls};
use catchment_tunnel::session::{Report, Totals};
use catchment_tunnel::{
    ClientConfig, ClientEnd, Local, ServiceConfig, ServiceEnd, StartError, TunnelEvent,
};
use serde::Serialize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// The first line.
#[derive(Serialize)]
struct Listening {
    event: &'static str,
    /// Where clients connect, or ends with clients.
    address: String,
    /// The names of the services.
    services: Vec<String>,
    pid: u32,
}

/// The last line.
#[derive(Serialize)]
struct Summary {
    event: &'static str,
    #[serde(flatten)]
    totals: Totals,
}

pub(crate) fn run(args: &TunnelArgs) -> Result<(), Failure> {
    if let Some(TunnelCommand::Serve(args)) = &args.command {
        return serve(args);
    }
    let missing =
        || Failure::new(Code::Usage, anyhow::anyhow!("--listen, --to and --service are needed"));
    let (Some(listen), Some(to), Some(service)) = (&args.listen, &args.to, &args.service) else {
        return Err(missing());
    };
    let end = &args.end;
    warn_insecure(to, end.insecure);
    let tls = end.files().map(ClientTls::open).transpose().map_err(tls_failure)?;
    let config = ClientConfig {
        listen: find(listen)?,
        to: to.clone(),
        service: service.clone(),
        providers: providers(end)?,
        security: ClientSecurity { insecure: end.insecure && tls.is_none(), tls },
        insecure: end.insecure,
        streams: end.connections,
        window_bytes: end.window,
        mode: args.mode,
    };
    let stop = stop::watch(end.until_stdin_closes, || {})?;
    let (report, events) = reporter();
    let client = ClientEnd::start(config, report).map_err(not_started)?;
    greet("listening for", end, client.local().to_string(), vec![service.clone()])?;
    tell_until_stopped(&events, end, &stop)?;
    let totals = client.totals();
    drop(client);
    summarize(end, totals)
}

fn serve(args: &TunnelServeArgs) -> Result<(), Failure> {
    let end = &args.end;
    warn_insecure(&args.listen, end.insecure);
    let tls = end.files().map(ServerTls::open).transpose().map_err(tls_failure)?;
    let services = args.services.iter().map(|(name, at)| Ok((name.clone(), find(at)?)));
    let services: Vec<_> = services.collect::<Result<_, Failure>>()?;
    let names: Vec<_> = services.iter().map(|(name, _)| name.clone()).collect();
    let config = ServiceConfig {
        listen: args.listen.clone(),
        services,
        providers: providers(end)?,
        security: ServerSecurity { insecure: end.insecure && tls.is_none(), tls },
        insecure: end.insecure,
        streams: end.connections,
        window_bytes: end.window,
    };
    let stop = stop::watch(end.until_stdin_closes, || {})?;
    let (report, events) = reporter();
    let service = ServiceEnd::start(config, report).map_err(not_started)?;
    greet("serving", end, service.local().to_string(), names)?;
    tell_until_stopped(&events, end, &stop)?;
    let totals = service.totals();
    drop(service);
    summarize(end, totals)
}

/// With certificates packets are authenticated, unless it is said that they need not be.
fn providers(end: &TunnelEndArgs) -> Result<ProviderSet, Failure> {
    let authenticate = end.files().is_some() && !end.insecure;
    let set = end.providers.set()?;
    Ok(set.with(RoceOptions { authenticate, ..end.providers.roce() }))
}

fn find(address: &Address) -> Result<Local, Failure> {
    let found = Local::find(address);
    found.map_err(|error| Failure::new(Code::Local, anyhow::anyhow!("{address}: {error}")))
}

fn not_started(error: StartError) -> Failure {
    let is_wrong = matches!(error, StartError::Service(_));
    Failure::new(if is_wrong { Code::Usage } else { Code::Local }, error)
}

fn reporter() -> (Report, Receiver<TunnelEvent>) {
    let (tell, events) = channel();
    let report = Arc::new(move |event| {
        // Fails once nobody is told any more.
        let _ = tell.send(event);
    });
    (report, events)
}

fn greet(
    does: &str,
    end: &TunnelEndArgs,
    address: String,
    services: Vec<String>,
) -> Result<(), Failure> {
    // Each connection has a socket.
    raise_descriptor_limit();
    if end.json {
        let (event, pid) = ("listening", std::process::id());
        return output::print_json(&Listening { event, address, services, pid });
    }
    say!("{does} {} at {address}; Ctrl-C ends it", services.join(", "));
    Ok(())
}

fn tell_until_stopped(
    events: &Receiver<TunnelEvent>,
    end: &TunnelEndArgs,
    stop: &Stop,
) -> Result<(), Failure> {
    while !stop.is_set() {
        match events.recv_timeout(LOOK) {
            Ok(event) => tell(&event, end.json)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

fn tell(event: &TunnelEvent, json: bool) -> Result<(), Failure> {
    if json {
        output::print_json(event)?;
    }
    match event {
        TunnelEvent::Failed { to, reason } => {
            return Err(Failure::new(Code::Unreachable, anyhow::anyhow!("{to}: {reason}")));
        }
        _ if json => {}
        TunnelEvent::Connected(made) => {
            let by =
                made.certificate.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
            say!(
                "{}: session with {}{by}, by {}, mode {} ({})",
                made.service,
                made.peer,
                made.provider,
                made.mode,
                made.reason
            );
            say!(
                "  protection: session {}; data {}",
                made.session_protection,
                made.data_protection
            );
        }
        TunnelEvent::Disconnected { peer, reason, .. } => {
            say!("session with {peer} ended: {reason}")
        }
        TunnelEvent::Waiting { to, reason } => say!("no session with {to}: {reason}; trying again"),
        TunnelEvent::Refused { peer, reason } => say!("{peer} was refused: {reason}"),
    }
    Ok(())
}

fn summarize(end: &TunnelEndArgs, totals: Totals) -> Result<(), Failure> {
    if end.json {
        return output::print_json(&Summary { event: "summary", totals });
    }
    let Totals { connections, connections_broken, bytes_sent, bytes_received, .. } = totals;
    say!(
        "{connections} connections, of which {connections_broken} broke; {bytes_sent} bytes sent, \
         {bytes_received} received"
    );
    Ok(())
}
