//! The live page and the metrics under viewers who mean no good, and for those who come from other hosts.
use crate::common::{INPUT, Running, Service, catchment, collecting, run, send};
use catchment_netns::{VethPair, wait_until, with_privilege};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn collector(words: &[&str]) -> Service {
    let collect = ["collect", "--json", "--sink", "null", "--listen", "127.0.0.1:0"];
    Service::start_command(catchment().args(collect).args(words))
}

/// Where the page of a collector listens, `ADDRESS:PORT`.
fn page(collector: &Service) -> String {
    let url = collector.listening["dashboard"].as_str().unwrap();
    url.split('/').nth(2).unwrap().to_owned()
}

/// Longer than any answer takes on a machine that does other work too.
const LIMIT: Duration = Duration::from_secs(60);

fn connect(page: &str) -> TcpStream {
    let stream = TcpStream::connect(page).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn request(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

fn answer(mut stream: impl Read + Write, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).unwrap())
}

fn is_served(page: &str) {
    let text = answer(connect(page), &request("/metrics", page)).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("catchment_uptime"), "{text}");
}

#[test]
fn a_request_that_is_never_finished_ends() {
    let collector = collector(&["--dashboard", "127.0.0.1:0"]);
    let page = page(&collector);
    let begun = ["", "GET /metr", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: "].map(|text| {
        let mut stream = connect(&page);
        stream.write_all(text.as_bytes()).unwrap();
        stream
    });
    for mut stream in begun {
        let mut said = Vec::new();
        let ended = stream.read_to_end(&mut said);
        assert!(
            !matches!(&ended, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
            "{ended:?}"
        );
        assert!(!String::from_utf8_lossy(&said).contains("200 OK"), "{said:?}");
    }
    is_served(&page);
}

#[test]
fn viewers_who_do_not_read_keep_nobody_out() {
    let collector = collector(&["--dashboard", "127.0.0.1:0"]);
    let page = page(&collector);
    let paths = ["/api/events", "/", "/metrics"];
    let slow: Vec<_> = (0..300)
        .map(|i| {
            let mut stream = connect(&page);
            let keep = request(paths[i % paths.len()], &page).replace("close", "keep-alive");
            // One that gave way already may be closed.
            let _ = stream.write_all(keep.as_bytes());
            stream
        })
        .collect();
    is_served(&page);
    // Those that stood still longest were ended, and cost no more descriptors.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", collector.id())).unwrap().count();
    catchment_netns::wait_until("most connections are closed", || open() < 150);
    drop(slow);
    is_served(&page);
}

/// A connection that comes from this address of loopback.
fn connect_from(own: Ipv4Addr, page: &str) -> TcpStream {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(own, 0)).unwrap();
    rustix::net::connect(&socket, &page.parse::<SocketAddrV4>().unwrap()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

#[test]
fn many_connections_of_one_address_end_none_of_another() {
    let collector = collector(&["--dashboard", "127.0.0.1:0"]);
    let page = page(&collector);
    let mut follower = BufReader::new(connect_from(Ipv4Addr::new(127, 0, 0, 2), &page));
    follower.get_mut().write_all(request("/api/events", &page).as_bytes()).unwrap();
    let mut line = String::new();
    follower.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    let crowd: Vec<_> =
        (0..400).map(|_| connect_from(Ipv4Addr::new(127, 0, 0, 3), &page)).collect();
    is_served(&page);
    for _ in 0..3 {
        line.clear();
        while !line.contains("data: ") {
            assert_ne!(follower.read_line(&mut line).unwrap(), 0, "the events ended: {line}");
        }
    }
    drop(crowd);
}

/// A client that trusts the authority in one folder, with a certificate from another one, if any.
fn client(trusts: &Path, own: Option<&Path>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusts.join("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let Some(own) = own else { return builder.with_no_client_auth() };
    let cert = CertificateDer::from_pem_file(own.join("prometheus.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(own.join("prometheus.key")).unwrap();
    builder.with_client_auth_cert(vec![cert], key).unwrap()
}

/// Asks for the metrics over TLS, as Prometheus does with a `tls_config`.
fn scrape(page: &str, client: ClientConfig) -> io::Result<String> {
    let host = page.rsplit_once(':').unwrap().0.to_owned();
    let name = ServerName::try_from(host).unwrap();
    let connection = ClientConnection::new(Arc::new(client), name).unwrap();
    let answered =
        answer(StreamOwned::new(connection, connect(page)), &request("/metrics", "collector.lab"))?;
    assert!(answered.contains("catchment_uptime"), "{answered}");
    Ok(answered)
}

#[test]
fn metrics_are_scraped_from_another_host_by_who_has_a_certificate() {
    with_privilege("page::metrics_are_scraped_from_another_host_by_who_has_a_certificate", || {
        let hosts = VethPair::new(1500).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("ours");
        let theirs = dir.path().join("theirs");
        let at = VethPair::RIGHT_V4.to_string();
        for out in [&ours, &theirs] {
            let names = ["--name", &at, "--name", "prometheus"];
            let words = ["cert", "--out", out.to_str().unwrap()];
            crate::common::run(words.iter().chain(&names)).expect(0);
        }
        let file = |name: String| ours.join(name).to_str().unwrap().to_owned();
        let [cert, key, ca] = [format!("{at}.pem"), format!("{at}.key"), "ca.pem".into()].map(file);
        let dashboard = format!("{at}:0");
        let words = ["--dashboard", &dashboard, "--cert", &cert, "--key", &key, "--ca", &ca];
        let collector = hosts.right.run(|| collector(&words)).unwrap();
        let url = collector.listening["dashboard"].as_str().unwrap();
        assert!(url.starts_with("https://"), "{url}");
        let page = page(&collector);
        let scrape_as = |own: Option<&Path>| {
            let client = client(&ours, own);
            hosts.left.run(|| scrape(&page, client)).unwrap()
        };
        scrape_as(Some(&ours)).unwrap();
        // Neither without a certificate, nor with one of another authority, nor without TLS.
        scrape_as(None).unwrap_err();
        scrape_as(Some(&theirs)).unwrap_err();
        let plain = hosts.left.run(|| answer(connect(&page), &request("/metrics", &page))).unwrap();
        assert!(
            plain.map_or(true, |text| !text.contains("catchment_")),
            "the page speaks plain HTTP"
        );
        // A handshake that is never finished ends.
        let mut silent = hosts.left.run(|| connect(&page)).unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
        scrape_as(Some(&ours)).unwrap();
    });
}

#[test]
fn a_host_name_is_served_if_it_is_allowed() {
    let collector = collector(&["--dashboard", "127.0.0.1:0", "--dashboard-name", "lab-7"]);
    let page = page(&collector);
    let ask = |host: &str| answer(connect(&page), &request("/metrics", host)).unwrap();
    assert!(ask("lab-7:80").starts_with("HTTP/1.1 200"));
    let refused = ask("lab-8");
    assert!(
        refused.starts_with("HTTP/1.1 421") && refused.contains("--dashboard-name"),
        "{refused}"
    );
}

/// Where the page of a controller or an agent listens, `ADDRESS:PORT`.
fn status_page(program: &Running) -> String {
    wait_until("it says where its page is", || program.said().contains("live page: "));
    let said = program.said();
    let url = said.split("live page: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    url.split('/').nth(2).unwrap().to_owned()
}

fn get(page: &str, path: &str) -> String {
    let text = answer(connect(page), &request(path, page)).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{path}: {text}");
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn status_of(page: &str) -> serde_json::Value {
    serde_json::from_str(&get(page, "/api/status")).unwrap()
}

#[test]
fn the_page_of_a_controller_says_what_it_grants_to_whom() {
    let words = ["--bottleneck", "1Gbit", "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0"];
    let controller = Running::start(catchment().arg("control").args(words));
    let page = status_page(&controller);
    let address = controller.granting_at();
    let (_out, collector) = collecting();
    let more = ["--controller", &address, "--frames", "1000", "--rate", "50"];
    let _source = Running::start(&mut send(INPUT, "cam0", &collector.address, &more));
    let on_time = |status: &serde_json::Value| {
        let classes = status["classes"].as_array().cloned().unwrap_or_default();
        classes.iter().filter_map(|class| class["on_time"].as_u64()).sum::<u64>()
    };
    wait_until("frames are granted", || on_time(&status_of(&page)) > 0);
    let status = status_of(&page);
    assert_eq!(status["links"][0]["name"], "bottleneck");
    assert_eq!(status["links"][0]["working_bps"], 1_000_000_000);
    assert_eq!(status["sources"][0]["devices"][0], "cam0");
    assert!(get(&page, "/metrics").contains("catchment_control_link_capacity"), "of its own");
    let html = get(&page, "/");
    assert!(html.contains("id=\"links\"") && html.contains("page of a controller"), "{html}");
    // The same words as those of the command, which are of another moment.
    let explained = |name: &str| -> serde_json::Value {
        serde_json::from_str(&get(&page, &format!("/api/explain/{name}"))).unwrap()
    };
    let said = explained("cam0")["streams"][0].as_str().unwrap().to_owned();
    let told = run(["explain", "stream", "cam0", "--controller", &address]).expect(0).stdout;
    let begins = |text: &str| text.split_once(':').unwrap().0.to_owned();
    assert_eq!(begins(&said), begins(&told), "{said} and {told}");
    assert_eq!(explained("cam7")["streams"], serde_json::json!([]), "nobody has it");
    let refused = answer(connect(&page), &request("/api/explain/a%20b", &page)).unwrap();
    assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("device name"), "{refused}");
}

#[test]
fn the_page_of_a_source_says_how_it_stands_with_its_controller() {
    let words = ["--bottleneck", "1Gbit", "--listen", "127.0.0.1:0"];
    let controller = Running::start(catchment().arg("control").args(words));
    let (_out, collector) = collecting();
    let address = controller.granting_at();
    let more = ["--frames", "1000", "--rate", "50", "--dashboard", "127.0.0.1:0"];
    let granted = ["--controller", &address];
    let mut command = send(INPUT, "cam0", &collector.address, &[&more[..], &granted[..]].concat());
    let source = Running::start(&mut command);
    let page = status_page(&source);
    let sent = |page: &str| status_of(page)["devices"][0]["frames_sent"].as_u64() > Some(0);
    wait_until("frames are granted and sent", || {
        status_of(&page)["grant"]["grants"].as_u64() > Some(0) && sent(&page)
    });
    let status = status_of(&page);
    assert_eq!(status["devices"][0]["name"], "cam0");
    assert!(status["session"]["source_provider"].is_string(), "{status}");
    let metrics = get(&page, "/metrics");
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {metrics}")).trim().parse::<f64>().unwrap()
    };
    assert!(value("catchment_source_grants_total") >= 1.0);
    let standing =
        |name: &str| value(&format!("catchment_source_grant_standing{{standing=\"{name}\"}}"));
    let all = ["unregistered", "granted", "waiting", "safe_rate", "stopped", "free"].map(standing);
    assert_eq!(all.iter().sum::<f64>(), 1.0, "{all:?}");
    assert!(get(&page, "/").contains("page of a source"));
    // One without a controller has neither.
    let alone = Running::start(&mut send(INPUT, "cam1", &collector.address, &more));
    let page = status_page(&alone);
    wait_until("frames are sent", || sent(&page));
    assert!(status_of(&page)["grant"].is_null());
    let metrics = get(&page, "/metrics");
    assert!(!metrics.lines().any(|line| line.starts_with("catchment_source_grants")), "{metrics}");
}

#[test]
fn the_page_of_a_source_is_there_before_a_collector_is() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = format!("unix:{}", dir.path().join("nobody").display());
    let more = ["--dashboard", "127.0.0.1:0"];
    let source = Running::start(&mut send(INPUT, "cam0", &nobody, &more));
    let page = status_page(&source);
    assert_eq!(status_of(&page)["error"], "no collector has answered yet");
    let metrics = answer(connect(&page), &request("/metrics", &page)).unwrap();
    assert!(metrics.starts_with("HTTP/1.1 503"), "{metrics}");
}

#[test]
fn the_page_of_an_agent_says_what_each_application_has() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("page-{}", std::process::id());
    let policy = dir.path().join("policy.json");
    let applications = r#"[{"name": "sensor", "weight": 3}, {"name": "store"}]"#;
    let text = format!(r#"{{"name": "{name}", "applications": {applications}}}"#);
    std::fs::write(&policy, text).unwrap();
    let mut command = catchment();
    command.args(["agent", "--dashboard", "127.0.0.1:0", "--policy"]).arg(&policy);
    let agent = Running::start(&mut command);
    let page = status_page(&agent);
    assert_eq!(status_of(&page)["accounts"], serde_json::json!([]), "nobody is connected");
    let of = |application: &str| format!("{application}@{name}");
    let collector = collector(&["--no-dashboard", "--agent", &of("store")]);
    let more =
        ["--provider", "agent", "--agent", &of("sensor"), "--frames", "1000", "--rate", "50"];
    let _source = Running::start(&mut send(INPUT, "cam0", &collector.address, &more));
    let rates = || status_of(&page)["rates"].as_array().cloned().unwrap_or_default();
    let moves = |rate: &serde_json::Value| rate["bytes_per_s"].as_f64() > Some(0.0);
    wait_until("the source has a rate", || {
        rates().iter().any(|rate| rate["application"] == "sensor" && moves(rate))
    });
    assert!(get(&page, "/metrics").contains(r#"application="sensor""#));
    assert!(get(&page, "/").contains("page of an agent"));
    let top = Running::start(catchment().args(["agent", "top", &name, "--json"]));
    wait_until("top has said twice how it stands", || top.printed().lines().count() >= 2);
    top.kill();
    let table = Running::start(catchment().args(["agent", "top", &name]));
    wait_until("top shows the source", || table.printed().contains("sensor"));
    let unknown = run(["agent", "top", "nobody-has-this-name"]).expect(3);
    assert!(unknown.stderr.contains("no agent of the name"), "{unknown:#?}");
}
