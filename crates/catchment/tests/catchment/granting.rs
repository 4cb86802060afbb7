//! A source, a transmission controller and a collector: what the application is told.
use crate::{PATIENCE, logged};
use catchment::session::io::{Address, ServerSecurity};
use catchment::source::{Device, DeviceSpec, Fallback, Source, Standing};
use catchment_controller::Service;
use catchment_controller::config::Settings;
use catchment_netns::wait_until;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// 256 KiB take 52 ms of it.
const CAPACITY_BPS: u64 = 40_000_000;
const BYTES: usize = 256 << 10;

fn controller() -> Service {
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let settings = Settings::bottleneck(address, CAPACITY_BPS, None);
    Service::start(settings, &ServerSecurity::default()).unwrap()
}

type Told = Arc<Mutex<Vec<(String, u64, SystemTime, Duration)>>>;

fn source(collector: &str, service: &Service, told: &Told) -> Source {
    source_of(collector, &service.local().to_string(), told)
}

fn source_of(collector: &str, controllers: &str, told: &Told) -> Source {
    let told = told.clone();
    Source::builder(collector)
        .patience(PATIENCE)
        .controller(controllers, Fallback::Stop)
        .device(DeviceSpec::new("hurry").frame_bytes(BYTES).deadline(Duration::from_millis(1)))
        .device(DeviceSpec::new("calm").frame_bytes(BYTES).deadline(Duration::from_secs(3600)))
        .on_missed(move |missed| {
            let device = missed.device.to_owned();
            told.lock().unwrap().push((device, missed.packet_number, missed.captured, missed.left));
            assert_ne!(missed.packet_number, 0, "a panic of the application ends nothing");
        })
        .connect()
        .unwrap()
}

#[test]
fn the_application_is_told_once_of_each_frame_that_comes_too_late() {
    let (service, (log, collector)) = (controller(), logged());
    let told = Told::default();
    let source = source(&collector.local_addr().to_string(), &service, &told);
    let before = SystemTime::now();
    for name in ["calm", "hurry"] {
        let mut device = source.device(name).unwrap();
        for byte in 0..3 {
            device.frame(BYTES).unwrap().send_bytes(&vec![byte; BYTES]).unwrap();
        }
    }
    let report = source.close(PATIENCE).unwrap();
    let mut told = told.lock().unwrap().clone();
    told.sort();
    let whose: Vec<_> = told.iter().map(|(name, number, ..)| (name.as_str(), *number)).collect();
    assert_eq!(whose, [("hurry", 0), ("hurry", 1), ("hurry", 2)]);
    for (.., captured, left) in &told {
        assert!(*captured >= before && *captured <= SystemTime::now());
        assert!(*left < PATIENCE, "{left:?}");
    }
    let missed = |name: &str| {
        report.devices.iter().find(|d| d.name == name).unwrap().counters.deadlines_missed
    };
    assert_eq!((missed("hurry"), missed("calm"), report.totals.deadlines_missed), (3, 0, 3));
    assert_eq!(collector.stop().totals.frames_lost, 0);
    assert_eq!(log.lock().unwrap().len(), 6, "late ones are sent too");
}

/// Shared memory takes a frame at once, but the link that is granted carries it in its time: two sources that always have
/// frames get no more than it carries, on a machine however fast.
#[test]
fn sources_in_shared_memory_share_what_the_link_carries() {
    const FRAMES: u8 = 8;
    let (service, (_log, collector)) = (controller(), logged());
    let (collector_at, service_at) =
        (collector.local_addr().to_string(), service.local().to_string());
    let began = Instant::now();
    let source = |name: &'static str| {
        let (collector_at, service_at) = (collector_at.clone(), service_at.clone());
        std::thread::spawn(move || {
            let source = Source::builder(collector_at)
                .patience(PATIENCE)
                .controller(&service_at, Fallback::Stop)
                .device(DeviceSpec::new(name).frame_bytes(BYTES))
                .connect()
                .unwrap();
            let mut device = source.device(name).unwrap();
            for byte in 0..FRAMES {
                device.frame(BYTES).unwrap().send_bytes(&vec![byte; BYTES]).unwrap();
            }
            source.close(PATIENCE).unwrap();
        })
    };
    let sources = ["one", "other"].map(source);
    sources.into_iter().for_each(|source| source.join().unwrap());
    let carried_bps = (2 * usize::from(FRAMES) * BYTES * 8) as f64 / began.elapsed().as_secs_f64();
    assert!(carried_bps <= 1.05 * CAPACITY_BPS as f64, "{carried_bps} of {CAPACITY_BPS} bit/s");
}

#[test]
fn how_a_source_stands_is_seen_from_outside_and_deadlines_are_watched_without_a_controller() {
    let (service, (_log, collector)) = (controller(), logged());
    let told = Told::default();
    let source = source(&collector.local_addr().to_string(), &service, &told);
    wait_until("it has registered", || source.standing() == Some(Standing::Granted));
    let since = source.metrics().snapshot().grant.unwrap().since_unix_ms;
    drop(service);
    let mut device = source.device("calm").unwrap();
    device.frame(BYTES).unwrap().send_bytes(&vec![1; BYTES]).unwrap();
    wait_until("nobody answers", || source.standing() == Some(Standing::Stopped));
    let now = source.metrics().snapshot().grant.unwrap();
    assert_eq!(now.blocks_waiting, 1);
    assert!(now.since_unix_ms >= since, "{now:?} after {since}");
    let mut hurry = source.device("hurry").unwrap();
    hurry.frame(BYTES).unwrap().send_bytes(&vec![1; BYTES]).unwrap();
    wait_until("its deadline is over", || !told.lock().unwrap().is_empty());
    let (name, number, _, left) = told.lock().unwrap()[0].clone();
    assert_eq!((name.as_str(), number, left), ("hurry", 0, Duration::ZERO));
    let alone = Source::builder(collector.local_addr().to_string())
        .patience(PATIENCE)
        .device(DeviceSpec::new("alone"))
        .connect()
        .unwrap();
    assert_eq!((alone.standing(), alone.metrics().snapshot().grant), (None, None));
}

#[test]
fn the_frames_of_an_event_are_one_transfer() {
    let (service, (log, collector)) = (controller(), logged());
    let told = Told::default();
    let source = source(&collector.local_addr().to_string(), &service, &told);
    let mut calm = source.device("calm").unwrap();
    let send = |device: &mut Device, frames| {
        (0..frames).for_each(|byte| {
            device.frame(BYTES).unwrap().send_bytes(&vec![byte; BYTES]).unwrap();
        });
    };
    send(&mut calm, 1);
    calm.event(4);
    send(&mut calm, 4);
    // The third never comes: the next event ends this one.
    calm.event(3);
    send(&mut calm, 2);
    calm.event(2);
    // Smaller ones than were asked for.
    calm.frame(BYTES).unwrap().send_bytes(&vec![1; BYTES]).unwrap();
    calm.frame(99).unwrap().send_bytes(&[2; 99]).unwrap();
    let mut hurry = source.device("hurry").unwrap();
    hurry.event(3);
    send(&mut hurry, 3);
    let ended = || {
        let class = &service.status().unwrap().classes[1];
        class.on_time + class.late
    };
    wait_until("the controller has served five transfers", || ended() == 5);
    let told_numbers: Vec<_> = told.lock().unwrap().iter().map(|told| told.1).collect();
    assert_eq!(told_numbers, [0, 1, 2], "an event that is late is late as a whole");
    source.close(PATIENCE).unwrap();
    assert_eq!((collector.stop().totals.frames_lost, log.lock().unwrap().len()), (0, 12));
    assert_eq!(ended(), 5, "and no more");
}

#[test]
fn frames_of_a_periodic_device_leave_without_asking() {
    let (service, (log, collector)) = (controller(), logged());
    let period = Duration::from_millis(100);
    let source = Source::builder(collector.local_addr().to_string())
        .patience(PATIENCE)
        .controller(service.local().to_string(), Fallback::Stop)
        .device(DeviceSpec::new("steady").frame_bytes(BYTES).periodic(BYTES, period))
        .device(DeviceSpec::new("greedy").frame_bytes(BYTES).periodic(BYTES, period))
        .connect()
        .unwrap();
    let granted = || service.status().unwrap().links[0].granted_bps;
    wait_until("one has a rate", || granted() >= BYTES as u64 * 80);
    assert!(granted() < BYTES as u64 * 160, "there is no room for both: {}", granted());
    let heard = || service.status().unwrap().datagrams.opened;
    let before = heard();
    wait_until("the source renews it", || heard() > before + 12);
    let ended = || {
        let class = &service.status().unwrap().classes[1];
        class.on_time + class.late
    };
    let mut there = 0;
    let mut send = |name: &str| {
        let mut device = source.device(name).unwrap();
        for _ in 0..4 {
            device.frame(BYTES).unwrap().send_bytes(&vec![1; BYTES]).unwrap();
            there += 1;
            wait_until("it is there", || log.lock().unwrap().len() == there);
        }
    };
    send("steady");
    assert_eq!(ended(), 0, "nobody was asked");
    send("greedy");
    wait_until("the other one asks for each", || ended() == 4);
    source.close(PATIENCE).unwrap();
    assert_eq!(collector.stop().totals.frames_lost, 0);
}

#[test]
fn one_controller_under_two_addresses_is_not_taken_for_two() {
    let (service, (log, collector)) = (controller(), logged());
    let address = service.local().to_string();
    let (_, port) = address.rsplit_once(':').unwrap();
    let controllers = format!("{address},localhost:{port}");
    let source = source_of(&collector.local_addr().to_string(), &controllers, &Told::default());
    let mut device = source.device("calm").unwrap();
    let mut send = |frames: usize| {
        let there = log.lock().unwrap().len() + frames;
        for _ in 0..frames {
            device.frame(BYTES).unwrap().send_bytes(&vec![1; BYTES]).unwrap();
        }
        wait_until("all are there", || log.lock().unwrap().len() == there);
        service.status().unwrap().datagrams.forged
    };
    // Under the second address the controller gave it other keys; from then on they stay.
    let forged = send(12);
    assert_eq!(send(12), forged, "it has not registered again");
    assert_eq!(service.status().unwrap().sources.len(), 1);
    source.close(PATIENCE).unwrap();
    assert_eq!(collector.stop().totals.frames_lost, 0);
}

/// A relay of connections, so that no datagram reaches what listens behind it.
fn without_datagrams(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (Ok(near), Ok(far)) = (near, TcpStream::connect(&to)) else { return };
            let ways = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
            for (from, to) in ways {
                let (mut from, mut to) = (from.unwrap(), to.unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

#[test]
fn grants_come_over_a_connection_where_no_datagram_passes() {
    let (service, (_log, collector)) = (controller(), logged());
    let controller = without_datagrams(service.local().to_string());
    let source = source_of(&collector.local_addr().to_string(), &controller, &Told::default());
    let mut device = source.device("calm").unwrap();
    for byte in 0..3 {
        device.frame(BYTES).unwrap().send_bytes(&vec![byte; BYTES]).unwrap();
    }
    let handle = service.handle();
    let carried = || {
        let streams = handle.explain("calm".parse().unwrap()).unwrap_or_default();
        streams.first().is_some_and(|stream| stream.carried)
    };
    wait_until("its messages go over a connection", carried);
    wait_until("it is granted", || source.standing() == Some(Standing::Granted));
    let report = source.close(PATIENCE).unwrap();
    assert_eq!(report.totals.frames_delivered, 3, "{report:?}");
    assert!(handle.status().unwrap().sources.iter().all(|source| source.carried));
}
