//! What order of service promises those who ask one short request at a time beside one who fills the window.
use super::{CHUNK, busy};
use catchment_agent::scheduler::{ApplicationId, Chunk, ConnectionId, Scheduler};
use std::collections::VecDeque;

const SHORT: u64 = 64;

/// A device that is done with one long chunk after another, and with a short request together with one.
struct Device {
    scheduler: Scheduler,
    long: ApplicationId,
    short: ApplicationId,
    connection: ConnectionId,
    flying: VecDeque<Chunk>,
}

impl Device {
    /// With shares of so much for the long requests and the short ones; no short one asks yet.
    fn new(shares: [f64; 2]) -> Self {
        let window = 2 * u64::from(CHUNK);
        let (mut scheduler, ids) = busy(&shares[..1], window, 10_000, u64::from(CHUNK));
        let (long, short) = (ids[0], scheduler.add_application());
        if shares[1] > 0.0 {
            scheduler.set_shares(&[(long, shares[0]), (short, shares[1])]);
        }
        let connection = scheduler.add_connection(short, 1);
        Self { scheduler, long, short, connection, flying: VecDeque::new() }
    }

    /// Serves all that may go, short requests again and again, until the device is done with so many long chunks; returns how
    /// many short ones were served meanwhile.
    fn pass(&mut self, chunks: usize) -> u64 {
        let before = self.scheduler.served(self.short).chunks;
        for _ in 0..chunks {
            // A round begins while none of the short ones waits, if the last one was served.
            let mut was_served = self.serve();
            if self.scheduler.waiting(self.short) == 0 {
                self.scheduler.push(self.connection, SHORT, false);
            }
            was_served |= self.serve();
            if was_served {
                self.scheduler.done(self.connection, SHORT);
            }
            let done = self.flying.pop_front().expect("the window is full");
            self.scheduler.done(done.connection, done.bytes);
        }
        self.scheduler.served(self.short).chunks - before
    }

    /// Serves all that may go; returns whether a short request was among that.
    fn serve(&mut self) -> bool {
        let mut any = false;
        while let Some(chunk) = self.scheduler.next_chunk() {
            if chunk.connection == self.connection {
                any = true;
            } else {
                self.flying.push_back(chunk);
            }
        }
        any
    }
}

/// Whose share gives one request for each chunk of the other has that, although he has nothing to send when rounds begin; whose
/// gives less has no more.
#[test]
fn who_asks_one_at_a_time_has_his_part_of_each_round() {
    // A request is paid for in a round, and a little less than half of the next one.
    let mut device = Device::new([f64::from(CHUNK), 0.7 * SHORT as f64]);
    device.pass(10);
    let served = device.pass(1000);
    assert!((690..=710).contains(&served), "{served} with 1,000 chunks of the other");
    // More than one for each chunk: the next one comes with the next chunk.
    let mut device = Device::new([f64::from(CHUNK), 1.4 * SHORT as f64]);
    device.pass(10);
    assert!(device.pass(1000) >= 999, "one comes with each chunk");
}

/// Until there is a share for him a newcomer is served as nobody else may go, in as many rounds as that takes. What these
/// granted to others is not before what he has with the share that he gets.
#[test]
fn what_a_newcomer_had_without_a_share_does_not_hold_him_up_for_long() {
    let mut device = Device::new([1.0, 0.0]);
    device.pass(10);
    let (long, short) = (device.long, device.short);
    device.scheduler.set_shares(&[(long, f64::from(CHUNK)), (short, SHORT as f64)]);
    let served = device.pass(100);
    assert!(served >= 97, "{served} with 100 chunks of the other");
    // The same for one who still waits when he gets it.
    let mut device = Device::new([1.0, 0.0]);
    device.pass(10);
    device.scheduler.push(device.connection, SHORT, false);
    device.scheduler.set_shares(&[(long, f64::from(CHUNK)), (short, SHORT as f64)]);
    let served = device.pass(100);
    assert!(served >= 97, "{served} with 100 chunks of the other");
}

/// Who was stuck and goes on is waited for again, whatever the device does for others meanwhile.
#[test]
fn who_was_stuck_is_waited_for_once_he_moved_some_windows() {
    let chunk = u64::from(CHUNK);
    let (mut scheduler, ids) = busy(&[1.0, 1.0], 8 * chunk, 10_000, chunk);
    let mut flying = [VecDeque::new(), VecDeque::new()];
    // The device is done with a chunk of the first where `of_first` says so of this step, and of the other if not.
    let mut pass = |scheduler: &mut Scheduler, steps: usize, of_first: fn(usize) -> bool| {
        let before = ids.iter().map(|id| scheduler.served(*id).chunks).collect::<Vec<_>>();
        for step in 0..steps {
            while let Some(one) = scheduler.next_chunk() {
                flying[one.connection.index()].push_back(one);
            }
            match flying[usize::from(!of_first(step))].pop_front() {
                Some(done) => scheduler.done(done.connection, done.bytes),
                None if step < 10 => scheduler.look(),
                None => {}
            }
        }
        let after = ids.iter().map(|id| scheduler.served(*id).chunks);
        after.zip(before).map(|(after, before)| after - before).collect::<Vec<_>>()
    };
    let served = pass(&mut scheduler, 1000, |_| false);
    assert!(served[1] > 900, "nobody waits for who is stuck: {served:?}");
    pass(&mut scheduler, 1000, |step| step % 2 == 0);
    // The device is slow for the first: the other waits for him.
    let served = pass(&mut scheduler, 1000, |step| step % 4 == 0);
    assert!(served[0].abs_diff(served[1]) <= 8, "{served:?} are not equal parts");
}
