//! A source without frames: chunks are counted.
use catchment_control::admission::source_side::{
    Config, Fallback, Input, Leave, LocalId, Output, SourceSide,
};
use catchment_session::io::{Address, ClientSecurity};
use catchment_session::registration::{
    Admitted, Register, RegisterError, Registered, RegisteredDevice, Secret, register,
};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

pub(crate) const MIB: u64 = 1 << 20;
/// Longer than anything takes on a machine that does other work too.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for something.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what} within {LIMIT:?}");
        // The other end is another thread with a socket.
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Source {
    address: Address,
    security: ClientSecurity,
    wish: Register,
    pub(crate) side: SourceSide,
    socket: UdpSocket,
    told: Registered,
    pub(crate) registered: usize,
    pub(crate) sent_bytes: u64,
    asked_bytes: u64,
    /// Bytes beyond what was asked for.
    pub(crate) twice: u64,
    /// Chunks on their way: until when.
    flying: Vec<(Instant, LocalId)>,
    pub(crate) last: Option<Vec<u8>>,
    began: Instant,
}

impl Source {
    pub(crate) fn register(
        address: &Address,
        security: &ClientSecurity,
        class: Option<&str>,
    ) -> Result<Self, RegisterError> {
        let wish = wish(class);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let began = Instant::now();
        let (told, root) = reach(address, security, &wish, &socket)?;
        let config = Config {
            lease_ns: told.lease_ns,
            chunk_bytes: told.chunk_bytes,
            fallback: Fallback::Stop,
        };
        let mut side = SourceSide::new(1, config);
        let (source, term, round_trip_ns) = (told.source, told.term, 50_000);
        let input = Input::Registered { source, term, root, round_trip_ns, go_on: None };
        side.handle(2, input);
        let (flying, last) = (Vec::new(), None);
        let (address, security) = (address.clone(), security.clone());
        Ok(Self {
            address,
            security,
            wish,
            side,
            socket,
            told,
            registered: 1,
            sent_bytes: 0,
            asked_bytes: 0,
            twice: 0,
            flying,
            last,
            began,
        })
    }

    pub(crate) fn classes(&self) -> &[String] {
        &self.told.classes
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 10
    }

    pub(crate) fn ask(&mut self, number: u64, bytes: u64) {
        let id = LocalId { device: 0, number };
        self.asked_bytes += bytes;
        self.side
            .handle(self.now_ns(), Input::Ask { id, bytes, ahead_bytes: 0, age_ns: 0, class: 0 });
    }

    pub(crate) fn send_raw(&self, datagram: &[u8]) {
        self.socket.send(datagram).unwrap();
    }

    /// Does all that is due.
    pub(crate) fn step(&mut self) {
        let mut buffer = [0; 1500];
        while let Ok(bytes) = self.socket.recv(&mut buffer) {
            self.side.handle(self.now_ns(), Input::Datagram(&buffer[..bytes]));
        }
        let now = Instant::now();
        let now_ns = self.now_ns();
        let left: Vec<_> =
            self.flying.iter().filter(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        self.flying.retain(|(at, _)| *at > now);
        left.into_iter().for_each(|id| self.side.handle(now_ns, Input::Sent { id }));
        self.side.handle(now_ns, Input::Timeout);
        loop {
            match self.side.poll() {
                Output::Transmit(bytes) => {
                    self.last = Some(bytes.to_vec());
                    // Nobody may listen at the moment.
                    let _ = self.socket.send(bytes);
                }
                Output::Send { id, bytes, rate_bps, leave, .. } => {
                    assert_ne!(leave, Leave::Fallback);
                    self.sent_bytes += bytes;
                    self.twice = self.sent_bytes.saturating_sub(self.asked_bytes);
                    let takes = Duration::from_nanos(bytes * 8_000_000_000 / rate_bps);
                    self.flying.push((Instant::now() + takes, id));
                }
                Output::Register => {
                    self.wish.term = self.told.term;
                    if let Ok((told, root)) =
                        reach(&self.address, &self.security, &self.wish, &self.socket)
                    {
                        self.registered += 1;
                        let (source, term) = (told.source, told.term);
                        self.told = told;
                        let now_ns = self.now_ns();
                        self.side.handle(
                            now_ns,
                            Input::Registered {
                                source,
                                term,
                                root,
                                round_trip_ns: 50_000,
                                go_on: None,
                            },
                        );
                    }
                }
                Output::Missed { .. } | Output::Refused { .. } => {}
                Output::Timeout(_) => break,
            }
        }
    }

    pub(crate) fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        until(what, || {
            self.step();
            done(self).then_some(())
        });
    }
}

/// Returns what a new process with one device says.
pub(crate) fn wish(class: Option<&str>) -> Register {
    let device = RegisteredDevice {
        name: "cam0".parse().unwrap(),
        class: class.map(str::to_owned),
        deadline_us: None,
        rate_max_bps: None,
    };
    Register::new(Secret::random().unwrap(), "127.0.0.1:1".to_owned(), vec![device])
}

/// Registers, and nothing else.
pub(crate) fn ask_once(address: &Address, wish: &Register) -> Result<Admitted, RegisterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let security = ClientSecurity::default();
    runtime.block_on(register(address, &security, wish.clone(), Duration::from_secs(20)))
}

fn reach(
    address: &Address,
    security: &ClientSecurity,
    wish: &Register,
    socket: &UdpSocket,
) -> Result<(Registered, [u8; 32]), RegisterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = register(address, security, wish.clone(), Duration::from_secs(20));
    let Admitted { told, root, to, .. } = runtime.block_on(work)?;
    socket.connect(to).unwrap();
    Ok((told, root))
}
