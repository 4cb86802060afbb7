//! redis-server as it is packaged, with its own redis-benchmark: 50 clients, no pipeline, 1 KiB.
use super::row::{Mode, Place, Row};
use anyhow::{Context as _, Result, bail};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLIENTS: u32 = 50;
const VALUE_BYTES: u64 = 1024;
const KEYS: u64 = 10_000;
/// redis-benchmark counts requests; so many take about as long as a row.
const REQUESTS_PER_S: f64 = 60_000.0;
const PATIENCE: Duration = Duration::from_secs(10);

struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on a port that is free now, which keeps nothing on a disk.
fn start() -> Result<(Redis, u16)> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut command = Command::new("redis-server");
    command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"]);
    command.arg(port.to_string()).stdout(Stdio::null()).stdin(Stdio::null());
    let child =
        command.spawn().context("redis-server is not installed (apt-get install redis-server)")?;
    let redis = Redis(child);
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if began.elapsed() > PATIENCE {
            bail!("redis-server does not listen");
        }
        // It listens soon; nothing tells when.
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((redis, port))
}

/// What redis-benchmark says of one command: requests a second, and milliseconds p50 and p99.
struct Told {
    requests_per_s: f64,
    ms_p50: f64,
    ms_p99: f64,
}

fn told(csv: &str, command: &str) -> Result<Told> {
    let cells = |line: &str| {
        line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect::<Vec<String>>()
    };
    let mut lines = csv.lines().map(cells);
    let head = lines.find(|cells| cells.iter().any(|cell| cell == "rps"));
    let head = head.context("redis-benchmark --csv has no column rps")?;
    let row = lines.find(|cells| cells.first().is_some_and(|cell| cell == command));
    let row = row.with_context(|| format!("redis-benchmark says nothing of {command}"))?;
    let cell = |name: &str| -> Result<f64> {
        let at = head.iter().position(|cell| cell == name);
        let cell = at.and_then(|at| row.get(at)).with_context(|| format!("no column {name}"))?;
        Ok(cell.parse()?)
    };
    Ok(Told {
        requests_per_s: cell("rps")?,
        ms_p50: cell("p50_latency_ms")?,
        ms_p99: cell("p99_latency_ms")?,
    })
}

/// Measures SET, then GET. The row's operations a second are those of half of each.
pub(super) fn measure(seconds: f64) -> Result<Row> {
    let (_redis, port) = start()?;
    let requests = (REQUESTS_PER_S * seconds).max(1000.0) as u64;
    let mut command = Command::new("redis-benchmark");
    command.args(["--csv", "-t", "set,get", "-P", "1", "-c", &CLIENTS.to_string()]);
    command.args(["-d", &VALUE_BYTES.to_string(), "-r", &KEYS.to_string()]);
    command.args(["-n", &requests.to_string(), "-p", &port.to_string()]);
    let output = command.output().context("redis-benchmark is not installed")?;
    let csv = String::from_utf8_lossy(&output.stdout);
    let (set, get) = (told(&csv, "SET")?, told(&csv, "GET")?);
    let ops_per_s = 2.0 / (1.0 / set.requests_per_s + 1.0 / get.requests_per_s);
    let ns = |ms: f64| Some((ms * 1e6).round());
    Ok(Row {
        place: Place {
            what: "redis-tcp",
            mode: Mode::None,
            provider: None,
            sided: None,
            clients: CLIENTS,
            keys: KEYS,
            value_bytes: VALUE_BYTES,
            r#loop: "closed",
        },
        ops_per_s: ops_per_s.round(),
        bytes_per_s: (ops_per_s * VALUE_BYTES as f64).round(),
        get_ns_p50: ns(get.ms_p50),
        get_ns_p99: ns(get.ms_p99),
        put_ns_p50: ns(set.ms_p50),
        put_ns_p99: ns(set.ms_p99),
        server_cpu_s_per_mop: None,
        retries: None,
        linearizable: None,
        fault: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_redis_benchmark_is_read_by_its_head() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\"SET\",\"1000.50\",\"0.1\",\"0.1\",\"0.2\",\"0.3\",\"0.4\",\"0.5\"\n";
        let told = told(csv, "SET").unwrap();
        assert_eq!((told.requests_per_s, told.ms_p50, told.ms_p99), (1000.5, 0.2, 0.4));
        assert!(super::told(csv, "GET").is_err());
    }
}
