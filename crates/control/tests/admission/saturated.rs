//! Sources that want more than their link carries, for good: each always has frames that wait.
use crate::harness::{Harness, MS, MS_AT_10, one_link, spec, transfer};
use catchment_control::admission::*;
use std::collections::{BTreeMap, BTreeSet};

const SECOND: u64 = 1000 * MS;
/// Blocks of a source: as many of its frames wait, are on their way, or wait at the collector for an older one.
const BLOCKS: u64 = 8;
/// What a frame takes on the link.
const FRAME_MS: u64 = 100;

/// What a camera has: the collector hands its frames out in order, and only then is there room for the next.
#[derive(Default)]
struct Camera {
    requested: u64,
    arrived: BTreeSet<u64>,
    handed_out: u64,
    /// When a frame was handed out.
    times_ns: Vec<u64>,
}

/// Cameras on a link that each of them would fill.
struct Cameras {
    harness: Harness,
    cameras: BTreeMap<u32, Camera>,
    /// When what was granted will have been sent.
    ends: BTreeSet<(u64, TransferId)>,
}

impl Cameras {
    fn start(weights: &[u32]) -> Self {
        let mut config = one_link(Rules::deadline());
        config.rules.shares = Some(Shares::default());
        config.links[0] = LinkConfig::new(10_000_000_000);
        let harness = Harness::new(config);
        let mut cameras = Self { harness, cameras: BTreeMap::new(), ends: BTreeSet::new() };
        for (device, weight) in (1..).zip(weights) {
            let spec = DeviceSpec { weight: *weight, ..spec(1, 10_000_000_000) };
            cameras.harness.handle(0, Input::Register { device: DeviceId(device), spec });
            cameras.cameras.insert(device, Camera::default());
            (0..BLOCKS).for_each(|_| cameras.ask(0, device));
        }
        cameras
    }

    /// Asks for the next frame of a camera.
    fn ask(&mut self, now_ns: u64, device: u32) {
        let camera = self.cameras.get_mut(&device).expect("a camera");
        camera.requested += 1;
        let id = transfer(device, camera.requested);
        self.harness.request(now_ns, id, FRAME_MS * MS_AT_10);
        self.note_grants();
    }

    fn note_grants(&mut self) {
        for output in &self.harness.said {
            if let Output::Grant { transfer, grant } = output {
                self.ends.retain(|(_, known)| known != transfer);
                self.ends.insert((grant.from_ns + FRAME_MS * MS, *transfer));
            }
        }
    }

    /// Lets the cameras send until a time.
    fn run(&mut self, until_ns: u64) {
        loop {
            let end = self.ends.first().copied();
            let due_ns = self.harness.next_ns.unwrap_or(u64::MAX);
            let now_ns = end.map_or(due_ns, |(end_ns, _)| end_ns.min(due_ns));
            if now_ns > until_ns {
                return;
            }
            match end.filter(|(end_ns, _)| *end_ns <= now_ns) {
                Some((_, id)) => self.arrive(now_ns, id),
                None => {
                    self.harness.timeout(now_ns);
                    self.note_grants();
                }
            }
        }
    }

    fn arrive(&mut self, now_ns: u64, id: TransferId) {
        self.ends.pop_first();
        self.harness.done(now_ns, id);
        self.note_grants();
        let camera = self.cameras.get_mut(&id.device.0).expect("a camera");
        camera.arrived.insert(id.number);
        let before = camera.handed_out;
        while camera.arrived.remove(&(camera.handed_out + 1)) {
            camera.handed_out += 1;
            camera.times_ns.push(now_ns);
        }
        let room = camera.handed_out - before;
        (0..room).for_each(|_| self.ask(now_ns, id.device.0));
    }

    /// Returns how many frames of each camera were handed out, and the longest time without one.
    fn judge(&self, until_ns: u64) -> Vec<(u64, u64)> {
        let judge = |camera: &Camera| {
            let times_ns = camera.times_ns.iter().copied();
            let steps = std::iter::once(0).chain(times_ns.clone()).zip(times_ns.chain([until_ns]));
            (camera.handed_out, steps.map(|(from_ns, to_ns)| to_ns - from_ns).max().unwrap_or(0))
        };
        self.cameras.values().map(judge).collect()
    }
}

#[test]
fn no_camera_of_a_link_that_is_full_for_good_stands_still() {
    for cameras in [2, 3, 6] {
        let mut all = Cameras::start(&vec![1; cameras]);
        all.run(120 * SECOND);
        let judged = all.judge(120 * SECOND);
        let fair = 120 * 1000 / FRAME_MS / cameras as u64;
        for (frames, longest_ns) in &judged {
            assert!(*frames * 10 > fair * 8, "of {fair} frames: {judged:?}");
            let turns_ns = 2 * SECOND * cameras as u64;
            assert!(*longest_ns < turns_ns, "{cameras} cameras: {judged:?}");
        }
    }
}

#[test]
fn cameras_of_a_full_link_get_by_their_weights() {
    let mut all = Cameras::start(&[3, 1]);
    all.run(240 * SECOND);
    let judged = all.judge(240 * SECOND);
    let ratio = judged[0].0 as f64 / judged[1].0 as f64;
    assert!((2.5..3.5).contains(&ratio), "{judged:?}");
}

#[test]
fn one_that_gives_way_to_a_late_one_is_explained() {
    let mut all = Cameras::start(&[]);
    let harness = &mut all.harness;
    for device in [1, 2] {
        let spec = spec(1, 10_000_000_000);
        harness.handle(0, Input::Register { device: DeviceId(device), spec });
    }
    // Camera 1 always has a frame that is in time, and camera 2 one that is late.
    let start_ns = 5 * SECOND;
    harness.request(start_ns, transfer(1, 1), FRAME_MS * MS_AT_10);
    let late = transfer(2, 1);
    let input = Input::Request { transfer: late, bytes: FRAME_MS * MS_AT_10, age_ns: 2 * SECOND };
    harness.handle(start_ns, input);
    for number in 1..100 {
        let now_ns = start_ns + number * FRAME_MS * MS;
        harness.request(now_ns - 50 * MS, transfer(1, number + 1), FRAME_MS * MS_AT_10);
        harness.done(now_ns, transfer(1, number));
        if harness.grant_of(late).is_some() {
            let told = harness.controller.explain(DeviceId(1)).expect("one that waits");
            assert!(told.is_surplus && !told.is_demoted, "{told:?}");
            assert!(number > 10, "only who is a second of the link ahead gives way: {number}");
            return;
        }
    }
    panic!("the late one is never served");
}
