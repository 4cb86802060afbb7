//! A source whose collector does anything: it says why it cannot go on, or tries again. It never
//! panics, hangs, or writes where it should not.
use catchment::session::message::Message;
use catchment::source::{DeviceSpec, Source, SourceError};
use catchment_provider_shm::ShmProvider;
use catchment_transfer::RingLayout;
use catchment_verbs::{
    Access, Context, Gid, Mr, Provider, Qp, QpInit, QpTransition, RtrAttr, RtsAttr,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(1500);

/// What a fake collector has: memory and a queue pair, both real.
struct Fake {
    qp: Box<dyn Qp>,
    mr: Arc<dyn Mr>,
    context: Arc<dyn Context>,
    layout: RingLayout,
    /// Where the source says that it is.
    source_gid: Gid,
}

impl Fake {
    /// A ring for this layout in a memory of so many bytes.
    fn new(bytes: impl FnOnce(&RingLayout) -> usize) -> Self {
        let layout = RingLayout::new(8, 4096).unwrap();
        let context = ShmProvider::new().open("shm0").unwrap();
        let pd = context.alloc_pd().unwrap();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.alloc_mr(bytes(&layout), rights).unwrap();
        let cq = context.create_cq(1, None).unwrap();
        let mut qp = pd.create_qp(QpInit::rc(&cq, 1, 0)).unwrap();
        qp.modify(QpTransition::ToInit { access: rights }).unwrap();
        Self { qp, mr, context, layout, source_gid: Gid::default() }
    }

    fn welcome(&self) -> String {
        let endpoint = self.qp.endpoint();
        assert_eq!(endpoint.gid, self.context.gid());
        format!(
            r#"{{"type":"welcome","protocol":3,"epoch":7,"path":{{"source":"shm","source_gid":"{}","collector":"shm","path_mtu":null}},"reason":"a test","ring":{{"addr":"{:016x}","rkey":{},"blocks":{},"block_bytes":{},"layout_hash":"{:016x}","checksum":false}},"endpoint":{{"gid":"{}","qpn":{},"psn":{}}},"lease_ms":1000,"streams":[{{"device":"cam","stream":0,"next_packet":null}}]}}"#,
            self.source_gid,
            self.mr.addr(),
            self.mr.rkey(),
            self.layout.blocks(),
            self.layout.block_bytes(),
            self.layout.hash(),
            endpoint.gid,
            endpoint.qpn,
            endpoint.psn,
        )
    }
}

fn say(stream: &mut TcpStream, json: &str) {
    let mut bytes = (json.len() as u32).to_be_bytes().to_vec();
    bytes.extend(json.as_bytes());
    let _ = stream.write_all(&bytes);
}

/// The next message, as text; `None` at the end.
fn hear(stream: &mut TcpStream) -> Option<String> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut json = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut json).ok()?;
    Some(String::from_utf8(json).unwrap())
}

/// On a port of the system's choice; its address.
fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    (listener, at)
}

/// Serves sources one after the other with the same lie, until the test is over.
fn serve(
    fake: impl Fn() -> Fake + Send + 'static,
    lie: impl Fn(&Fake) -> String + Send + 'static,
) -> String {
    let (listener, at) = listen();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            session(stream, fake(), &lie);
        }
    });
    at
}

fn session(stream: TcpStream, fake: Fake, lie: impl Fn(&Fake) -> String) {
    session_to_goodbye(stream, fake, lie, None);
}

/// Answers Goodbye with this, if anything.
fn session_to_goodbye(
    mut stream: TcpStream,
    mut fake: Fake,
    lie: impl Fn(&Fake) -> String,
    farewell: Option<&str>,
) {
    let Some(hello) = hear(&mut stream) else { return };
    if let Ok(Message::Hello(hello)) = catchment::session::wire::parse(hello.as_bytes()) {
        fake.source_gid = hello.providers[0].gid;
    }
    say(&mut stream, r#"{"type":"challenge","nonce":"00112233445566778899aabbccddeeff"}"#);
    let Some(_proof) = hear(&mut stream) else { return };
    say(&mut stream, &lie(&fake));
    while let Some(message) = hear(&mut stream) {
        if message.contains(r#""type":"connect""#) {
            if let Some(endpoint) = endpoint_of(&message) {
                let _ = fake.qp.modify(QpTransition::ToRtr(RtrAttr::new(endpoint)));
                let _ = fake.qp.modify(QpTransition::ToRts(RtsAttr::default()));
            }
            say(&mut stream, r#"{"type":"ready","epoch":7}"#);
        } else if let Some(seq) = message.strip_prefix(r#"{"type":"ping","epoch":7,"seq":"#) {
            let pong = format!(r#"{{"type":"pong","epoch":7,"seq":{seq}"#);
            say(&mut stream, &pong);
        } else if message.contains(r#""type":"goodbye""#) {
            farewell.iter().for_each(|answer| say(&mut stream, answer));
        }
    }
}

/// It says that nothing is lost, and delivered less than it got, or more.
#[test]
fn a_collector_whose_numbers_do_not_add_up_is_found_out() {
    for (delivered, wanted) in [(5, "8 sent, 5 delivered"), (9, "8 sent, 9 delivered")] {
        let (listener, at) = listen();
        let serving = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let farewell = format!(
                r#"{{"type":"goodbye_ack","epoch":7,"delivered":[{{"stream":0,"next_packet":8,"frames":{delivered},"lost":0}}]}}"#
            );
            let fake = Fake::new(RingLayout::total_bytes);
            session_to_goodbye(stream, fake, Fake::welcome, Some(&farewell));
        });
        let source = try_source(&at, true).unwrap();
        let mut device = source.device("cam").unwrap();
        for _ in 0..8 {
            device.frame(10).unwrap().send_bytes(&[7; 10]).unwrap();
        }
        let error = source.close(Duration::from_secs(60)).err().unwrap();
        assert!(matches!(error, SourceError::Unaccounted(_)), "{delivered}: {error}");
        for part in [wanted, "device cam"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        serving.join().unwrap();
    }
}

fn endpoint_of(connect: &str) -> Option<catchment_verbs::Endpoint> {
    let message = catchment::session::wire::parse(connect.as_bytes()).ok()?;
    let Message::Connect(connect) = message else { return None };
    Some(connect.endpoint)
}

fn try_source(at: &str, in_place: bool) -> Result<Source, SourceError> {
    let spec = DeviceSpec::new("cam").frame_bytes(1000);
    Source::builder(at).device(spec).in_place(in_place).patience(PATIENCE).connect()
}

/// A part of a welcome, what stands there instead, and a part of what the source says to that.
/// HASH and ADDR stand for those of the ring.
const WRONG_WELCOMES: [(&str, &str, &str); 14] = [
    ("HASH", "0123456789abcdef", "layout hash"),
    (r#""blocks":8"#, r#""blocks":0"#, "blocks"),
    (r#""blocks":8"#, r#""blocks":9"#, "layout hash"),
    ("ADDR", "fffffffffffff000", "last address"),
    (r#""epoch":7"#, r#""epoch":0"#, "epoch"),
    (r#""lease_ms":1000"#, r#""lease_ms":0"#, "lease_ms"),
    (r#""protocol":3"#, r#""protocol":9"#, "version 9"),
    // A provider that nobody offered.
    (r#""source":"shm""#, r#""source":"ib""#, "ib"),
    (STREAM, "", "devices of Hello"),
    (r#""device":"cam""#, r#""device":"com""#, "devices of Hello"),
    (STREAM, STREAM_TWICE, "devices of Hello"),
    (r#""stream":0"#, r#""stream":4294967295"#, "stream 4294967295"),
    (NO_PACKET, r#""next_packet":18446744073709551615"#, "next_packet"),
    (NO_PACKET, r#""next_packet":9007199254740991"#, "packet number left"),
];
const NO_PACKET: &str = r#""next_packet":null"#;
const STREAM: &str = r#"{"device":"cam","stream":0,"next_packet":null}"#;
const STREAM_TWICE: &str = r#"{"device":"cam","stream":0,"next_packet":null},{"device":"cam","stream":0,"next_packet":null}"#;

/// Among others another number of blocks, another size of them, another layout hash (S1.1).
#[test]
fn a_welcome_that_cannot_be_is_refused_with_a_reason() {
    for (part, instead, wanted) in WRONG_WELCOMES {
        let lie = |fake: &Fake| {
            let part = part
                .replace("HASH", &format!("{:016x}", fake.layout.hash()))
                .replace("ADDR", &format!("{:016x}", fake.mr.addr()));
            let welcome = fake.welcome();
            assert!(welcome.contains(&part), "{part} is not in {welcome}");
            welcome.replace(&part, instead)
        };
        let at = serve(|| Fake::new(RingLayout::total_bytes), lie);
        let case = format!("{instead:?} for {part:?}");
        let error = try_source(&at, true).err().unwrap_or_else(|| panic!("{case}: connected"));
        assert!(error.to_string().contains(wanted), "{case}: {error}");
    }
}

/// Memory that cannot be reached may be that of a collector that has just ended: the source tries
/// again, says why when asked, and ends when told to (S1.1).
#[test]
fn memory_that_cannot_be_reached_is_tried_again() {
    type Lie = fn(&Fake) -> String;
    type Case = (&'static str, fn() -> Fake, Lie);
    let whole = || Fake::new(RingLayout::total_bytes);
    let small = || Fake::new(|layout| layout.total_bytes() / 2);
    let cases: [Case; 4] = [
        ("a key of nobody", whole, |f| {
            f.welcome().replace(&format!(r#""rkey":{}"#, f.mr.rkey()), r#""rkey":12345"#)
        }),
        ("a ring smaller than announced", small, Fake::welcome),
        ("an address beside the ring", whole, |f| {
            f.welcome()
                .replace(&format!("{:016x}", f.mr.addr()), &format!("{:016x}", f.mr.addr() + 64))
        }),
        ("a queue pair of nobody", whole, |f| {
            let qpn = f.qp.endpoint().qpn;
            f.welcome().replace(&format!(r#""qpn":{qpn}"#), &format!(r#""qpn":{}"#, qpn ^ 1))
        }),
    ];
    for (case, fake, lie) in cases {
        let at = serve(fake, lie);
        match try_source(&at, true) {
            Err(SourceError::Unreachable { reason, .. }) => {
                assert!(!reason.is_empty(), "{case}");
                println!("{case}: {reason}");
            }
            Err(SourceError::Refused { refusal, .. }) => println!("{case}: {refusal}"),
            Err(other) => panic!("{case}: {other}"),
            Ok(_) => panic!("{case}: connected"),
        }
        // With copies the memory is first used by the first frame; closing ends within its limit.
        if let Ok(source) = try_source(&at, false) {
            let mut device = source.device("cam").unwrap();
            let sending = std::thread::spawn(move || {
                device.frame(10).and_then(|frame| frame.send_bytes(&[1; 10])).is_ok()
            });
            let _ = source.close(Duration::from_millis(500));
            sending.join().unwrap();
        }
    }
}

/// A collector that takes nothing and fills the status bytes with anything.
#[test]
fn status_bytes_that_mean_nothing_neither_hang_a_source_nor_make_it_panic() {
    for in_place in [true, false] {
        let (listener, at) = listen();
        let (half, is_half) = std::sync::mpsc::channel();
        let serving = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let fake = Fake::new(RingLayout::total_bytes);
            let (mr, layout) = (fake.mr.clone(), fake.layout);
            let noise = std::thread::spawn(move || {
                let memory = mr.region().whole();
                for round in 0..600u32 {
                    if round == 300 {
                        half.send(()).unwrap();
                    }
                    for slot in 0..layout.blocks() as usize {
                        let byte = (round.wrapping_mul(97) + slot as u32 * 31) as u8;
                        memory.write_at(layout.free_offset() + slot, &[byte]).unwrap();
                    }
                    mr.notify();
                    // The pace of the attack.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            session(stream, fake, Fake::welcome);
            noise.join().unwrap();
        });
        let source = try_source(&at, in_place).unwrap();
        let mut device = source.device("cam").unwrap();
        let sending = std::thread::spawn(move || {
            let mut sent = 0;
            while let Ok(frame) = device.frame(100) {
                if frame.send_bytes(&[7; 100]).is_err() {
                    break;
                }
                sent += 1;
            }
            sent
        });
        is_half.recv().unwrap();
        let closed = source.close(Duration::from_millis(300));
        assert!(closed.is_err(), "nothing was acknowledged");
        println!("{} frames on {} status bytes of noise", sending.join().unwrap(), 600 * 8);
        serving.join().unwrap();
    }
}

#[test]
fn a_collector_that_says_nothing_or_nonsense_is_left_in_time() {
    for (case, answer) in [
        ("nothing", &b""[..]),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("4 GiB", &[0xff; 64]),
        ("Ready first", b"\0\0\0\x1a{\"type\":\"ready\",\"epoch\":7}"),
    ] {
        let (listener, at) = listen();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                let _ = stream.write_all(answer);
                held.push(stream);
            }
        });
        let error = try_source(&at, true).err().unwrap();
        println!("{case}: {error}");
    }
}
