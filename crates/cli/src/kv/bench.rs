//! `catchment kv bench`: a mix of operations on a store, with the processor time of its server.
use super::{ServerEvent, config, failure};
use crate::args::{KvBenchArgs, KvSided};
use crate::failure::{Code, Failure, OrFail as _};
use crate::output;
use anyhow::{Context as _, anyhow, bail};
use catchment::perf::ChildProcess;
use catchment::session::io::Address;
use catchment_kv::layout::VALUE_BYTES_MAX;
use catchment_kv::load::{Load, Run, Tally, VALUE_BYTES_MIN};
use catchment_kv::{Client, ClientConfig, KvError};
use serde::Serialize;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Row<'a> {
    what: &'a str,
    provider: &'a str,
    sided: &'a str,
    clients: u32,
    keys: u64,
    value_bytes: u64,
    r#loop: &'a str,
    ops_per_s: f64,
    bytes_per_s: f64,
    get_ns_p50: Option<f64>,
    get_ns_p99: Option<f64>,
    put_ns_p50: Option<f64>,
    put_ns_p99: Option<f64>,
    server_cpu_s_per_mop: f64,
    retries: u64,
}

/// A server of this program, which ends with this process.
struct OwnServer {
    _process: ChildProcess,
    address: Address,
}

impl OwnServer {
    fn start(args: &KvBenchArgs) -> anyhow::Result<Self> {
        // Values with their heads, new keys of D and E, what waits to be used again, and the index.
        let memory = (2 * args.keys * (args.value_bytes + 256)).max(64 << 20);
        let words = ["kv", "serve", "--listen", "127.0.0.1:0", "--json", "--until-stdin-closes"];
        let words = words.map(OsString::from).into_iter();
        let memory = ["--memory".into(), memory.to_string().into()];
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(words.chain(memory).chain(args.access.providers.words()))
            .stdin(Stdio::piped());
        let mut process = ChildProcess::start("the store", &mut command)?;
        let line = process.wait_for(|_| true)?;
        match serde_json::from_str(&line) {
            Ok(ServerEvent::Listening { address, .. }) => {
                Ok(Self { _process: process, address: address.parse()? })
            }
            _ => bail!("it said {line:?} and not where it listens"),
        }
    }
}

pub(super) fn run(args: &KvBenchArgs) -> Result<(), Failure> {
    let wrong = |error| Failure::new(Code::Usage, error);
    let (least, most) = (VALUE_BYTES_MIN as u64, VALUE_BYTES_MAX as u64);
    if !(least..=most).contains(&args.value_bytes) {
        let bytes = args.value_bytes;
        return Err(wrong(anyhow!("--value-bytes {bytes}: {least} to {most} are possible")));
    }
    let time = Duration::try_from_secs_f64(args.seconds).ok().filter(|time| !time.is_zero());
    let time = time.ok_or_else(|| wrong(anyhow!("--seconds {}: no time", args.seconds)))?;
    let own = match &args.server {
        Some(_) => None,
        None => {
            args.access.providers.check_fault_within_host()?;
            let own = OwnServer::start(args).context("cannot start a store on this machine");
            Some(own.or_fail(Code::Failed)?)
        }
    };
    let address = own.as_ref().map(|own| &own.address).or(args.server.as_ref());
    let address = address.ok_or_else(|| wrong(anyhow!("no server")))?;
    let config = config(address, &args.access)?;
    let clients = (0..args.clients).map(|_| Client::connect(&config)).collect::<Result<_, _>>();
    measure(args, &config, clients.map_err(failure)?, time)
}

fn measure(
    args: &KvBenchArgs,
    config: &ClientConfig,
    mut clients: Vec<Client>,
    time: Duration,
) -> Result<(), Failure> {
    let (name, mix) = (&args.mix.0, args.mix.1);
    let load = Load { mix, keys: args.keys, value_bytes: args.value_bytes as usize };
    let run = Run::new(load);
    fill(&run, &mut clients).map_err(failure)?;
    let mut observer = Client::connect(config).map_err(failure)?;
    let retries = |clients: &[Client]| clients.iter().map(Client::retries).sum::<u64>();
    let (before, tried) = (observer.counts().map_err(failure)?.1, retries(&clients));
    let began = Instant::now();
    let tallies = operate(&run, &mut clients, time).map_err(failure)?;
    let took = began.elapsed().as_secs_f64();
    let cpu_s = observer.counts().map_err(failure)?.1 - before;
    let all = sum(tallies);
    let part = |times: &[f64], part| {
        (!times.is_empty()).then(|| catchment::perf::percentile(times, part).round())
    };
    let row = Row {
        what: name,
        provider: &clients[0].path().source,
        sided: if args.access.sided == KvSided::One { "one" } else { "two" },
        clients: args.clients,
        keys: args.keys,
        value_bytes: args.value_bytes,
        r#loop: "closed",
        ops_per_s: (all.operations as f64 / took).round(),
        bytes_per_s: (all.bytes as f64 / took).round(),
        get_ns_p50: part(&all.get_ns, 0.5),
        get_ns_p99: part(&all.get_ns, 0.99),
        put_ns_p50: part(&all.put_ns, 0.5),
        put_ns_p99: part(&all.put_ns, 0.99),
        server_cpu_s_per_mop: cpu_s * 1e6 / all.operations.max(1) as f64,
        retries: retries(&clients) - tried + all.lost,
    };
    if args.access.json {
        return output::print_json(&row);
    }
    output::print(&text(&row, &clients[0]))
}

fn text(row: &Row<'_>, client: &Client) -> String {
    let us = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{:.2}", ns / 1e3));
    format!(
        "{} over {}: {}\n{} clients, one operation at a time each, {} keys of {} bytes, {}-sided\n\
         operations/s        {:.0}\nMB/s                {:.1}\nGET us p50, p99     {}, {}\nPUT us p50, p99     {}, {}\n\
         server s per 10^6   {:.4}\nagain               {}\n",
        row.what,
        row.provider,
        client.reason(),
        row.clients,
        row.keys,
        row.value_bytes,
        row.sided,
        row.ops_per_s,
        row.bytes_per_s / 1e6,
        us(row.get_ns_p50),
        us(row.get_ns_p99),
        us(row.put_ns_p50),
        us(row.put_ns_p99),
        row.server_cpu_s_per_mop,
        row.retries,
    )
}

fn fill(run: &Run, clients: &mut [Client]) -> Result<(), KvError> {
    let of = clients.len() as u64;
    in_threads(clients, |client, who| run.fill(client, (who, of), &mut |_| {})).map(drop)
}

fn operate(run: &Run, clients: &mut [Client], time: Duration) -> Result<Vec<Tally>, KvError> {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A measurement has a length; there is no event for it.
            std::thread::sleep(time);
            run.stop();
        });
        in_threads(clients, |client, who| run.measure(client, who, &mut |_| {}))
    })
}

fn in_threads<T: Send>(
    clients: &mut [Client],
    work: impl Fn(&mut Client, u64) -> Result<T, KvError> + Sync,
) -> Result<Vec<T>, KvError> {
    let work = &work;
    std::thread::scope(|scope| {
        let numbered = clients.iter_mut().zip(0..);
        let threads: Vec<_> =
            numbered.map(|(client, who)| scope.spawn(move || work(client, who))).collect();
        let ended = threads.into_iter().map(|thread| {
            let lost = |_| Err(KvError::Lost("a client's thread failed".to_owned()));
            thread.join().unwrap_or_else(lost)
        });
        ended.collect()
    })
}

fn sum(tallies: Vec<Tally>) -> Tally {
    tallies.into_iter().fold(Tally::default(), |mut all, one| {
        all.operations += one.operations;
        all.gets += one.gets;
        all.bytes += one.bytes;
        all.lost += one.lost;
        all.get_ns.extend(one.get_ns);
        all.put_ns.extend(one.put_ns);
        all
    })
}
