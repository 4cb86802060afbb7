//! `catchment tunnel` between processes, with an echo and with the Redis of the system behind it.
use crate::common::{Kept, Service, catchment, run};
use catchment_netns::wait_until;
use catchment_probe::load::{did, scaled};
use catchment_probe::random::Random;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// Longer than anything takes on a machine that does other work too.
const LIMIT: Duration = Duration::from_secs(60);

/// Both ends, of one service, with these words more at each.
struct Tunnel {
    serve: Service,
    client: Service,
}

impl Tunnel {
    fn start(service: &str, words: &[&str]) -> Self {
        Self::start_with(service, "127.0.0.1:0", words, words)
    }

    fn start_with(service: &str, listen: &str, there: &[&str], here: &[&str]) -> Self {
        let serve = serve(service, listen, there);
        let to = serve.address.as_str();
        let words = ["tunnel", "--json", "--listen", "127.0.0.1:0", "--service", "it", "--to", to];
        let client = Service::start_command(catchment().args(words).args(here));
        Self { serve, client }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.client.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }
}

fn serve(service: &str, listen: &str, words: &[&str]) -> Service {
    let service = format!("it={service}");
    let ours = ["tunnel", "serve", "--json", "--listen", listen, "--service", &service];
    Service::start_command(catchment().args(ours).args(words))
}

/// The next connection of a service, which must come.
#[track_caller]
fn accept(service: &TcpListener) -> TcpStream {
    service.set_nonblocking(true).unwrap();
    let mut accepted = None;
    wait_until("a connection comes", || {
        accepted = service.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn is_reset(mut stream: TcpStream) -> bool {
    stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// An end that was killed takes its connections with it, at the other end too, and nothing else: a new one goes on.
#[test]
fn a_killed_end_breaks_its_connections_and_is_found_again() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap().to_string();
    let Tunnel { serve: there, client: here } = Tunnel::start(&address, &[]);
    here.next_event("connected");
    let mut tunnel = Tunnel { serve: there, client: here };
    let mut client = tunnel.connect();
    client.write_all(b"x").unwrap();
    let mut served = accept(&service);
    served.read_exact(&mut [0; 1]).unwrap();
    let listen = tunnel.serve.address.clone();
    tunnel.serve.kill();
    assert!(is_reset(client), "the client learns that the other end is gone");
    assert_eq!(
        served.read(&mut [0; 1]).unwrap_or(0),
        0,
        "the kernel closes the sockets of the dead"
    );
    assert_eq!(tunnel.client.next_event("disconnected")["service"], "it");
    tunnel.serve = serve(&address, &listen, &[]);
    loop {
        // Reasons why it is not there yet may come before.
        if tunnel.client.next()["event"] == "connected" {
            break;
        }
    }
    let mut client = tunnel.connect();
    client.write_all(b"y").unwrap();
    let mut served = accept(&service);
    served.read_exact(&mut [0; 1]).unwrap();
    tunnel.client.kill();
    assert!(is_reset(served), "the service learns that the client's end is gone");
    assert_eq!(tunnel.serve.next_event("connected")["provider"], "shm");
    tunnel.serve.next_event("disconnected");
    assert_eq!(tunnel.serve.end()["connections_open"], 0);
}

#[test]
fn certificates_protect_the_session_and_authenticate_the_packets() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    run(["cert", "--out", out, "--name", "127.0.0.1"]).expect(0);
    let file = |name: &str| format!("{out}/{name}");
    let (cert, key, ca) = (file("127.0.0.1.pem"), file("127.0.0.1.key"), file("ca.pem"));
    let tls = ["--provider", "roce", "--cert", &cert, "--key", &key, "--ca", &ca];
    let echo = echo();
    let tunnel = Tunnel::start(&echo, &tls);
    let made = tunnel.client.next_event("connected");
    assert_eq!(
        (&made["session_protection"], &made["provider"]),
        (&"TLS".into(), &"roce".into()),
        "{made}"
    );
    assert_eq!(made["data_protection"], "authenticated packets, not encrypted");
    assert!(made["reason"].as_str().unwrap().contains("RoCEv2"), "{made}");
    assert_eq!(tunnel.serve.next_event("connected")["certificate"], "127.0.0.1");
    let mut client = tunnel.connect();
    client.write_all(b"sealed").unwrap();
    let mut back = [0; 6];
    client.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"sealed");
    // With --insecure packets are not authenticated, at both ends or at none.
    let insecure = [&tls[..], &["--insecure"]].concat();
    let mixed = serve(&echo, "127.0.0.1:0", &insecure);
    let words = ["tunnel", "--listen", "127.0.0.1:0", "--service", "it", "--to", &mixed.address];
    let refused = run(words.iter().chain(&tls)).expect(3);
    assert!(refused.stderr.contains("authenticated packets only"), "{refused:#?}");
}

fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut &stream));
        }
    });
    address
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let far =
        run(["tunnel", "serve", "--service", "it=127.0.0.1:1", "--listen", "0.0.0.0:0"]).expect(5);
    assert!(far.stderr.contains("--insecure") && far.stderr.contains("catchment cert"), "{far:#?}");
    run(["tunnel", "serve", "--service", "it", "--listen", "127.0.0.1:0"]).expect(2);
    run(["tunnel", "serve", "--service", "i t=127.0.0.1:1", "--listen", "127.0.0.1:0"]).expect(2);
    run(["tunnel", "--listen", "127.0.0.1:0", "--service", "it"]).expect(2);
    let words = ["tunnel", "--listen", "127.0.0.1:0", "--service", "it", "--to", "127.0.0.1:1"];
    let unknown = run(words.iter().chain(&["--mode", "read"])).expect(2);
    assert!(unknown.stderr.contains("write-imm, write, send"), "{unknown:#?}");
}

/// A Redis of the test's own, on a unix socket and a TCP port that the system chose.
struct Redis {
    _process: Kept,
    port: String,
}

impl Redis {
    fn start(dir: &Path, words: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = free.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--save", "", "--maxclients", "4000", "--dir"]).arg(dir);
        let process = command.args(words).stdout(Stdio::null()).spawn();
        let process =
            process.expect("the tests need redis-server (Debian: apt-get install redis-server)");
        let process = Kept(process);
        wait_until("redis-server listens", || TcpStream::connect(free).is_ok());
        Self { _process: process, port }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn port(address: &str) -> &str {
    address.rsplit_once(':').unwrap().1
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let output =
        command.output().expect("the tests need redis-tools (Debian: apt-get install redis-tools)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, erred) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{erred}");
    said
}

fn redis_cli(tunnel: &Tunnel, words: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", port(&tunnel.client.address)]).args(words).stdin(Stdio::null());
    command
}

/// S5.25: an unmodified Redis, with all default commands of its own benchmark, by WRITE_IMM, WRITE and SEND.
#[test]
fn s5_25_redis_passes_all_commands_of_its_benchmark() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), &[]);
    for (provider, mode) in [
        ("shm", "write-imm"),
        ("roce", "write-imm"),
        ("shm", "write"),
        ("roce", "write"),
        ("shm", "send"),
        ("roce", "send"),
    ] {
        let there = ["--provider", provider];
        let here = [&there[..], &["--mode", mode]].concat();
        let tunnel = Tunnel::start_with(&redis.address(), "127.0.0.1:0", &there, &here);
        for end in [&tunnel.client, &tunnel.serve] {
            assert_eq!(end.next_event("connected")["mode"], mode, "{provider}");
        }
        pass_benchmark(tunnel, &format!("{provider}, {mode}"));
    }
}

/// Ends the tunnel.
#[track_caller]
fn pass_benchmark(tunnel: Tunnel, what: &str) {
    for pipeline in ["1", "16"] {
        let mut command = Command::new("redis-benchmark");
        // Whole rounds of its 50 clients: it breaks off those that still wait for answers at its end.
        command.args(["-n", "1600", "-P", pipeline, "--csv"]);
        command.args(["-p", port(&tunnel.client.address)]);
        let said = output(&mut command);
        let passed: Vec<&str> = said.lines().skip(1).collect();
        assert!(passed.len() >= 19, "{what}: {said}");
        assert!(said.contains("\"MSET (10 keys)\"") && !said.contains("rror"), "{what}: {said}");
    }
    let totals = tunnel.client.end();
    assert_eq!(totals["connections_broken"], 0, "{what}: {totals}");
}

/// S5.25: the same over an agent at each end, with a session and queue pairs that connections share, in each mode.
#[test]
fn s5_25_redis_passes_its_benchmark_over_two_agents() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), &[]);
    let agent = |application: &str, address: &str, host: u32, peers: &[&str]| {
        let name = format!("tunnel-{application}-{}", std::process::id());
        let policy = serde_json::json!({
            "name": name, "device": { "roce": address }, "applications": [{ "name": application }],
            "between": {
                "listen": "127.0.0.1:0", "host": host, "peers": peers,
                "send_bytes_per_s": 1_000_000_000, "completion_bytes_per_s": 1_000_000_000
            }
        });
        let file = dir.path().join(&name);
        fs::write(&file, policy.to_string()).unwrap();
        let mut command = catchment();
        let agent = Service::start_command(command.args(["agent", "--json", "--policy"]).arg(file));
        (agent, format!("{application}@{name}"))
    };
    let (there, services) = agent("services", "127.0.0.2", 2, &[]);
    let peers_at = there.listening["peers_at"].as_str().unwrap();
    let (_here, clients) = agent("clients", "127.0.0.1", 1, &[peers_at]);
    for mode in ["write-imm", "write", "send"] {
        let words = |application| ["--provider", "agent", "--agent", application];
        let here = [&words(&clients)[..], &["--mode", mode]].concat();
        let tunnel = Tunnel::start_with(&redis.address(), "127.0.0.1:0", &words(&services), &here);
        let made = tunnel.client.next_event("connected");
        assert_eq!((&made["mode"], &made["provider"]), (&mode.into(), &"agent".into()), "{made}");
        pass_benchmark(tunnel, &format!("agents, {mode}"));
    }
}

/// S5.25: transactions, scripts, pub/sub, RESP3, passwords, bulk loading, many clients and a large value.
#[test]
fn s5_25_redis_does_through_a_tunnel_what_it_does_without() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), &["--requirepass", "open"]);
    let tunnel = Tunnel::start(&redis.address(), &[]);
    tunnel.client.next_event("connected");
    let denied = output(&mut redis_cli(&tunnel, &["ping"]));
    assert!(denied.contains("NOAUTH"), "{denied}");
    let cli = |words: &[&str]| output(redis_cli(&tunnel, words).env("REDISCLI_AUTH", "open"));
    assert_eq!(cli(&["ping"]), "PONG\n");
    assert_eq!(
        cli(&["eval", "return redis.call('incr', KEYS[1]) + ARGV[1]", "1", "n", "41"]),
        "42\n"
    );
    let resp3 = cli(&["-3", "--json", "config", "get", "maxclients"]);
    assert_eq!(resp3.trim(), r#"{"maxclients":"4000"}"#);
    transaction_and_messages(&tunnel);
    bulk(&tunnel, dir.path());
    many_clients(&tunnel);
}

fn say(stream: &mut TcpStream, line: &str) {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
}

fn transaction_and_messages(tunnel: &Tunnel) {
    let open = || {
        let mut stream = tunnel.connect();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        say(&mut stream, "AUTH open");
        assert_eq!(lines.next().unwrap(), "+OK");
        (stream, lines)
    };
    let (mut one, mut replies) = open();
    for line in ["MULTI", "SET a 1", "INCR a", "EXEC"] {
        say(&mut one, line);
    }
    let told: Vec<String> = replies.by_ref().take(6).collect();
    assert_eq!(told, ["+OK", "+QUEUED", "+QUEUED", "*2", "+OK", ":2"]);
    say(&mut one, "SUBSCRIBE news");
    assert_eq!(replies.by_ref().take(6).last().unwrap(), ":1");
    let (mut other, mut counts) = open();
    say(&mut other, "PUBLISH news heard");
    assert_eq!(counts.next().unwrap(), ":1");
    assert_eq!(replies.by_ref().take(7).last().unwrap(), "heard");
}

fn bulk(tunnel: &Tunnel, dir: &Path) {
    let (commands, count) = (dir.join("commands"), scaled(20_000));
    let text: String = (0..count).map(|n| format!("SET key{n} {n}\r\n")).collect();
    fs::write(&commands, text).unwrap();
    let mut pipe = redis_cli(tunnel, &["--pipe"]);
    pipe.env("REDISCLI_AUTH", "open").stdin(fs::File::open(&commands).unwrap());
    let said = output(&mut pipe);
    assert!(said.contains(&format!("errors: 0, replies: {count}")), "{said}");
    did("S5.25", count, "commands of redis-cli --pipe through a tunnel");
    let value = dir.join("value");
    // No value of Redis is longer than 512 MB.
    let mut bytes = vec![0; scaled(16 << 20).min(512 << 20) as usize];
    Random::new(25).fill(&mut bytes);
    fs::write(&value, &bytes).unwrap();
    let mut set = redis_cli(tunnel, &["-x", "set", "large"]);
    output(set.env("REDISCLI_AUTH", "open").stdin(fs::File::open(&value).unwrap()));
    let mut get = redis_cli(tunnel, &["get", "large"]);
    let got = get.env("REDISCLI_AUTH", "open").output().unwrap().stdout;
    assert!(got[..bytes.len()] == bytes[..] && got.len() == bytes.len() + 1, "{} bytes", got.len());
    did("S5.25", bytes.len() as u64, "bytes of a value that arrived identical");
}

fn many_clients(tunnel: &Tunnel) {
    let mut all: Vec<TcpStream> = (0..1000).map(|_| tunnel.connect()).collect();
    for stream in &mut all {
        say(stream, "AUTH open");
    }
    for stream in &mut all {
        let mut told = [0; 5];
        stream.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"+OK\r\n");
    }
}

/// The same binary over an agent: the tunnel is one of its applications.
#[test]
fn a_tunnel_is_an_application_of_an_agent() {
    let dir = tempfile::tempdir().unwrap();
    let (name, policy) = (format!("tunnel-{}", std::process::id()), dir.path().join("policy.json"));
    let applications = r#"[{"name": "clients"}, {"name": "services"}]"#;
    fs::write(&policy, format!(r#"{{"name": "{name}", "applications": {applications}}}"#)).unwrap();
    let agent =
        Service::start_command(catchment().args(["agent", "--json", "--policy"]).arg(&policy));
    let [here, there] = ["clients", "services"].map(|application| format!("{application}@{name}"));
    let words = |application| ["--provider", "agent", "--agent", application];
    let tunnel = Tunnel::start_with(&echo(), "127.0.0.1:0", &words(&there), &words(&here));
    let made = tunnel.client.next_event("connected");
    assert_eq!(
        (&made["provider"], &made["peer_provider"]),
        (&"agent".into(), &"agent".into()),
        "{made}"
    );
    let mut client = tunnel.connect();
    client.write_all(b"by its agent").unwrap();
    let mut back = [0; 12];
    client.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"by its agent");
    let status = run(["agent", "status", &name, "--json"]).expect(0);
    let mut accounts = status.json_lines();
    accounts.retain(|one| one["application"].is_string());
    assert!(!accounts.is_empty());
    assert!(accounts.iter().all(|one| one["done"].as_u64() > Some(0)), "{accounts:#?}");
    // When the agent dies, so do the connections; a new agent is found again.
    agent.kill();
    assert!(is_reset(client), "the client learns that the queue pair failed");
}
