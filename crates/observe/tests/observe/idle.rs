//! What the live page costs while nobody is watching. In a process of its own, to find its one thread.
use catchment_netns::{in_own_process, wait_until};
use catchment_observe::{CollectorMetrics, Dashboard, DashboardConfig};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the page's thread under /proc.
fn thread_of_the_page() -> PathBuf {
    let mut threads = std::fs::read_dir("/proc/self/task").unwrap().map(|e| e.unwrap().path());
    let is_page =
        |dir: &PathBuf| std::fs::read_to_string(dir.join("comm")).unwrap() == "live page\n";
    threads.find(is_page).expect("a thread named 'live page'")
}

/// How often the thread was woken so far: it gave up the processor that many times.
fn wakeups(thread: &Path) -> u64 {
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_thread_of_the_page_sleeps_while_nobody_looks() {
    let name = "idle::the_thread_of_the_page_sleeps_while_nobody_looks";
    in_own_process(name, the_thread_sleeps_while_nobody_looks);
}

fn the_thread_sleeps_while_nobody_looks() {
    let page = Dashboard::start(DashboardConfig::default(), CollectorMetrics::new()).unwrap();
    let mut stream = TcpStream::connect(page.local_addr()).unwrap();
    write!(stream, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut events =
        |n: usize| lines.by_ref().filter(|line| line.starts_with("data: ")).take(n).count();
    assert_eq!(events(1), 1);
    let thread = thread_of_the_page();
    let watched = wakeups(&thread);
    assert_eq!(events(3), 3);
    assert!(wakeups(&thread) > watched, "it works while somebody looks");

    drop(lines);
    wait_until("the viewer has left", || page.viewers() == 0);
    // The connection's last steps; then nothing may happen any more.
    std::thread::sleep(Duration::from_millis(200));
    let left = wakeups(&thread);
    // Nothing may happen during this time.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(wakeups(&thread), left, "it woke up although nobody looked");
}
