//! A source that does anything.
use super::world::{PATIENCE, World};
use catchment::session::host::Host;
use catchment::session::identity::Identity;
use catchment::session::io::{ClientSecurity, Connection};
use catchment::session::message::{
    Connect, Device, Hello, Message, Ping, Policy, Proof, ProtocolRange, ProviderOffer, RingWish,
    StreamStart, Welcome,
};
use catchment::session::refusal::Refusal;
use catchment::session::wire::encode;
use catchment_provider_shm::ShmProvider;
use catchment_transfer::header::encode_trailer;
use catchment_transfer::layout::padded;
use catchment_transfer::protocol::{commit_word, full_byte, held_byte, released_byte};
use catchment_transfer::{BlockHeader, RingLayout};
use catchment_verbs::{
    Access, Context, Provider, Qp, QpInit, QpTransition, RemoteWindow, RtrAttr, RtsAttr,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Block size of its ring.
const BLOCK_BYTES: u32 = 1024;

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
    pub(crate) identity: Identity,
    /// Of the Hello that [`Bad::hello`] makes.
    pub(crate) attempt: u64,
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
    pub(crate) fn new(world: &World) -> Self {
        Self::to(&world.at())
    }

    pub(crate) fn to(at: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = at.parse().unwrap();
        let security = ClientSecurity::default();
        let connection =
            runtime.block_on(Connection::connect(&address, &security, PATIENCE)).unwrap();
        let context = ShmProvider::new().open("shm0").unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(8, None).unwrap();
        let mut qp = pd.create_qp(QpInit::rc(&cq, 8, 0)).unwrap();
        qp.modify(QpTransition::ToInit { access: Access::empty() }).unwrap();
        Self {
            runtime,
            connection,
            context,
            qp,
            identity: Identity::random().unwrap(),
            attempt: 1,
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
            instance: self.identity.instance(),
            attempt: self.attempt,
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
            wish: RingWish { blocks, block_bytes: BLOCK_BYTES },
        }
    }

    pub(crate) fn send(&mut self, message: &Message) {
        // The collector may have refused and closed already.
        let _ = self.runtime.block_on(self.connection.send(message));
    }

    pub(crate) fn recv(&mut self) -> Option<Message> {
        let connection = &mut self.connection;
        let receive = async { tokio::time::timeout(PATIENCE, connection.recv()).await };
        self.runtime.block_on(receive).expect("an answer in time").ok()
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
        let attempt = hello.attempt;
        self.send(&Message::Hello(hello));
        let mut answer = self.recv();
        if let Some(Message::Challenge(challenge)) = answer {
            let signature = self.identity.prove(challenge.nonce, attempt);
            self.send(&Message::Proof(Proof { signature }));
            answer = self.recv();
        }
        match answer {
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
        let start = |stream| StreamStart { stream, first_packet };
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
        self.qp.modify(QpTransition::ToRtr(RtrAttr::new(welcome.endpoint))).unwrap();
        self.qp.modify(QpTransition::ToRts(RtsAttr::default())).unwrap();
        let layout = RingLayout::new(welcome.ring.blocks, welcome.ring.block_bytes).unwrap();
        let bytes = layout.total_bytes() as u64;
        let window = self.qp.map_remote(welcome.ring.addr, bytes, welcome.ring.rkey).unwrap();
        Ringed { bad: self, welcome, layout, window }
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
        self.write(self.layout.full_offset() + slot as usize, &[full_byte(hint)]);
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
        self.free(slot) == released_byte(generation)
    }

    /// Whether the collector says that it keeps this block.
    pub(crate) fn is_held(&self, slot: u32, generation: u64) -> bool {
        self.free(slot) == held_byte(generation)
    }

    fn free(&self, slot: u32) -> u8 {
        let mut byte = [0];
        self.read(self.layout.free_offset() + slot as usize, &mut byte);
        byte[0]
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
        self.bad.send(&Message::Ping(Ping { epoch: self.welcome.epoch, seq }));
        match self.bad.recv() {
            Some(Message::Pong(pong)) => assert_eq!(pong.seq, seq),
            other => panic!("{other:?}"),
        }
    }
}
