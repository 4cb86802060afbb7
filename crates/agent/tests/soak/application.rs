//! The processes of a soak: applications that send, read and write and check every byte, and who they write to.
use catchment_agent::{AgentOptions, AgentProvider};
use catchment_probe::child::{hear, say};
use catchment_probe::random::Random;
use catchment_verbs::{
    Access, Completion, CompletionChannel, Context, Cq, Endpoint, Mr, Payload, Pd, Provider as _,
    Qp, QpInit, RecvWr, RemoteAddr, RtrAttr, RtsAttr, SendOp, SendWr, Sge,
};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of a WRITE at most, and how many a batch has at most.
const PIECE: usize = 64 << 10;
const PIECES: usize = 8;
const WHOLE: usize = PIECE * PIECES;
/// Bytes of a message at most.
const MESSAGE: usize = 16 << 10;
/// An application that waits for longer reports it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the time of the clock that all processes share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

type Outcome<T> = Result<T, String>;

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A queue pair and its memory.
struct End {
    qp: Box<dyn Qp>,
    mr: Arc<dyn Mr>,
    cq: Arc<dyn Cq>,
    channel: Arc<dyn CompletionChannel>,
    _pd: Arc<dyn Pd>,
}

impl End {
    fn open(context: &Arc<dyn Context>) -> Outcome<Self> {
        let pd = context.alloc_pd().map_err(text)?;
        let mr = pd.alloc_mr(2 * WHOLE, Access::LOCAL_WRITE | Access::REMOTE).map_err(text)?;
        let channel = context.create_channel().map_err(text)?;
        let cq = context.create_cq(64, Some(Arc::clone(&channel))).map_err(text)?;
        let qp = pd.create_qp(QpInit::rc(&cq, 16, 16)).map_err(text)?;
        Ok(Self { qp, mr, cq, channel, _pd: pd })
    }

    fn connect(&mut self, peer: Endpoint) -> Outcome<()> {
        let connected = self.qp.connect(Access::REMOTE, RtrAttr::new(peer), RtsAttr::default());
        connected.map_err(text)
    }

    fn card(&self) -> String {
        format!("{} {} {}\n", self.qp.endpoint(), self.mr.addr(), self.mr.rkey())
    }

    fn sge(&self, offset: usize, bytes: usize) -> Sge {
        Sge { addr: self.mr.addr() + offset as u64, bytes: bytes as u32, lkey: self.mr.lkey() }
    }

    fn post(&mut self, wr_id: u64, op: SendOp, sge: Sge) -> Outcome<()> {
        self.qp.post_send(&[SendWr::new(wr_id, op, Payload::Sges(&[sge]))]).map_err(text)
    }

    /// Waits for so many completions, all successes.
    fn complete(&self, mut count: usize) -> Outcome<()> {
        let began = Instant::now();
        let mut done = [Completion::EMPTY; 16];
        let poll = |done: &mut [Completion; 16]| -> Outcome<usize> {
            let found = self.cq.poll(done).map_err(text)?;
            let failed = done[..found].iter().find_map(|one| one.result.err());
            failed.map_or(Ok(found), |failure| Err(format!("{:?}", failure.status)))
        };
        while count > 0 {
            let mut found = poll(&mut done)?;
            if found == 0 {
                self.cq.req_notify(false);
                found = poll(&mut done)?;
            }
            if found == 0 {
                self.channel.wait(Duration::from_millis(100)).map_err(text)?;
            }
            count = count.saturating_sub(found);
            if began.elapsed() > PATIENCE {
                return Err(format!("nothing came for {PATIENCE:?}"));
            }
        }
        Ok(())
    }

    fn bytes(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.mr.region().slice(offset, bytes).map_or(Vec::new(), |slice| slice.to_vec())
    }

    fn put(&self, offset: usize, bytes: &[u8]) -> Outcome<()> {
        self.mr.region().whole().write_at(offset, bytes).map_err(text)
    }
}

fn read_card(text: &str) -> Option<(Endpoint, RemoteAddr)> {
    let mut words = text.split_whitespace();
    let endpoint = words.next()?.parse().ok()?;
    let (addr, rkey) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((endpoint, RemoteAddr { addr, rkey }))
}

fn open(application: &str, agent: &str) -> Outcome<Arc<dyn Context>> {
    let (agent, application) = (agent.to_owned(), application.to_owned());
    let options = AgentOptions { agent: agent.clone(), application };
    AgentProvider::new(options).open(&agent).map_err(text)
}

/// What an application tells when it is asked.
#[derive(Default)]
struct Told {
    batches: AtomicU64,
    /// How often its agent was lost, when last, and how that showed.
    lost: Mutex<(u64, u64, String)>,
    over: AtomicBool,
}

/// Works until it is told to end; after an error it connects to the next agent of the name.
pub(crate) fn be_application(name: &str, agent: &str, target: &str, seed: u64) {
    let told = Arc::new(Told::default());
    let answering = Arc::clone(&told);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if line == "count" {
                let batches = answering.batches.load(Ordering::Acquire);
                let (lost, at_ns, why) = answering.lost.lock().unwrap().clone();
                say(&format!("{batches} {lost} {at_ns} {why}"));
            }
        }
        answering.over.store(true, Ordering::Release);
    });
    let mut random = Random::new(seed);
    while !told.over.load(Ordering::Acquire) {
        let Ok(context) = open(name, agent) else {
            // The next agent is not there yet.
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        if let Err(why) = work(&context, target, &mut random, &told) {
            let mut lost = told.lost.lock().unwrap();
            *lost = (lost.0 + 1, now_ns(), why);
        }
    }
}

fn work(context: &Arc<dyn Context>, target: &str, random: &mut Random, told: &Told) -> Outcome<()> {
    let mut far = End::open(context)?;
    let mut control = TcpStream::connect(target).map_err(text)?;
    control.write_all(far.card().as_bytes()).map_err(text)?;
    let mut answer = String::new();
    BufReader::new(control.try_clone().map_err(text)?).read_line(&mut answer).map_err(text)?;
    let (theirs, memory) = read_card(&answer).ok_or_else(|| format!("the target: {answer}"))?;
    far.connect(theirs)?;
    let (mut one, mut two) = (End::open(context)?, End::open(context)?);
    one.connect(two.qp.endpoint())?;
    two.connect(one.qp.endpoint())?;
    while !told.over.load(Ordering::Acquire) {
        write_and_read(&mut far, memory, random)?;
        send(&mut one, &mut two, random)?;
        told.batches.fetch_add(1, Ordering::Release);
    }
    Ok(())
}

/// WRITEs pieces, and READs all of them back.
fn write_and_read(far: &mut End, memory: RemoteAddr, random: &mut Random) -> Outcome<()> {
    let pieces = 1 + random.index(PIECES);
    let mut bytes = vec![0; pieces * PIECE];
    random.fill(&mut bytes);
    far.put(0, &bytes)?;
    for piece in 0..pieces {
        let at = piece * PIECE;
        let remote = RemoteAddr { addr: memory.addr + at as u64, ..memory };
        far.post(1, SendOp::Write(remote), far.sge(at, PIECE))?;
    }
    far.post(2, SendOp::Read(memory), far.sge(WHOLE, bytes.len()))?;
    far.complete(pieces + 1)?;
    assert!(far.bytes(WHOLE, bytes.len()) == bytes, "what was read is not what was written");
    Ok(())
}

/// Sends a message to itself.
fn send(from: &mut End, to: &mut End, random: &mut Random) -> Outcome<()> {
    let mut bytes = vec![0; 1 + random.index(MESSAGE)];
    random.fill(&mut bytes);
    from.put(0, &bytes)?;
    let sges = [to.sge(0, MESSAGE)];
    to.qp.post_recv(&[RecvWr { wr_id: 3, sges: &sges }]).map_err(text)?;
    from.post(4, SendOp::Send, from.sge(0, bytes.len()))?;
    to.complete(1)?;
    from.complete(1)?;
    assert!(to.bytes(0, bytes.len()) == bytes, "what came is not what was sent");
    Ok(())
}

/// Has memory for each application that connects, until that hangs up.
pub(crate) fn be_target(agent: &str) {
    let context = open("target", agent).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    say(&listener.local_addr().unwrap().to_string());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let context = Arc::clone(&context);
            std::thread::spawn(move || {
                if let Err(why) = serve(&context, stream) {
                    println!("a connection of the target: {why}");
                }
            });
        }
    });
    while hear() != "end" {}
}

fn serve(context: &Arc<dyn Context>, mut stream: TcpStream) -> Outcome<()> {
    let mut lines = BufReader::new(stream.try_clone().map_err(text)?).lines();
    let Some(Ok(line)) = lines.next() else { return Ok(()) };
    let (theirs, _) = read_card(&line).ok_or("no card")?;
    let mut end = End::open(context)?;
    end.connect(theirs)?;
    stream.write_all(end.card().as_bytes()).map_err(text)?;
    // Until it hangs up.
    lines.for_each(drop);
    Ok(())
}
