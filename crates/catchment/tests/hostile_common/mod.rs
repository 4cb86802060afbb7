//! A collector with a good source that streams all the while, and a source that does anything.
use catchment::collector::{Collector, CollectorBuilder};
use catchment::session::host::Host;
use catchment::session::io::{ClientSecurity, Connection};
use catchment::session::message::{
    Connect, Device, Hello, Message, Ping, Policy, ProtocolRange, ProviderOffer, RingWish,
    StreamStart, Welcome,
};
use catchment::session::refusal::Refusal;
use catchment::session::wire::encode;
use catchment::source::{DeviceSpec, Source};
use catchment_provider_shm::ShmProvider;
use catchment_transfer::header::encode_trailer;
use catchment_transfer::layout::padded;
use catchment_transfer::protocol::{commit_word, full_byte, released_byte};
use catchment_transfer::{BlockHeader, RingLayout};
use catchment_verbs::{
    Access, Context, Provider, Qp, QpInit, QpTransition, RemoteWindow, RtrAttr, RtsAttr, Service,
};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const GOOD: &str = "good";
/// Block size of the bad source's ring.
pub(crate) const BLOCK_BYTES: u32 = 1024;

/// The tests count the descriptors and mappings of the process, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

type Log = Arc<Mutex<HashMap<String, Vec<(u64, Vec<u8>)>>>>;

/// The collector under attack and its good source.
pub(crate) struct World {
    collector: Option<Collector>,
    log: Log,
    good: Option<JoinHandle<u64>>,
    stop: Arc<AtomicBool>,
    good_sent: Arc<AtomicU64>,
    baseline: (usize, usize),
    _turn: MutexGuard<'static, ()>,
}

pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        // Counters tell nobody that they changed: look again.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Descriptors of this process, and its mappings of shared memory.
fn held() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|l| l.contains("memfd:")).count())
}

fn good_bytes(number: u64) -> Vec<u8> {
    let bytes = 1 + (number as usize * 37) % 900;
    (0..bytes)
        .map(|i| (number as usize * 31 + i) as u8)
        .collect()
}

impl World {
    /// Starts both; `change` may set up the collector.
    pub(crate) fn start(change: impl FnOnce(CollectorBuilder) -> CollectorBuilder) -> World {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let log = Log::default();
        let record = log.clone();
        let builder = Collector::builder("127.0.0.1:0")
            .workers(2)
            .on_frame(move |frame| {
                let mut log = record.lock().unwrap_or_else(PoisonError::into_inner);
                let device = log.entry(frame.device().to_owned()).or_default();
                device.push((frame.packet_number(), frame.to_vec()));
            });
        let collector = change(builder).start().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let good_sent = Arc::new(AtomicU64::new(0));
        let good = {
            let at = collector.local_addr().to_string();
            let (stop, sent) = (stop.clone(), good_sent.clone());
            std::thread::spawn(move || stream(&at, &stop, &sent))
        };
        eventually("the good source", || good_sent.load(Ordering::Relaxed) > 10);
        World {
            collector: Some(collector),
            log,
            good: Some(good),
            stop,
            good_sent,
            baseline: held(),
            _turn: turn,
        }
    }

    pub(crate) fn collector(&self) -> &Collector {
        self.collector.as_ref().unwrap()
    }

    pub(crate) fn at(&self) -> String {
        self.collector().local_addr().to_string()
    }

    /// Sends bytes over a new connection and gives all that comes back until it is closed.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.at()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The collector may refuse before all is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => answer.extend(&chunk[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Frames of a device that reached the sink.
    pub(crate) fn frames(&self, device: &str) -> Vec<(u64, Vec<u8>)> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.get(device).cloned().unwrap_or_default()
    }

    pub(crate) fn refused(&self, label: &str) -> u64 {
        let refused = self.collector().metrics().snapshot().sessions_refused;
        refused
            .iter()
            .filter(|(code, _)| code.as_str() == label)
            .map(|(_, n)| *n)
            .sum()
    }

    /// The bad peers are gone: nothing of them stays, and the good source goes on.
    pub(crate) fn settle(&self, case: &str) {
        let before = self.good_sent.load(Ordering::Relaxed);
        eventually(&format!("{case}: the good stream"), || {
            self.good_sent.load(Ordering::Relaxed) > before + 3
        });
        let deadline = Instant::now() + PATIENCE;
        while held() != self.baseline {
            let (fds, maps) = held();
            assert!(
                Instant::now() < deadline,
                "{case}: {fds} descriptors and {maps} mappings, {:?} before",
                self.baseline
            );
            // Descriptors tell nobody when they are closed: look again.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends both, where the test has a sink of its own.
    pub(crate) fn finish_uncounted(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.good.take().unwrap().join().unwrap();
        let report = self.collector.take().unwrap().stop();
        let good = report
            .devices
            .iter()
            .find(|d| d.name == GOOD)
            .unwrap()
            .counters;
        assert_eq!((good.frames_received, good.frames_lost), (sent, 0));
    }

    /// Ends both: the good stream arrived whole and in order, over one session.
    pub(crate) fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.good.take().unwrap().join().unwrap();
        let report = self.collector.take().unwrap().stop();
        let seen = self.frames(GOOD);
        let wanted: Vec<_> = (0..sent).map(|n| (n, good_bytes(n))).collect();
        assert!(seen == wanted, "{} good frames of {sent}", seen.len());
        let good = report
            .devices
            .iter()
            .find(|d| d.name == GOOD)
            .unwrap()
            .counters;
        assert_eq!(
            (
                good.frames_lost,
                good.frames_duplicate,
                good.checksum_errors
            ),
            (0, 0, 0)
        );
    }
}

/// The good source.
fn stream(at: &str, stop: &AtomicBool, sent: &AtomicU64) -> u64 {
    let spec = DeviceSpec::new(GOOD).frame_bytes(1000);
    let source = Source::builder(at)
        .device(spec)
        .patience(PATIENCE)
        .connect()
        .unwrap();
    let mut device = source.device(GOOD).unwrap();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let bytes = good_bytes(number);
        device
            .frame(bytes.len())
            .unwrap()
            .send_bytes(&bytes)
            .unwrap();
        number += 1;
        sent.store(number, Ordering::Relaxed);
        // The rate of the good source.
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(device);
    let report = source.close(PATIENCE).unwrap();
    assert_eq!(report.reconnects, 0, "the good source was disturbed");
    number
}

/// A message as it goes over the wire.
pub(crate) fn framed(json: &str) -> Vec<u8> {
    let mut bytes = (json.len() as u32).to_be_bytes().to_vec();
    bytes.extend(json.as_bytes());
    bytes
}

/// The text of a message.
pub(crate) fn json(message: &Message) -> String {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).unwrap();
    String::from_utf8(bytes.split_off(4)).unwrap()
}

/// A source that can do anything, up to the point where it wants to.
pub(crate) struct Bad {
    runtime: tokio::runtime::Runtime,
    pub(crate) connection: Connection,
    pub(crate) context: Arc<dyn Context>,
    qp: Box<dyn Qp>,
    pub(crate) instance: u64,
    epoch: u32,
}

/// A bad source with a correct handshake behind it.
pub(crate) struct Ringed {
    pub(crate) bad: Bad,
    pub(crate) welcome: Welcome,
    pub(crate) layout: RingLayout,
    window: RemoteWindow,
}

impl Bad {
    pub(crate) fn new(world: &World) -> Bad {
        Bad::to(&world.at())
    }

    pub(crate) fn to(at: &str) -> Bad {
        static INSTANCE: AtomicU64 = AtomicU64::new(0xbad);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let address = at.parse().unwrap();
        let security = ClientSecurity::default();
        let connection = runtime
            .block_on(Connection::connect(&address, &security, PATIENCE))
            .unwrap();
        let context = ShmProvider::new().open("shm0").unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(8, None).unwrap();
        let mut qp = pd
            .create_qp(QpInit {
                service: Service::Rc,
                send_cq: cq.clone(),
                recv_cq: cq,
                max_send_wr: 8,
                max_recv_wr: 0,
                max_sge: 1,
                max_inline_bytes: 0,
                strict: false,
            })
            .unwrap();
        let access = Access::empty();
        qp.modify(QpTransition::ToInit { access }).unwrap();
        Bad {
            runtime,
            connection,
            context,
            qp,
            instance: INSTANCE.fetch_add(1, Ordering::Relaxed),
            epoch: 0,
        }
    }

    pub(crate) fn hello(&self, names: &[&str], blocks: u32) -> Hello {
        let device = |name: &&str| Device {
            name: name.parse().unwrap(),
            format: Some("64x64:gray8".to_owned()),
            policy: Policy::Block,
            next_packet: 0,
        };
        Hello {
            protocol: ProtocolRange::OURS,
            software: "bad 1.0".to_owned(),
            instance: self.instance,
            host: Host::read().unwrap(),
            devices: names.iter().map(device).collect(),
            providers: vec![ProviderOffer {
                name: "shm".to_owned(),
                gid: self.context.gid(),
                device: None,
                net: None,
            }],
            missing: Vec::new(),
            failed: Vec::new(),
            wish: RingWish {
                blocks,
                block_bytes: BLOCK_BYTES,
            },
        }
    }

    pub(crate) fn send(&mut self, message: &Message) {
        // The collector may have refused and closed already.
        let _ = self.runtime.block_on(self.connection.send(message));
    }

    pub(crate) fn recv(&mut self) -> Option<Message> {
        let connection = &mut self.connection;
        let receive = async { tokio::time::timeout(PATIENCE, connection.recv()).await };
        self.runtime
            .block_on(receive)
            .expect("an answer in time")
            .ok()
    }

    /// The refusal that ends the session; other messages are passed over.
    pub(crate) fn refusal(&mut self) -> Refusal {
        loop {
            match self.recv() {
                Some(Message::Refused(refusal)) => return refusal,
                Some(Message::Revoke(revoke)) => return revoke.into_refusal(),
                Some(_) => {}
                None => panic!("closed without a reason"),
            }
        }
    }

    pub(crate) fn welcome(&mut self, names: &[&str], blocks: u32) -> Result<Welcome, Refusal> {
        let hello = self.hello(names, blocks);
        self.introduce(hello)
    }

    /// What the collector answers to this Hello.
    pub(crate) fn introduce(&mut self, hello: Hello) -> Result<Welcome, Refusal> {
        self.send(&Message::Hello(hello));
        match self.recv() {
            Some(Message::Welcome(welcome)) => {
                self.epoch = welcome.epoch;
                Ok(welcome)
            }
            Some(Message::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Connect as it should be.
    pub(crate) fn connect(&self, welcome: &Welcome, first_packet: u64) -> Connect {
        let start = |stream| StreamStart {
            stream,
            first_packet,
        };
        Connect {
            epoch: welcome.epoch,
            endpoint: self.qp.endpoint(),
            streams: welcome.streams.iter().map(|s| start(s.stream)).collect(),
        }
    }

    /// A whole handshake for one device.
    pub(crate) fn ringed(mut self, name: &str, blocks: u32, first_packet: u64) -> Ringed {
        let welcome = self.welcome(&[name], blocks).unwrap();
        let connect = self.connect(&welcome, first_packet);
        self.send(&Message::Connect(connect));
        match self.recv() {
            Some(Message::Ready(_)) => {}
            other => panic!("{other:?}"),
        }
        self.into_ringed(welcome)
    }

    /// Goes on after Ready.
    pub(crate) fn into_ringed(mut self, welcome: Welcome) -> Ringed {
        self.qp
            .modify(QpTransition::ToRtr(RtrAttr::new(welcome.endpoint)))
            .unwrap();
        self.qp
            .modify(QpTransition::ToRts(RtsAttr::default()))
            .unwrap();
        let layout = RingLayout::new(welcome.ring.blocks, welcome.ring.block_bytes).unwrap();
        let bytes = layout.total_bytes() as u64;
        let window = self
            .qp
            .map_remote(welcome.ring.addr, bytes, welcome.ring.rkey)
            .unwrap();
        Ringed {
            bad: self,
            welcome,
            layout,
            window,
        }
    }
}

/// A correct header of a frame in one block.
pub(crate) fn header(packet_number: u64, payload_bytes: u32) -> BlockHeader {
    BlockHeader {
        packet_number,
        payload_bytes,
        frame_bytes: payload_bytes.into(),
        room_bytes: padded(payload_bytes),
        ..BlockHeader::default()
    }
}

impl Ringed {
    pub(crate) fn epoch(&self) -> u64 {
        self.welcome.epoch.into()
    }

    /// Commits a block that may be wrong, with its hint, and rings.
    pub(crate) fn commit(&self, slot: u32, generation: u64, header: &BlockHeader) {
        self.commit_as(self.epoch(), slot, generation, generation, header);
    }

    pub(crate) fn commit_as(
        &self,
        epoch: u64,
        slot: u32,
        generation: u64,
        hint: u64,
        header: &BlockHeader,
    ) {
        self.commit_silently(epoch, slot, generation, header);
        self.write(
            self.layout.full_offset() + slot as usize,
            &[full_byte(hint)],
        );
        self.window.bell.ring();
    }

    /// Commits a block and tells nobody.
    pub(crate) fn commit_silently(
        &self,
        epoch: u64,
        slot: u32,
        generation: u64,
        header: &BlockHeader,
    ) {
        let words = header.to_words();
        let commit = commit_word(epoch, slot, generation, &words);
        let trailer = encode_trailer(&words, commit);
        let at = self.layout.trailer_offset(slot);
        self.write(at, &trailer[..56]);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.write(at + 56, &trailer[56..]);
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.window.memory.memory().write_at(offset, bytes).unwrap();
    }

    /// Fills the payload of a slot, as `header` places it.
    pub(crate) fn payload(&self, slot: u32, header: &BlockHeader, byte: u8) {
        let at = self.layout.trailer_offset(slot) - header.room_bytes as usize;
        self.write(at, &vec![byte; header.payload_bytes as usize]);
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.window.memory.memory().read_at(offset, bytes).unwrap();
    }

    /// Whether the collector says that it has done with this block.
    pub(crate) fn is_released(&self, slot: u32, generation: u64) -> bool {
        let mut byte = [0];
        self.read(self.layout.free_offset() + slot as usize, &mut byte);
        byte[0] == released_byte(generation)
    }

    pub(crate) fn ring(&self) {
        self.window.bell.ring();
    }

    /// The refusal that ends the session; keeps it alive with pings until then.
    pub(crate) fn refusal_while_alive(&mut self) -> Refusal {
        let epoch = self.welcome.epoch;
        let deadline = Instant::now() + PATIENCE;
        for seq in 0.. {
            assert!(Instant::now() < deadline, "the session goes on");
            self.bad.send(&Message::Ping(Ping { epoch, seq }));
            let soon = Some(Instant::now() + Duration::from_millis(50));
            let runtime = &self.bad.runtime;
            let connection = &mut self.bad.connection;
            while let Ok(Some(message)) =
                runtime.block_on(async { connection.recv_until(soon).await })
            {
                if let Message::Revoke(revoke) = message {
                    return revoke.into_refusal();
                }
            }
        }
        unreachable!("the loop has no end")
    }

    /// The session lives: a ping is answered.
    pub(crate) fn assert_alive(&mut self) {
        static SEQ: AtomicU64 = AtomicU64::new(0);
        let seq = SEQ.fetch_add(1, Ordering::Relaxed) as u32;
        let epoch = self.welcome.epoch;
        self.bad.send(&Message::Ping(Ping { epoch, seq }));
        match self.bad.recv() {
            Some(Message::Pong(pong)) => assert_eq!(pong.seq, seq),
            other => panic!("{other:?}"),
        }
    }
}
