//! A class whose late frames are dropped: which ones are, who is told, and that the others come.
use crate::{Log, PATIENCE, logged, logging};
use catchment::collector::Collector;
use catchment::session::io::{Address, ServerSecurity};
use catchment::source::{Device, DeviceSpec, Fallback, Source};
use catchment_controller::Service;
use catchment_controller::config::{Late, Settings};
use catchment_netns::wait_until;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const BYTES: usize = 256 << 10;
/// Older frames are late, and a controller believes no age above 10 s.
const DEADLINE: Duration = Duration::from_secs(9);

/// Whether a frame is as old as it may be, or new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Old,
    New,
}
use Is::{New, Old};

fn controller() -> Service {
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let mut settings = Settings::bottleneck(address, 400_000_000, None);
    settings.classes[1].late = Late::Drop;
    Service::start(settings, &ServerSecurity::default()).unwrap()
}

/// Devices and packet numbers of frames that were told as dropped.
type Told = Arc<Mutex<Vec<(String, u64)>>>;

fn source(collector: &str, service: &Service, told: &Told) -> Source {
    let told = told.clone();
    let builder = Source::builder(collector)
        .patience(PATIENCE)
        .controller(service.local().to_string(), Fallback::Stop)
        .on_missed(move |missed| {
            if missed.dropped {
                told.lock().unwrap().push((missed.device.to_owned(), missed.packet_number));
            }
        });
    let device = |name| DeviceSpec::new(name).frame_bytes(BYTES).deadline(DEADLINE);
    ["cam0", "cam1"]
        .into_iter()
        .fold(builder, |all, name| all.device(device(name)))
        .connect()
        .unwrap()
}

fn send(device: &mut Device, ages: &[Is]) {
    for age in ages {
        let mut frame = device.frame(BYTES).unwrap();
        let now = SystemTime::now();
        frame.set_capture_time(if *age == Old { now - 2 * DEADLINE } else { now });
        frame.send_bytes(&vec![1; BYTES]).unwrap();
    }
}

fn dropped(source: &Source) -> u64 {
    source.metrics().snapshot().totals.dropped_late
}

#[test]
fn late_frames_are_dropped_and_counted_and_all_others_come_in_order() {
    let (service, (log, collector)) = (controller(), logged());
    let told = Told::default();
    let source = source(&collector.local_addr().to_string(), &service, &told);
    let ages = [
        ("cam0", vec![New, Old, New, Old, Old, Old, New, Old]),
        ("cam1", vec![Old, Old, New, New, Old, New, New, New]),
    ];
    let (mut sent, mut late) = (BTreeMap::new(), Vec::new());
    for (name, ages) in ages {
        send(&mut source.device(name).unwrap(), &ages);
        let numbers = |age| (0..).zip(&ages).filter(move |(_, is)| **is == age).map(|(at, _)| at);
        sent.insert(name.to_owned(), numbers(New).collect::<Vec<u64>>());
        late.extend(numbers(Old).map(|at| (name.to_owned(), at)));
    }
    let report = source.close(PATIENCE).unwrap();
    let mut told = told.lock().unwrap().clone();
    told.sort();
    assert_eq!(told, late, "each once");
    let mut came = BTreeMap::<String, Vec<u64>>::new();
    for frame in log.lock().unwrap().iter() {
        came.entry(frame.device.clone()).or_default().push(frame.packet_number);
    }
    assert_eq!(came, sent, "the last ones of a device leave no gap behind");
    let totals = &report.totals;
    assert_eq!((totals.frames_sent, totals.dropped_late, totals.frames_lost), (16, 8, 0));
    assert!(totals.deadlines_missed >= 8);
    let at_collector = collector.stop().totals;
    assert_eq!((at_collector.frames_lost, at_collector.frames_received), (0, 8));
    assert_eq!(at_collector.source_dropped_reconnect, 8, "as the source reports");
}

#[test]
fn an_event_is_dropped_with_what_still_comes_of_it() {
    let (service, (log, collector)) = (controller(), logged());
    let told = Told::default();
    let source = source(&collector.local_addr().to_string(), &service, &told);
    let mut device = source.device("cam0").unwrap();
    device.event(4);
    send(&mut device, &[Old, New]);
    wait_until("what is there of it is dropped", || dropped(&source) == 2);
    send(&mut device, &[New, New]);
    wait_until("so is the rest", || dropped(&source) == 4);
    device.event(3);
    send(&mut device, &[New, New, New]);
    // One that never gets its second frame, and one that the next ends.
    device.event(2);
    send(&mut device, &[Old]);
    device.event(2);
    send(&mut device, &[New, New]);
    source.close(PATIENCE).unwrap();
    assert_eq!(collector.stop().totals.frames_lost, 0);
    let numbers: Vec<_> = log.lock().unwrap().iter().map(|frame| frame.packet_number).collect();
    assert_eq!(numbers, [4, 5, 6, 8, 9]);
    let told: Vec<_> = told.lock().unwrap().iter().map(|(_, number)| *number).collect();
    assert_eq!(told, [0, 1, 2, 3, 7]);
}

#[test]
fn what_was_dropped_is_not_missed_when_the_collector_starts_again() {
    let (service, (_, first)) = (controller(), logged());
    let address = first.local_addr().to_string();
    let told = Told::default();
    let source = source(&address, &service, &told);
    let (mut cam0, mut cam1) = (source.device("cam0").unwrap(), source.device("cam1").unwrap());
    send(&mut cam0, &[New, Old, Old]);
    send(&mut cam1, &[Old, Old]);
    wait_until("the old ones are dropped", || dropped(&source) == 4);
    first.stop();
    let log = Log::default();
    let second = Collector::builder(&*address).workers(2).on_frame(logging(&log)).start().unwrap();
    send(&mut cam0, &[New]);
    send(&mut cam1, &[Old, New]);
    let report = source.close(PATIENCE).unwrap();
    assert_eq!((report.totals.dropped_late, report.totals.frames_lost), (5, 0));
    assert_eq!(second.stop().totals.frames_lost, 0);
    let came: Vec<_> =
        log.lock().unwrap().iter().map(|f| (f.device.clone(), f.packet_number)).collect();
    for last in [("cam0".to_owned(), 3), ("cam1".to_owned(), 3)] {
        assert!(came.contains(&last), "{came:?}");
    }
}
