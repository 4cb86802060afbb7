//! How much of a link is left for data when packets get lost.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod pair;

use catchment_roce::wire::PathMtu;
use catchment_roce::{Config, PacingConfig, Recovery, RtsAttr, SendOp, Service};
use pair::{MS, OVERHEAD_BYTES, Pair, Setup, To, remote, sge, timeout};

/// A link and its losses.
#[derive(Clone, Copy, Debug)]
struct Link {
    rate_bps: u64,
    rtt_ms: u64,
    mtu: PathMtu,
    /// Packets lost together.
    burst: u32,
    loss: f64,
    recovery: Recovery,
}

/// Seeded chance: xorshift.
struct Chance(u64);

impl Chance {
    fn below(&mut self, p: f64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) as f64) < p * (1u64 << 53) as f64
    }
}

const WRITE_BYTES: u32 = 1 << 20;

fn setup(link: &Link) -> Setup {
    Setup {
        config: Config {
            window_bytes: 64 << 20,
            window_packets: 32 << 10,
            pacing: PacingConfig {
                rate_bps: Some(link.rate_bps),
                ..PacingConfig::default()
            },
            ..Config::new(0, Service::Rc)
        },
        mtu: link.mtu,
        latency_ns: link.rtt_ms * MS / 2,
        rts: RtsAttr {
            timeout: timeout(67),
            ..RtsAttr::new(Default::default())
        },
        region_bytes: 2 << 20,
        ..Setup::recovering(link.recovery)
    }
}

/// Payload bits a second, as a fraction of what the link can carry in packets of this size.
fn goodput(link: &Link) -> f64 {
    let mut pair = Pair::new(&setup(link));
    pair.quiet = true;
    pair.link_bps = Some(link.rate_bps);
    pair.a.fill(1);
    let seconds = 0.8;
    let writes = (link.rate_bps as f64 / 8.0 * seconds / f64::from(WRITE_BYTES)) as u64;
    for wr_id in 0..writes {
        let half = wr_id % 2 * u64::from(WRITE_BYTES);
        pair.a.post(
            wr_id,
            SendOp::Write(remote(half)),
            &[sge(half, WRITE_BYTES)],
        );
    }
    let latency = pair.latency_ns;
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut dropping = 0;
    pair.run_with(|_: To, _| {
        if dropping == 0 && chance.below(link.loss / f64::from(link.burst)) {
            dropping = link.burst;
        }
        if dropping > 0 {
            dropping -= 1;
            return vec![];
        }
        vec![latency]
    });
    assert_eq!(pair.a.succeeded().len() as u64, writes, "{link:?}");
    assert_eq!(pair.b.memory.bytes, pair.a.memory.bytes);
    // From the time when the window is open to the time when nothing new is left to send.
    let times = &pair.a.completed_ns;
    let (first, last) = (times.len() / 5, times.len() * 4 / 5);
    let took = (times[last] - times[first]) as f64 / 1e9;
    let payload = link.mtu.bytes() as f64;
    let efficiency = payload / (payload + (28 + 4 + OVERHEAD_BYTES) as f64);
    let bits = ((last - first) as u64 * u64::from(WRITE_BYTES) * 8) as f64;
    bits / took / link.rate_bps as f64 / efficiency
}

/// Corners of the range; the simulator has all of it.
fn links(recovery: Recovery, loss: f64) -> Vec<Link> {
    let corners = [
        (1_000_000_000, 2, PathMtu::Mtu1024, 1),
        (1_000_000_000, 10, PathMtu::Mtu2048, 8),
        (2_000_000_000, 2, PathMtu::Mtu2048, 8),
        (2_000_000_000, 10, PathMtu::Mtu1024, 1),
    ];
    let link = |(rate_bps, rtt_ms, mtu, burst)| Link {
        rate_bps,
        rtt_ms,
        mtu,
        burst,
        loss,
        recovery,
    };
    corners.map(link).to_vec()
}

#[test]
fn selective_repeat_keeps_the_link_full_at_one_percent_loss() {
    for link in links(Recovery::SelectiveRepeat, 0.01) {
        let fraction = goodput(&link);
        println!("{fraction:.4} {link:?}");
        assert!(fraction >= 0.95, "{link:?}: {fraction}");
    }
}

#[test]
fn selective_repeat_loses_little_more_than_what_is_lost_at_five_percent() {
    for link in links(Recovery::SelectiveRepeat, 0.05) {
        let fraction = goodput(&link);
        println!("{fraction:.4} {link:?}");
        assert!(fraction >= 0.98 * 0.95, "{link:?}: {fraction}");
    }
}

#[test]
fn go_back_n_is_worse_and_gets_everything_across() {
    for link in links(Recovery::GoBackN, 0.001) {
        let fraction = goodput(&link);
        println!("{fraction:.4} {link:?}");
        assert!(fraction > 0.1 && fraction < 1.0, "{link:?}: {fraction}");
    }
}
