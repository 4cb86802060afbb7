//! One method under one load: starts the processes, waits, and counts.
use super::method::{Method, URGENT_DSCP};
use super::place::{Place, SOURCES};
use super::row::Row;
use super::talk::{Job, Report, SourceJob};
use crate::hop::PATH_MTU;
use crate::long::COMMAND;
use crate::stats::{decimals, percentile};
use crate::sys::{self, Traffic};
use anyhow::{Context as _, Result, anyhow, ensure};
use catchment_controller::Status;
use catchment_netns::{SharedLink, Star};
use catchment_perf::ChildProcess;
use catchment_sim::admission::{End, Judged, Trace};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CONTROL_PORT: u16 = 7118;
/// All sources begin together, so long after they were told.
const SET_UP: Duration = Duration::from_millis(300);
/// After the last event, for those that are late.
const DRAIN: Duration = Duration::from_secs(5);
/// Beyond what queues need: the rest of the way, and ends that take what came.
const EMPTIED_AT_LEAST: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(20);
/// Datagrams whose times are the round trip.
const TRIPS: usize = 21;

pub(super) struct Cell<'a> {
    pub(super) place: &'a Place,
    pub(super) link: &'a SharedLink,
    pub(super) method: Method,
    pub(super) load: f64,
    pub(super) trace: &'a Trace,
    pub(super) guard_us: u64,
}

/// Files of a cell; they go with the value.
struct Files(PathBuf);

impl Files {
    fn new() -> Result<Self> {
        let name = format!("catchment-wan-{}-{}", std::process::id(), sys::monotonic_ns());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What stays is in the folder for such files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The controller, and what it had used when the events began.
struct Controller {
    child: ChildProcess,
    address: SocketAddr,
    cpu_before_ns: u64,
    before: Option<Status>,
}

/// What was counted, since the machine or the network began or since an earlier count.
struct Counted {
    bottleneck_drops: u64,
    nic_drops: u64,
    /// Between namespaces.
    hosts: Option<Hosts>,
    softirq_ns: u64,
    at_ns: u64,
}

/// What the kernels of hosts counted: on this host it is that of all programs.
#[derive(Clone, Copy)]
struct Hosts {
    /// Datagrams that found the collector's socket full.
    socket_drops: u64,
    /// UDP datagrams that sources sent and the collector's host received, and TCP segments of all ends.
    datagrams: Traffic,
    segments: Traffic,
}

impl Hosts {
    fn count(star: &Star) -> Result<Self> {
        let (mut datagrams, mut segments) = star.collector.run(sys::datagrams_and_segments)??;
        // Where the kernel cuts what goes back to sources, many come of one that was sent.
        datagrams.sent = 0;
        for source in &star.sources {
            let (udp, tcp) = source.run(sys::datagrams_and_segments)??;
            datagrams.sent += udp.sent;
            segments += tcp;
        }
        let socket_drops = star.collector.run(sys::udp_socket_drops)??;
        Ok(Self { socket_drops, datagrams, segments })
    }

    fn since(self, before: Self) -> Self {
        Self {
            socket_drops: self.socket_drops - before.socket_drops,
            datagrams: self.datagrams.since(before.datagrams),
            segments: self.segments.since(before.segments),
        }
    }
}

impl Counted {
    fn since(&self, before: &Self) -> Self {
        Self {
            bottleneck_drops: self.bottleneck_drops - before.bottleneck_drops,
            nic_drops: self.nic_drops - before.nic_drops,
            hosts: self.hosts.zip(before.hosts).map(|(now, before)| now.since(before)),
            softirq_ns: self.softirq_ns - before.softirq_ns,
            at_ns: self.at_ns - before.at_ns,
        }
    }
}

impl Cell<'_> {
    pub(super) fn run(&self) -> Result<Row> {
        // Nothing is on its way.
        let first = self.count()?;
        let files = Files::new()?;
        let trace_path = files.write("trace.jsonl", &self.trace.lines())?;
        let mut controller =
            self.method.policy().map(|_| self.start_controller(&files)).transpose()?;
        let (mut collector, address) = self.start_collector()?;
        let rtt_ms = self.round_trip_ms()?;
        let mut sources = self.start_sources(&trace_path, address, controller.as_ref())?;
        let (softirq_ns, at_ns) = (sys::softirq_ns(), sys::monotonic_ns());
        if let Some(controller) = &mut controller {
            controller.cpu_before_ns = sys::cpu_ns_of(controller.child.id())?;
            controller.before = Some(self.status(controller.address)?);
        }
        let begin = sys::monotonic_ns() + SET_UP.as_nanos() as u64;
        for process in sources.iter_mut().chain([&mut collector]) {
            process.say(&format!("begin {begin}"))?;
        }
        // The time of the events.
        std::thread::sleep(SET_UP + Duration::from_secs(self.trace.seconds()));
        self.drain(&mut collector)?;
        let served = controller.as_ref().map(|controller| self.served(controller)).transpose()?;
        let sent = sources.iter_mut().map(report).collect::<Result<Vec<_>>>()?;
        // All that left is there or dropped by then.
        std::thread::sleep(self.emptied());
        let counted = self.count()?.since(&Counted { softirq_ns, at_ns, ..first });
        let collected = report(&mut collector)?;
        Ok(self.row(begin, rtt_ms, &counted, &collected, &sent, served))
    }

    fn start_controller(&self, files: &Files) -> Result<Controller> {
        let place = self.place;
        let (capacity_bps, nic_bps) = (place.capacity_bps(), place.nic_bps());
        let (chunk_kib, queue_bytes) = (place.chunk_kib(), place.queue_bytes());
        let method = self.method;
        let config = method.config(capacity_bps, nic_bps, chunk_kib, queue_bytes, self.guard_us);
        let path = files.write("control.toml", &config)?;
        let address = self.link.controller(place.ipv6, CONTROL_PORT)?;
        let program = std::env::current_exe()?;
        let started = self.link.at_collector(|| {
            let mut command = Command::new(program);
            command.arg0(COMMAND).args(["control", "--insecure", "--until-stdin-closes"]);
            command.args(["--listen", &address.to_string(), "--config"]).arg(path);
            command.stdin(Stdio::piped()).stderr(Stdio::null());
            ChildProcess::start("the controller", &mut command)
        })?;
        let (child, limit) = (started?, Instant::now() + PATIENCE);
        while self.link.at_collector(|| TcpStream::connect(address))?.is_err() {
            ensure!(Instant::now() < limit, "the controller does not listen at {address}");
            // Its file, then its socket: no event says so.
            std::thread::sleep(LOOK);
        }
        Ok(Controller { child, address, cpu_before_ns: 0, before: None })
    }

    fn start_collector(&self) -> Result<(ChildProcess, SocketAddr)> {
        let job = Job::Collector {
            listen: SocketAddr::new(self.link.collector(self.place.ipv6), 0).to_string(),
            tcp: self.method.congestion().is_some(),
            frame_bytes: self.place.frame_bytes() as usize,
            port: self.link.collector_port(),
        };
        let mut command = role(&job)?;
        let start = || ChildProcess::start("the collector", &mut command);
        let mut collector = self.link.at_collector(start)??;
        let address = collector.wait_for(|_| true)?.trim().parse()?;
        Ok((collector, address))
    }

    fn start_sources(
        &self,
        trace: &Path,
        collector: SocketAddr,
        controller: Option<&Controller>,
    ) -> Result<Vec<ChildProcess>> {
        let cores = sys::cores()?;
        let start = |at: u8| -> Result<ChildProcess> {
            let device = u32::from(at);
            let is_urgent = device == 0 && self.method == Method::Spq;
            let job = SourceJob {
                device,
                trace: trace.to_owned(),
                frame_bytes: self.place.frame_bytes() as usize,
                collector: collector.to_string(),
                controller: controller.map(|controller| controller.address.to_string()),
                by_event: self.method == Method::Deadline,
                blocks: self.method.blocks(),
                rate_max_bps: self.place.nic_bps(),
                traffic_class: if is_urgent { URGENT_DSCP << 2 } else { 0 },
                congestion: self.method.congestion().map(str::to_owned),
                via: self.link.via(at),
            };
            // On several, its packets would overtake each other behind its NIC.
            let core = cores[device as usize % cores.len()];
            let mut command = role(&Job::Source(job))?;
            // On a thread that ends after that.
            let start = || -> Result<ChildProcess> {
                sys::pin(core)?;
                Ok(ChildProcess::start("a source", &mut command)?)
            };
            let alone = || std::thread::scope(|scope| scope.spawn(start).join());
            self.link.at_source(at, alone)?.map_err(|_| anyhow!("a thread panicked"))?
        };
        let mut sources = (0..SOURCES).map(start).collect::<Result<Vec<_>>>()?;
        for source in &mut sources {
            source.wait_for(|line| line == "ready")?;
        }
        Ok(sources)
    }

    /// Returns the median time of a datagram to a program beside the collector and back, with nothing on the way.
    fn round_trip_ms(&self) -> Result<f64> {
        let bind = |at: IpAddr| -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind((at, 0))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        };
        let (link, last, ipv6) = (self.link, SOURCES - 1, self.place.ipv6);
        let near = link.at_source(last, || bind(link.source(last, ipv6)))??;
        let far = link.at_collector(|| bind(link.collector(ipv6)))??;
        near.connect(far.local_addr()?)?;
        let echo = std::thread::spawn(move || -> std::io::Result<()> {
            for _ in 0..TRIPS {
                let (bytes, from) = far.recv_from(&mut [0; 8])?;
                far.send_to(&[0; 8][..bytes], from)?;
            }
            Ok(())
        });
        let trip = || {
            let begin = Instant::now();
            near.send(&[0; 8])?;
            near.recv(&mut [0; 8])?;
            Ok(begin.elapsed().as_secs_f64() * 1e3)
        };
        let times = (0..TRIPS).map(|_| trip()).collect::<std::io::Result<Vec<_>>>()?;
        echo.join().map_err(|_| anyhow!("a thread panicked"))??;
        Ok(percentile(&times, 0.5))
    }

    /// Waits until all is there, or for as long as that may take.
    fn drain(&self, collector: &mut ChildProcess) -> Result<()> {
        let expected: u64 = self.trace.events().iter().map(|event| event.frames).sum();
        let limit = Instant::now() + DRAIN;
        while Instant::now() < limit {
            collector.say("count")?;
            if collector.wait_for(|_| true)?.trim().parse::<u64>()? >= expected {
                break;
            }
            // The collector says what is there when it is asked.
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Returns after what time all queues of the network are empty, once nothing is sent any more; and again as long.
    fn emptied(&self) -> Duration {
        let (queue_bits, capacity_bps) = (8 * self.place.queue_bytes(), self.place.capacity_bps());
        EMPTIED_AT_LEAST + 2 * Duration::from_secs_f64(queue_bits as f64 / capacity_bps as f64)
    }

    fn count(&self) -> Result<Counted> {
        let hosts = match self.link {
            SharedLink::Namespaces(star) => Some(Hosts::count(star)?),
            SharedLink::Relay(_) => None,
        };
        Ok(Counted {
            bottleneck_drops: self.link.drops()?,
            nic_drops: self.link.nic_drops()?,
            hosts,
            softirq_ns: sys::softirq_ns(),
            at_ns: sys::monotonic_ns(),
        })
    }

    fn status(&self, controller: SocketAddr) -> Result<Status> {
        let program = std::env::current_exe()?;
        let asked = self.link.at_collector(|| {
            let mut command = Command::new(program);
            command.arg0(COMMAND).args(["control", "status", "--json", "--insecure"]);
            command.arg(controller.to_string()).output()
        })??;
        let text = String::from_utf8_lossy(&asked.stdout);
        serde_json::from_str(text.trim()).with_context(|| {
            format!("status of the controller: {text}{}", String::from_utf8_lossy(&asked.stderr))
        })
    }

    /// Returns what the controller did since the beginning.
    fn served(&self, controller: &Controller) -> Result<Served> {
        let cpu_ns = sys::cpu_ns_of(controller.child.id())? - controller.cpu_before_ns;
        let now = self.status(controller.address)?;
        let transfers = |status: &Status| -> u64 {
            status.classes.iter().map(|class| class.on_time + class.late).sum()
        };
        let messages = |status: &Status| status.datagrams.opened + status.datagrams.sent;
        let more =
            |of: &dyn Fn(&Status) -> u64| of(&now) - controller.before.as_ref().map_or(0, of);
        Ok(Served { cpu_ns, transfers: more(&transfers), messages: more(&messages) })
    }

    fn row(
        &self,
        begin_ns: u64,
        rtt_ms: f64,
        counted: &Counted,
        collected: &Report,
        sent: &[Report],
        served: Option<Served>,
    ) -> Row {
        let (place, trace, method) = (self.place, self.trace, self.method);
        let ends = self.ends(begin_ns, collected, sent);
        let simulated = self.simulated(rtt_ms);
        let is_roce = method.congestion().is_none();
        let roce_hosts = counted.hosts.filter(|_| is_roce);
        let sum = |of: fn(&Report) -> u64| is_roce.then(|| sent.iter().map(of).sum::<u64>());
        let per_gb = |ns: u64| collected.seconds_per_gb(ns);
        let round = |value: Option<f64>| value.map(|value| decimals(value, 4));
        let seconds = counted.at_ns as f64 / 1e9;
        let frames: u64 = trace.events().iter().map(|event| event.frames).sum();
        let sources_ns: u64 = sent.iter().map(|report| report.cpu_ns).sum();
        let cpu_ns = collected.cpu_ns + sources_ns + served.map_or(0, |served| served.cpu_ns);
        Row {
            what: "cell",
            place: self.link.name(),
            method: method.to_string(),
            calibration: "none",
            pause: (method == Method::Deadline).then_some("confirmed"),
            scale: 1.0 / place.scale as f64,
            ipv6: place.ipv6,
            nic_bps: place.nic_bps(),
            capacity_bps: place.capacity_bps(),
            nic_shaper_bps: place.shaper_bps(place.nic_bps()),
            shaper_bps: place.shaper_bps(place.capacity_bps()),
            path_mtu: is_roce.then_some(PATH_MTU),
            queue_bytes: place.queue_bytes(),
            guard_us: method.policy().map(|_| self.guard_us),
            rtt_ms: decimals(rtt_ms, 3),
            mix: "events",
            load: decimals(self.load, 4),
            load_drawn: decimals(trace.load(), 4),
            seeds: 1,
            seconds: trace.seconds(),
            judged: trace.judge(&ends),
            missed_held_back: trace.held_back(&ends, place.nic),
            urgent_events: trace.events_of(0),
            keeps_order: self.link.keeps_order(),
            packets_dropped: counted.bottleneck_drops,
            nic_packets_dropped: counted.nic_drops,
            socket_packets_dropped: counted.hosts.map(|hosts| hosts.socket_drops),
            sequence_gaps: collected.sequence_naks_sent,
            packets_missing: roce_hosts.map(|hosts| hosts.datagrams.missing()),
            segments_missing: roce_hosts.map(|hosts| hosts.segments.missing()),
            frames_lost: collected.frames_lost,
            frames_not_there: frames.saturating_sub(collected.came.len() as u64),
            operations_failed: sum(|report| report.reconnects),
            resent_fraction: round(sum(|report| report.retransmitted).map(|resent| {
                resent as f64 / sum(|report| report.packets_sent).unwrap_or(0).max(1) as f64
            })),
            timeouts: sum(|report| report.timeouts),
            messages_per_event: round(
                served.map(|served| served.messages as f64 / trace.events().len() as f64),
            ),
            transfers: served.map(|served| served.transfers),
            cpu_s_per_gb_collector: round(per_gb(collected.cpu_ns)),
            cpu_s_per_gb_source: round(per_gb(sources_ns)),
            cpu_s_per_gb_softirq: round(per_gb(counted.softirq_ns)),
            cpu_controller: round(served.map(|served| served.cpu_ns as f64 / 1e9 / seconds)),
            cpu_us_per_grant: round(served.map(Served::cpu_us_per_transfer)),
            cpu_cores: decimals(cpu_ns as f64 / 1e9 / seconds, 4),
            on_time_simulated: round(simulated.map(|simulated| simulated.tolerant_on_time_event)),
            urgent_ms_p95_simulated: round(simulated.and_then(|simulated| simulated.urgent_ms_p95)),
        }
    }

    /// Returns what the simulator makes of the same events, where the method has a controller.
    fn simulated(&self, rtt_ms: f64) -> Option<Judged> {
        let (guard_ns, rtt_ns) = (self.guard_us * 1000, (rtt_ms * 1e6) as u64);
        let policy = self.method.policy()?;
        Some(self.trace.simulate(policy, self.place.nic, guard_ns, rtt_ns))
    }

    /// Returns what became of each event of the trace.
    fn ends(&self, begin_ns: u64, collected: &Report, sent: &[Report]) -> Vec<End> {
        let mut counts = [0; SOURCES as usize];
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); SOURCES as usize];
        let mut ends: Vec<End> = Vec::new();
        for (at, event) in self.trace.events().iter().enumerate() {
            let device = event.device as usize;
            let told = sent.get(device).is_some_and(|one| one.told.contains(&counts[device]));
            let begun_ns = sent.get(device).and_then(|one| one.begun_ns.get(counts[device]));
            let begun_ns = begun_ns.map(|at_ns| at_ns.saturating_sub(begin_ns));
            ends.push(End { begun_ns, frames_ns: Vec::new(), told });
            places[device].push(at);
            counts[device] += 1;
        }
        for came in &collected.came {
            let of_device = places.get(came.device as usize);
            let at = of_device.and_then(|places| places.get(came.event as usize));
            if let Some(end) = at.and_then(|at| ends.get_mut(*at)) {
                end.frames_ns.push(came.at_ns.saturating_sub(begin_ns));
            }
        }
        ends
    }
}

/// What a controller did.
#[derive(Debug, Clone, Copy)]
struct Served {
    cpu_ns: u64,
    transfers: u64,
    messages: u64,
}

impl Served {
    fn cpu_us_per_transfer(self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.transfers.max(1) as f64
    }
}

/// Returns the command of a role; it ends with this process.
fn role(job: &Job) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("wan-role").arg(serde_json::to_string(job)?).stdin(Stdio::piped());
    Ok(command)
}

fn report(process: &mut ChildProcess) -> Result<Report> {
    process.say("report")?;
    Ok(serde_json::from_str(&process.wait_for(|_| true)?)?)
}
