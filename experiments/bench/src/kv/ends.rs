//! The server as a process, and clients as threads.
use crate::agent::{Network, TARGET, application};
use crate::output;
use anyhow::{Context as _, Result, anyhow};
use catchment::providers::{AgentOptions, ProviderSet};
use catchment::session::io::{ClientSecurity, ServerSecurity};
use catchment::session::path::PathRules;
use catchment_kv::load::{Did, Load, Record, Run, Tally};
use catchment_kv::{Client, ClientConfig, KvError, Replaced, Server, ServerConfig, Sided};
use catchment_linear::{Absence, Event, Replaced as Ended, Seen, What, versions};
use catchment_netns::Namespace;
use catchment_perf::ChildProcess;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any row: nobody is silent on purpose.
const LEASE: Duration = Duration::from_secs(10);

/// What the data goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Path {
    Shm,
    Roce,
    /// An agent: on shm, over a network on roce.
    Agent,
}

impl Path {
    /// Returns the provider below.
    pub(super) fn name(self, network: Network<'_>) -> &'static str {
        if self == Self::Roce { "roce" } else { network.provider() }
    }

    fn providers(self, agent: Option<&str>, application: &str) -> ProviderSet {
        let name = match self {
            Self::Shm => "shm",
            Self::Roce => "roce",
            Self::Agent => "agent",
        };
        let rules = PathRules { require: vec![name.to_owned()], ..PathRules::default() };
        let set = ProviderSet::default().rules(rules);
        match agent {
            Some(agent) => set.with(AgentOptions {
                agent: agent.to_owned(),
                application: application.to_owned(),
            }),
            None => set,
        }
    }
}

/// What the process that serves is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Serving {
    path: Path,
    agent: Option<String>,
    memory_bytes: u64,
    /// Nothing of a store on loopback.
    netns: Option<String>,
    address: IpAddr,
}

/// Serves until the input ends.
pub(crate) fn serve(serving: &Serving) -> Result<()> {
    if let Some(netns) = &serving.netns {
        Namespace::open(netns)?.enter()?;
    }
    let server = Server::start(ServerConfig {
        listen: SocketAddr::new(serving.address, 0).into(),
        memory_bytes: serving.memory_bytes,
        lease: LEASE,
        providers: serving.path.providers(serving.agent.as_deref(), TARGET),
        // Where it is not loopback, nobody else is in its namespaces.
        security: ServerSecurity { tls: None, insecure: serving.netns.is_some() },
    })?;
    output::line(&server.local().to_string())?;
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

/// What a row found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) tally: Tally,
    pub(super) seconds: f64,
    pub(super) server_cpu_s: f64,
    pub(super) retries: u64,
    /// What no order explains.
    pub(super) fault: Option<String>,
}

/// Runs one load on a fresh store: over a network the store is at its right end; the caller is at its left.
pub(super) fn measure(
    load: Load,
    clients: u32,
    seconds: f64,
    (path, agents): (Path, Option<[&str; 2]>),
    (network, sided): (Network<'_>, Sided),
) -> Result<Found> {
    // Values with their heads, new keys, what waits to be used again, and the index.
    let memory_bytes = (3 * load.keys * (load.value_bytes as u64 + 256)).max(128 << 20);
    let [ours, theirs] = [0, 1].map(|end: usize| agents.map(|agents| agents[end]));
    let netns = network.0.map(|hop| hop.right.0.path());
    let address = network.0.map_or(Ipv4Addr::LOCALHOST.into(), |hop| hop.right.1);
    let agent = theirs.map(str::to_owned);
    let serving = Serving { path, agent, memory_bytes, netns, address };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["kv-role", &serde_json::to_string(&serving)?]).stdin(Stdio::piped());
    let mut process = ChildProcess::start("the store", &mut command)?;
    let address = process.wait_for(|_| true)?.trim().parse();
    let config = ClientConfig {
        sided,
        providers: path.providers(ours, &application(0)),
        security: ClientSecurity { tls: None, insecure: network.0.is_some() },
        ..ClientConfig::new(address.map_err(|error| anyhow!("the store said no address: {error}"))?)
    };
    let all = (0..clients).map(|_| Client::connect(&config));
    let mut all = all.collect::<Result<Vec<Client>, KvError>>().context("connecting")?;
    let mut observer = Client::connect(&config)?;
    let run = Run::new(load);
    let mut history = Vec::new();
    let of = u64::from(clients);
    for (_, records) in in_threads(&mut all, |client, who, note| {
        run.fill(client, (who, of), note).map(|()| Tally::default())
    })? {
        history.extend(records);
    }
    let tried: u64 = all.iter().map(Client::retries).sum();
    let (before, began) = (observer.counts()?.1, Instant::now());
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A row has a length; there is no event for it.
            std::thread::sleep(Duration::from_secs_f64(seconds));
            run.stop();
        });
        in_threads(&mut all, |client, who, note| run.measure(client, who, note))
    });
    let measured = measured?;
    let mut found = Found {
        seconds: began.elapsed().as_secs_f64(),
        server_cpu_s: observer.counts()?.1 - before,
        retries: all.iter().map(Client::retries).sum::<u64>() - tried,
        ..Found::default()
    };
    for (tally, records) in measured {
        history.extend(records);
        add(&mut found.tally, tally);
    }
    let history: Vec<Event> = history.into_iter().map(event).collect();
    found.fault = versions::check(&history).err().map(|fault| fault.to_string());
    Ok(found)
}

fn add(all: &mut Tally, one: Tally) {
    all.operations += one.operations;
    all.gets += one.gets;
    all.bytes += one.bytes;
    all.lost += one.lost;
    all.get_ns.extend(one.get_ns);
    all.put_ns.extend(one.put_ns);
}

fn event(record: Record) -> Event {
    let Record { key, start_ns, end_ns, did } = record;
    let what = match did {
        Did::Get(Some((value, version))) => What::Get(Seen::Value { value, version }),
        Did::Get(None) => What::Get(Seen::Nothing(Absence::Unknown)),
        Did::Put(value, version) => What::Put { value, version },
        Did::Replace { value, only: (version, old), ended } => {
            let ended = match ended {
                Replaced::Stored(version) => Ended::Stored { version },
                Replaced::Changed(Some(version)) => Ended::Other { version },
                Replaced::Changed(None) => Ended::Nothing,
            };
            What::Replace { value, only: (version, old), ended }
        }
    };
    Event { key, start: start_ns, end: Some(end_ns), what }
}

type Work<'a> =
    dyn Fn(&mut Client, u64, &mut dyn FnMut(Record)) -> Result<Tally, KvError> + Sync + 'a;

fn in_threads(
    clients: &mut [Client],
    work: impl Fn(&mut Client, u64, &mut dyn FnMut(Record)) -> Result<Tally, KvError> + Sync,
) -> Result<Vec<(Tally, Vec<Record>)>> {
    let work: &Work<'_> = &work;
    std::thread::scope(|scope| {
        let one = |(client, who): (_, u64)| {
            scope.spawn(move || {
                let mut records = Vec::with_capacity(1 << 16);
                let tally = work(client, who, &mut |record| records.push(record))?;
                Ok((tally, records))
            })
        };
        let threads: Vec<_> = clients.iter_mut().zip(0..).map(one).collect();
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join().map_err(|_| anyhow!("a client's thread failed"))?;
            ended.map_err(|error: KvError| error.into())
        });
        ended.collect()
    })
}
