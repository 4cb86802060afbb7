//! Clients connect, exchange messages with every byte checked, end or are killed, and others follow:
//! their server is as it was before the first of them (S3.16).
//!
//! Three seconds over each provider. `cargo xtask soak duplex` runs it for hours over one of them, with a row
//! a minute in a file ([`Rows`]).
use super::death::start;
use super::talk::{answer, ask_while, write_and_read_back};
use super::*;
use catchment_probe::child::{Child, say};
use catchment_probe::load::scaled;
use catchment_probe::random::Random;
use catchment_verbs::Access;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

const CLIENTS: u64 = 6;
const BLOCKS: u32 = 8;
const PAYLOAD_BYTES: u32 = 16_384;
/// Messages between two WRITEs and READs of a client.
const ONE_SIDED_EVERY: u64 = 64;
/// Memory growth attributed to chance, and the growth allowed in an hour.
const GROWTH_MIB: f64 = 1.0;
/// The one provider to run over, and the file that gets the rows.
const PROVIDER: &str = "CATCHMENT_SOAK_PROVIDER";
const ROWS: &str = "CATCHMENT_SOAK_ROWS";
/// Fewest samples of the memory that are judged.
const SAMPLES: usize = 40;

#[test]
fn s3_16_a_server_is_as_before_when_clients_came_went_and_were_killed() {
    let only = std::env::var(PROVIDER).ok();
    let providers = ["shm", "roce"].into_iter();
    for provider in providers.filter(|one| only.as_deref().is_none_or(|only| only == *one)) {
        // A process of its own: its memory, descriptors and threads are the server's.
        let said = start(&format!("soak {provider}")).says("as before: ");
        println!("{provider}: {said}");
    }
}

/// Speaks until its standard input ends.
pub(crate) fn talk(provider: Opener, address: SocketAddr, number: u32) {
    let mut link = connect(address, provider(), &options(BLOCKS, PAYLOAD_BYTES, "soak")).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    ask_while(&mut link, number, PAYLOAD_BYTES as usize, u64::from(BLOCKS), |link, said| {
        if said % ONE_SIDED_EVERY == 1 {
            write_and_read_back(link, said as u8 ^ number as u8);
        }
        !ended.load(Ordering::Relaxed)
    });
    link.finish(PATIENCE).unwrap();
}

/// The server, which starts its clients and kills some.
pub(crate) fn serve_and_strike(provider: &str, open: &Opener) {
    let options = options(BLOCKS, PAYLOAD_BYTES, "soak");
    let talked = Arc::new([const { AtomicU64::new(0) }; 2]);
    let counted = Arc::clone(&talked);
    let served = serve(open(), &options, move |_, link: &mut Link| {
        let result = answer(link, PAYLOAD_BYTES as usize);
        counted[0].fetch_add(link.counts().came, Ordering::Relaxed);
        counted[1].fetch_add(link.counts().came_bytes, Ordering::Relaxed);
        result
    });
    // What a process sets up once, with its first registered memory, is no client's.
    drop(open().alloc_pd().unwrap().alloc_mr(4096, Access::empty()).unwrap());
    let mut rows = Rows::open();
    let before = held(&served);
    let start_client = |number| start(&format!("talker {provider} {} {number}", served.address));
    let mut clients: Vec<Child> = (0..CLIENTS).map(start_client).collect();
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut killed, mut ended) = (0, 0);
    let mut memory = Vec::new();
    let (start, length) = (Instant::now(), Duration::from_secs(scaled(3)));
    while start.elapsed() < length {
        // The clients talk meanwhile.
        std::thread::sleep(Duration::from_millis(random.below(600)));
        clients.iter_mut().for_each(Child::demand_running);
        let mut client = clients.swap_remove(random.below(CLIENTS) as usize);
        if random.below(10) < 6 {
            client.kill();
            killed += 1;
        } else {
            client.end();
            ended += 1;
        }
        clients.push(start_client(CLIENTS + killed + ended));
        served.census.take_log();
        memory.push(resident_mib());
        let talked = talked.each_ref().map(|count| count.load(Ordering::Relaxed));
        rows.note(resident_mib(), talked, [killed, ended, served.server.counts().failed]);
    }
    clients.into_iter().for_each(|mut client| client.end());
    demand_as_before(&served, before);
    let counts = served.server.stop();
    assert_eq!(counts.served, ended + CLIENTS, "{counts:?}");
    assert!(counts.failed <= killed, "{killed} were killed: {counts:?}");
    let grown = demand_flat(&memory, length);
    say(&format!("as before: {killed} killed, {counts:?}, memory grew by {grown:.2} MiB"));
}

/// A row a minute in the file of [`ROWS`], behind those of runs before: whatever ends a run, what was done until
/// then counts. Without the file nothing happens.
struct Rows {
    file: Option<File>,
    /// Names the run: when it began, in seconds of the clock of the wall.
    run: u64,
    begin: Instant,
    next: Duration,
}

impl Rows {
    /// The columns.
    const HEAD: &str = "run,unix_s,seconds,resident_mib,messages,bytes,killed,ended,failed\n";

    fn open() -> Self {
        let file = std::env::var_os(ROWS).map(|path| {
            let mut file = File::options().create(true).append(true).open(path).unwrap();
            if file.metadata().unwrap().len() == 0 {
                file.write_all(Self::HEAD.as_bytes()).unwrap();
            }
            file
        });
        Self { file, run: unix_s(), begin: Instant::now(), next: Duration::ZERO }
    }

    fn note(&mut self, mib: f64, [messages, bytes]: [u64; 2], [killed, ended, failed]: [u64; 3]) {
        let (Some(file), run, since) = (&mut self.file, self.run, self.begin.elapsed()) else {
            return;
        };
        if since < self.next {
            return;
        }
        // Not one for each minute in which the machine stood still.
        self.next = since + Duration::from_secs(60);
        let (now, seconds) = (unix_s(), since.as_secs_f64());
        let row = format!(
            "{run},{now},{seconds:.1},{mib:.3},{messages},{bytes},{killed},{ended},{failed}\n"
        );
        // In one piece: a run may end at any moment.
        file.write_all(row.as_bytes()).unwrap();
    }
}

fn unix_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Clients, objects of the device, descriptors, threads and mappings of memory files.
fn held(served: &Served) -> [usize; 5] {
    let entries = |folder| fs::read_dir(folder).unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    [
        served.server.counts().present as usize,
        served.census.total() as usize,
        entries("/proc/self/fd"),
        entries("/proc/self/task"),
        maps.lines().filter(|line| line.contains("/memfd:")).count(),
    ]
}

/// What the descriptors of this process are of.
fn open_files() -> Vec<PathBuf> {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    files.filter_map(|file| fs::read_link(file.unwrap().path()).ok()).collect()
}

fn demand_as_before(served: &Served, before: [usize; 5]) {
    let start = Instant::now();
    loop {
        let now = held(served);
        if now.iter().zip(before).all(|(now, before)| *now <= before) {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "clients, objects, descriptors, threads, mappings: {now:?}, before {before:?}: {:?}",
            open_files()
        );
        // The server checks for dead clients ten times a second.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Resident memory, shared memory included.
fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// Compares the last quarter with the second one: in the first, allocators and tables fill.
fn demand_flat(memory: &[f64], length: Duration) -> f64 {
    let quarter = memory.len() / 4;
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let grown = mean(&memory[3 * quarter..]) - mean(&memory[quarter..2 * quarter]);
    let allowed = GROWTH_MIB.max(GROWTH_MIB * length.as_secs_f64() / 3600.0 / 2.0);
    assert!(
        memory.len() < SAMPLES || grown <= allowed,
        "the server's memory grew by {grown:.2} MiB"
    );
    grown
}

#[test]
fn growth_is_distinguished_from_warm_up_and_chance() {
    let hour = Duration::from_secs(3600);
    let grown = |mib: fn(f64) -> f64| {
        let samples: Vec<f64> = (0..60).map(|minute| mib(f64::from(minute))).collect();
        std::panic::catch_unwind(|| demand_flat(&samples, hour))
    };
    assert_eq!(grown(|_| 9.0).unwrap(), 0.0);
    assert!(grown(|minute| if minute < 10.0 { minute } else { 10.0 }).is_ok());
    assert!(grown(|minute| 9.0 + minute % 3.0).is_ok());
    assert!(grown(|minute| 9.0 + minute / 20.0).is_err());
}
