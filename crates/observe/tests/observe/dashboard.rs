//! The live page over real connections: routes, events, pictures, refusals, and what it leaves behind.
use super::frame;
use catchment_netns::wait_until;
use catchment_observe::{
    CollectorMetrics, CollectorSnapshot, Dashboard, DashboardConfig, DashboardError, LossCause,
    SessionSnapshot,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn start() -> (Arc<CollectorMetrics>, Dashboard) {
    let metrics = CollectorMetrics::new();
    let page = Dashboard::start(DashboardConfig::default(), metrics.clone()).unwrap();
    (metrics, page)
}

pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ &str| line.to_lowercase().starts_with(&format!("{name}: "));
        self.head.lines().find(line).map(|line| &line[name.len() + 2..])
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends one request with the given lines and reads the whole answer.
pub(super) fn ask(address: SocketAddr, line: &str, headers: &[&str]) -> Answer {
    let mut stream = connect(address);
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    write!(stream, "{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("an answer with a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: bytes[end + 4..].to_vec() }
}

fn get(page: &Dashboard, path: &str) -> Answer {
    ask(page.local_addr(), &format!("GET {path}"), &["Host: 127.0.0.1"])
}

/// Follows the events of a page.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(page: &Dashboard) -> Self {
        let mut stream = connect(page.local_addr());
        write!(stream, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    fn next(&mut self) -> CollectorSnapshot {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the events ended");
            if let Some(json) = line.strip_prefix("data: ") {
                return serde_json::from_str(json).unwrap();
            }
        }
    }
}

#[test]
fn the_page_is_one_file_that_needs_nothing_from_elsewhere() {
    let (_metrics, page) = start();
    let answer = get(&page, "/");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    let html = answer.text();
    assert!(html.contains("<title>Catchment</title>") && html.contains("EventSource"));
    for external in ["http:", "https:", " src=", "url(", "@import", "{{"] {
        assert!(!html.contains(external), "the page contains {external:?}");
    }
}

#[test]
fn scripts_run_only_with_the_nonce_of_this_visit() {
    let (_metrics, page) = start();
    let nonce = |answer: &Answer| {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        assert!(answer.text().contains(&format!("<script nonce=\"{nonce}\">")));
        nonce.to_owned()
    };
    assert_ne!(nonce(&get(&page, "/")), nonce(&get(&page, "/")));
}

#[test]
fn the_status_tells_what_was_recorded_with_rates() {
    let (metrics, page) = start();
    let camera = metrics.add_device("cam0", "640x480:rgb24");
    camera.frame_received(&frame(921_600, 200_000));
    camera.frames_lost(LossCause::Missing, 2);
    let _session = metrics.session_opened(SessionSnapshot::new("shm", "shm", "same host"));
    let recorder = std::thread::spawn(move || {
        for _ in 0..40 {
            camera.frame_received(&frame(921_600, 200_000));
            // The page samples on a clock: frames must come over some of its samples.
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let answer = get(&page, "/api/status");
    recorder.join().unwrap();
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let status: CollectorSnapshot = serde_json::from_slice(&answer.body).unwrap();
    let device = &status.devices[0];
    assert_eq!((device.name.as_str(), device.counters.frames_lost), ("cam0", 2));
    assert_eq!((status.sessions_open, status.paths[0].provider.as_str()), (1, "shm"));
    let rates = device.recent.expect("rates at the first look, since the server looks twice");
    assert!(rates.frames_per_s > 1.0 && rates.frames_per_s < 110.0, "{rates:?}");
    assert!(status.cpu.expect("CPU of this process").rss_bytes > 0);
}

#[test]
fn events_follow_the_numbers_and_end_with_the_viewer() {
    let (metrics, page) = start();
    let camera = metrics.add_device("cam0", "raw");
    let mut events = Events::open(&page);
    assert_eq!(events.next().totals.frames_received, 0);
    camera.frame_received(&frame(10, 5));
    let second = events.next();
    assert_eq!(second.totals.frames_received, 1);
    assert!(second.recent.is_some());
    assert_eq!(page.viewers(), 1);
    drop(events);
    wait_until("the viewer's task has ended", || page.viewers() == 0);
}

#[test]
fn pictures_are_made_only_while_somebody_looks_and_at_most_four_a_second() {
    let (metrics, page) = start();
    let camera = metrics.add_device("cam0", "4x4:gray8");
    let offer = || camera.preview().offer(16, &[7u8; 16][..]);
    assert!(!offer(), "nobody has looked yet");
    assert_eq!(get(&page, "/api/preview/cam0.png").status, 204);
    let start = Instant::now();
    let mut made = 0;
    while made < 4 {
        made += u128::from(offer());
        let most = start.elapsed().as_millis() / 250 + 1;
        assert!(made <= most, "{made} pictures, at most {most}");
        // The rate of pictures over time is what is tested.
        std::thread::sleep(Duration::from_millis(1));
    }
    // The time after which a picture is no longer made is what is tested.
    std::thread::sleep(Duration::from_millis(3_000));
    assert!(!offer(), "nobody has looked for 3 s");
}

#[test]
fn pictures_are_png_of_the_frame() {
    let (metrics, page) = start();
    let camera = metrics.add_device("a/b \"c\".png", "2x2:rgb24");
    let path = "/api/preview/a%2Fb%20%22c%22.png.png";
    get(&page, path);
    let pixels = [255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9];
    assert!(camera.preview().offer(12, &pixels[..]));
    let answer = get(&page, path);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("image/png")));
    let mut reader = png::Decoder::new(std::io::Cursor::new(&answer.body)).read_info().unwrap();
    let mut decoded = vec![0; 12];
    assert_eq!(reader.next_frame(&mut decoded).unwrap().width, 2);
    assert_eq!(decoded, pixels);
    let tag = format!("If-None-Match: {}", answer.header("etag").unwrap());
    let again = ask(page.local_addr(), &format!("GET {path}"), &["Host: localhost", &tag]);
    assert_eq!((again.status, again.body.len()), (304, 0));
}

#[test]
fn a_frame_shorter_than_its_format_or_without_pixels_makes_no_picture() {
    let (metrics, page) = start();
    let short = metrics.add_device("short", "2x2:rgb24");
    let packed = metrics.add_device("packed", "640x480:mjpeg");
    for name in ["short", "packed"] {
        get(&page, &format!("/api/preview/{name}.png"));
    }
    assert!(!short.preview().offer(11, &[0u8; 11][..]));
    assert!(!packed.preview().offer(11, &[0u8; 11][..]));
    let status: CollectorSnapshot =
        serde_json::from_slice(&get(&page, "/api/status").body).unwrap();
    let previews: Vec<_> = status.devices.iter().map(|d| (&*d.name, d.has_preview)).collect();
    assert_eq!(previews, [("packed", false), ("short", true)]);
}

#[test]
fn what_is_not_there_is_404_and_nothing_can_be_changed() {
    let (_metrics, page) = start();
    for path in ["/nothing", "/api", "/api/preview/none.png", "/api/preview/none", "/../etc/passwd"]
    {
        assert_eq!(get(&page, path).status, 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        for path in ["/", "/metrics", "/api/status", "/api/preview/x.png"] {
            let answer = ask(page.local_addr(), &format!("{method} {path}"), &["Host: localhost"]);
            assert_eq!(answer.status, 405, "{method} {path}");
        }
    }
}

#[test]
fn foreign_host_names_are_refused_on_every_route() {
    let (_metrics, page) = start();
    for path in ["/", "/metrics", "/api/status", "/api/events", "/api/preview/x.png", "/nothing"] {
        for host in [&["Host: evil.example"][..], &["Host: evil.example:80"], &[]] {
            let answer = ask(page.local_addr(), &format!("GET {path}"), host);
            assert!(matches!(answer.status, 400 | 421), "{path} {host:?}: {}", answer.head);
            assert!(answer.status == 400 || answer.text().contains("host name"));
        }
    }
    let absolute = ask(page.local_addr(), "GET http://evil.example/", &["Host: localhost"]);
    assert_eq!(absolute.status, 421);
    assert_eq!(ask(page.local_addr(), "GET /metrics", &["Host: [::1]:1"]).status, 200);
}

#[test]
fn a_configured_host_name_is_served() {
    let config = DashboardConfig { host_names: vec!["lab-7".into()], ..Default::default() };
    let page = Dashboard::start(config, CollectorMetrics::new()).unwrap();
    assert_eq!(ask(page.local_addr(), "GET /metrics", &["Host: lab-7:80"]).status, 200);
}

#[test]
fn other_machines_need_permission() {
    let listen: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let config = DashboardConfig { listen, ..Default::default() };
    let error = Dashboard::start(config.clone(), CollectorMetrics::new()).unwrap_err();
    assert!(matches!(error, DashboardError::NotLoopback(_)), "{error}");
    let config = DashboardConfig { insecure_remote: true, ..config };
    assert!(Dashboard::start(config, CollectorMetrics::new()).is_ok());
}

#[test]
fn a_taken_address_is_an_error_that_names_it() {
    let (_metrics, page) = start();
    let config = DashboardConfig { listen: page.local_addr(), ..Default::default() };
    let error = Dashboard::start(config, CollectorMetrics::new()).unwrap_err();
    assert!(error.to_string().contains(&page.local_addr().to_string()), "{error}");
}

#[test]
fn stopping_cuts_open_pages_and_frees_the_address() {
    let (metrics, page) = start();
    let address = page.local_addr();
    let mut events = Events::open(&page);
    events.next();
    // The page stays open here: to wait for it would be to wait for ever.
    page.stop();
    let mut rest = Vec::new();
    // Cut in the middle of the stream: an end or a reset, but no waiting.
    let _ = events.0.read_to_end(&mut rest);
    let config = DashboardConfig { listen: address, ..Default::default() };
    assert!(Dashboard::start(config, metrics).is_ok());
}

#[test]
fn garbage_and_silence_on_connections_do_not_stop_others() {
    let (_metrics, page) = start();
    let silent: Vec<_> = (0..100).map(|_| connect(page.local_addr())).collect();
    let mut garbage = connect(page.local_addr());
    garbage.write_all(&[0xff; 4096]).unwrap();
    assert_eq!(get(&page, "/metrics").status, 200);
    drop(silent);
}

#[test]
fn a_thousand_devices() {
    let (metrics, page) = start();
    for i in 0..1_000u64 {
        let device = metrics.add_device(&format!("cam{i}"), "640x480:rgb24");
        for k in 0..300 {
            device.frame_received(&frame(921_600, 100_000 + k * k * 37 + i));
        }
    }
    let status: CollectorSnapshot =
        serde_json::from_slice(&get(&page, "/api/status").body).unwrap();
    assert_eq!(status.devices.len(), 1_000);
    assert_eq!(status.totals.frames_received, 300_000);
    let text = get(&page, "/metrics");
    assert_eq!(text.text().matches("catchment_frame_latency_seconds_count{").count(), 1_000);
    assert_eq!(metrics.snapshot().devices.len(), 1_000);
}
