//! The cases, and a device of one's own for each.
mod device;
mod limits;
mod peer;
mod port;

use catchment_conformance::{Bench, Options, Side};
use catchment_provider_ibverbs::{IbverbsContext, IbverbsOptions, IbverbsProvider};
use catchment_verbs::{AsyncEvent, Context};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

type Run = fn();

pub(crate) const CASES: &[(&str, Run)] = &[
    ("a_port_goes_down_and_up", port::goes_down_and_up),
    ("an_address_that_was_removed_is_named", port::loses_its_address),
    ("a_peer_of_another_family_or_port_is_refused", port::cannot_reach_every_peer),
    ("an_address_of_another_namespace_is_named", port::is_in_another_namespace),
    ("too_small_a_memlock_limit_is_named", limits::memlock),
    ("a_peer_that_is_gone_is_named", peer::gone),
    ("a_revoked_key_is_named", peer::revoked),
    ("a_removed_device_fails_everything_and_wakes_everybody", device::removed),
];

const PATIENCE: Duration = Duration::from_secs(60);

/// A virtual cable with an RDMA device at one end, removed in the end.
struct Cable {
    near: String,
    far: String,
    device: String,
    address: IpAddr,
}

impl Cable {
    fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cable = Self {
            near: format!("near{number}"),
            far: format!("far{number}"),
            device: format!("rxt{number}"),
            address: Ipv4Addr::new(10, 88, number, 1).into(),
        };
        let Self { near, far, .. } = &cable;
        run(&format!("ip link add {near} type veth peer name {far}"));
        run(&format!("ip address add {}/24 dev {near}", cable.address));
        run(&format!("ip link set {near} up"));
        run(&format!("ip link set {far} up"));
        cable.add_device();
        cable
    }

    fn add_device(&self) {
        let (device, near) = (&self.device, &self.near);
        run(&format!("rdma link add {device} type rxe netdev {near}"));
        eventually("the device", || provider().device_for(self.address).is_ok());
    }

    fn open(&self) -> Arc<IbverbsContext> {
        provider().open_device(&self.device).unwrap()
    }

    fn bench(&self) -> Bench {
        Bench::new(Arc::new(provider()), &self.device)
    }

    /// Two connected sides, each with a context of its own.
    fn pair(&self) -> (Side, Side) {
        self.bench().pair()
    }

    /// Two sides, not connected.
    fn sides(&self) -> (Side, Side) {
        let bench = self.bench();
        (bench.side(&Options::default()), bench.side(&Options::default()))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = Command::new("rdma").args(["link", "delete", &self.device]).status();
        let _ = Command::new("ip").args(["link", "delete", &self.near]).status();
    }
}

fn provider() -> IbverbsProvider {
    IbverbsProvider::new(IbverbsOptions::default())
}

fn run(line: &str) {
    let mut words = line.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status();
    assert!(status.unwrap().success(), "{line}");
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        // What is waited for has no event of its own.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The next event that is wanted; others are dropped.
fn event(context: &dyn Context, wanted: impl Fn(&AsyncEvent) -> bool) -> AsyncEvent {
    let mut found = None;
    eventually("an event", || {
        found = context.async_event();
        found.as_ref().is_some_and(&wanted)
    });
    found.unwrap()
}

fn reason(context: &dyn Context) -> String {
    let fatal = event(context, |event| matches!(event, AsyncEvent::QpFatal { .. }));
    let AsyncEvent::QpFatal { reason, .. } = fatal else {
        panic!("{fatal:?}");
    };
    reason
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}
