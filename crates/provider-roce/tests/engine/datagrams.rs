//! The engine over datagrams that no socket carries: a switch in memory, which can lose and
//! reorder.
use catchment_conformance::{Options, Side, connected, pattern, wait_one};
use catchment_provider_roce::io::{Capabilities, Datagrams, Incoming, Outgoing, Path, PathError};
use catchment_provider_roce::{PathMtu, RoceContext, RoceOptions, RoceProvider};
use catchment_verbs::sync::Mutex;
use catchment_verbs::{SendOp, Service, event};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A waiting packet, and its sender.
type Waiting = (SocketAddr, Vec<u8>);

/// Where packets for one address wait.
struct Inbox {
    packets: Mutex<VecDeque<Waiting>>,
    event: OwnedFd,
}

/// What happens to packets in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Treatment {
    All,
    /// Every ninth packet is lost, every fifth goes ahead of the one before it.
    LoseAndReorder,
}

/// Connects carriers by their addresses.
struct Switch {
    inboxes: Mutex<HashMap<SocketAddr, Arc<Inbox>>>,
    treatment: Treatment,
    passed: AtomicUsize,
}

impl Switch {
    fn new(treatment: Treatment) -> Arc<Self> {
        Arc::new(Self { inboxes: Mutex::default(), treatment, passed: AtomicUsize::new(0) })
    }

    fn open(self: &Arc<Self>, address: &str) -> Arc<RoceContext> {
        let local: SocketAddr = address.parse().unwrap();
        let inbox =
            Arc::new(Inbox { packets: Mutex::default(), event: event::event_fd().unwrap() });
        self.inboxes.lock().insert(local, Arc::clone(&inbox));
        let port = Port { switch: Arc::clone(self), local, inbox };
        RoceProvider::new(RoceOptions::default()).open_on(Box::new(port)).unwrap()
    }

    fn pass(&self, from: SocketAddr, to: SocketAddr, packet: Vec<u8>) {
        let inbox = self.inboxes.lock().get(&to).cloned();
        let Some(inbox) = inbox else { return };
        let number = self.passed.fetch_add(1, Ordering::Relaxed);
        let treated = self.treatment == Treatment::LoseAndReorder;
        if treated && number % 9 == 8 {
            return;
        }
        let mut packets = inbox.packets.lock();
        let place = packets.len() - usize::from(treated && number % 5 == 4 && !packets.is_empty());
        packets.insert(place, (from, packet));
        drop(packets);
        event::ring(&inbox.event);
    }
}

/// One address at a switch.
struct Port {
    switch: Arc<Switch>,
    local: SocketAddr,
    inbox: Arc<Inbox>,
}

impl Datagrams for Port {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { segmentation: false, coalescing: false, receive_buffer_bytes: 1 << 20 }
    }

    fn ip_mtu(&self) -> io::Result<u32> {
        Ok(2304)
    }

    fn path_to(&self, remote: SocketAddr) -> Result<Path, PathError> {
        Ok(Path { local: self.local.ip(), remote, ip_mtu: 2304, path_mtu: PathMtu::Mtu2048 })
    }

    fn send(&self, trains: &mut Outgoing<'_>) -> io::Result<usize> {
        let trains = trains.trains();
        let count = trains.len();
        for train in trains {
            assert_eq!(train.bytes(), train.segment_bytes(), "one packet each");
            let mut packet = Vec::with_capacity(train.bytes());
            train.for_each_piece(|piece| packet.extend_from_slice(piece));
            self.switch.pass(self.local, train.route().remote, packet);
        }
        Ok(count)
    }

    fn send_one(&self, from: SocketAddr, remote: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        self.switch.pass(from, remote, bytes.to_vec());
        Ok(())
    }

    fn receive(&self, ring: &mut Incoming<'_>) -> io::Result<usize> {
        let mut packets = self.inbox.packets.lock();
        let mut count = 0;
        while let Some((from, packet)) = packets.front() {
            if !ring.push((*from, self.local), 0, packet.len(), packet) {
                break;
            }
            packets.pop_front();
            count += 1;
        }
        if packets.is_empty() {
            event::take_rings(&self.inbox.event);
        }
        Ok(count)
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.inbox.event.as_fd()
    }
}

/// Two devices at a switch, with a connected queue pair each.
fn pair(treatment: Treatment, addresses: [&str; 2]) -> (Side, Side) {
    let switch = Switch::new(treatment);
    let options = Options::default();
    let [left, right] = addresses.map(|at| switch.open(at));
    connected((left, &options), (right, &options))
}

fn exchange(a: &mut Side, b: &mut Side) {
    let data = pattern(1, 300_000);
    a.put(0, &data);
    a.run_ok(SendOp::Write(b.remote(0)), &[a.sge(0, data.len())]);
    assert!(b.get(0, data.len()) == data, "written");
    a.run_ok(SendOp::Read(b.remote(0)), &[a.sge(400_000, data.len())]);
    assert!(a.get(400_000, data.len()) == data, "read back");
    b.post_recv(7, &[b.sge(500_000, 10_000)]);
    a.run_ok(SendOp::Send, &[a.sge(0, 10_000)]);
    let received = wait_one(&*b.recv_cq);
    assert_eq!((received.wr_id, received.result.unwrap().bytes), (7, 10_000));
    assert!(b.get(500_000, 10_000) == data[..10_000], "sent");
}

#[test]
fn a_device_needs_no_socket() {
    for addresses in
        [["192.0.2.1:4791", "192.0.2.2:4791"], ["[2001:db8::1]:4791", "[2001:db8::2]:4791"]]
    {
        let (mut a, mut b) = pair(Treatment::All, addresses);
        assert_eq!(a.context.caps().path_mtu, Some(2048));
        assert!(a.context.caps().services.has(Service::Ud));
        exchange(&mut a, &mut b);
        exchange(&mut b, &mut a);
    }
}

#[test]
fn what_a_carrier_loses_or_reorders_is_recovered() {
    let (mut a, mut b) = pair(Treatment::LoseAndReorder, ["192.0.2.1:4791", "192.0.2.2:4791"]);
    for _ in 0..3 {
        exchange(&mut a, &mut b);
    }
}
