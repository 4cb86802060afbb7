//! The hosts of a scenario: their addresses, memory, queue pairs and workers.
use super::check::{FarKeys, NearKeys, UNTOUCHED};
use super::plan::Plan;
use super::scenario::{EndScenario, MAX_INLINE, PairScenario, Scenario};
use super::worker::{Remote, Worker};
use crate::roce::{Rights, Space};
use catchment_roce::{Config, InitAttr, Qp, QpState, Recovery, RtrAttr, RtsAttr, Service};
use std::rc::Rc;

pub(super) type Memory = [(NearKeys, FarKeys); 2];

pub(super) fn qpn(pair: usize, number: usize) -> u32 {
    0x11 + 0x100 * pair as u32 + 0x7000 * number as u32
}

pub(super) fn register(pair: &PairScenario, spaces: &mut [Space; 2]) -> Memory {
    [0, 1].map(|number| {
        let (own, peer) = (&pair.ends[number].plan, &pair.ends[1 - number].plan);
        let near = near_keys(own, &mut spaces[number]);
        let slots = receives(peer, &pair.ends[number]);
        (near, far_keys(peer, slots, &mut spaces[number]))
    })
}

/// Registers the memory that an end needs for its own plan.
pub(super) fn near_keys(own: &Plan, space: &mut Space) -> NearKeys {
    NearKeys {
        source: space.register(own.source.clone(), Rights::LOCAL),
        landing: space.register(vec![UNTOUCHED; own.landing_bytes], Rights::LOCAL),
    }
}

/// Registers the memory that an end needs for its peer's plan, with `slots` receives.
pub(super) fn far_keys(peer: &Plan, slots: usize, space: &mut Space) -> FarKeys {
    let target = space.register(peer.target.clone(), Rights::ALL);
    space.keep_log(target);
    let slot_bytes = peer.longest_message();
    let spare = (0..peer.spare_regions).map(|_| space.register(vec![0; 8], Rights::ALL));
    let spare = spare.collect();
    FarKeys {
        target,
        forbidden: space.register(vec![UNTOUCHED; peer.longest], Rights::LOCAL),
        spare,
        receive: space.register(vec![UNTOUCHED; slots * slot_bytes], Rights::LOCAL),
        slot_bytes,
    }
}

/// Returns the number of receives that an end posts for its peer's plan.
fn receives(peer: &Plan, own: &EndScenario) -> usize {
    peer.ops.iter().filter(|op| op.what.takes_receive()).count() + own.receives_spare
}

pub(super) fn worker(
    scenario: &Scenario,
    memory: &[Memory],
    spaces: &[Space; 2],
    pair: usize,
    number: usize,
) -> Worker {
    let ends = &scenario.pairs[pair].ends;
    let (near, own) = &memory[pair][number];
    let (_, peer) = &memory[pair][1 - number];
    let addr = |key| spaces[1 - number].addr(key);
    let (target_addr, forbidden_addr) = (addr(peer.target), addr(peer.forbidden));
    let remote = Remote { target_addr, forbidden_addr, keys: peer.clone() };
    let most = receives(&ends[1 - number].plan, &ends[number]);
    Worker::new(Rc::clone(&ends[number]), *near, own.clone(), most, remote)
}

/// Returns a connected queue pair.
pub(super) fn queue_pair(scenario: &Scenario, pair: usize, number: usize) -> Qp {
    let (own, peer) = (&scenario.pairs[pair].ends[number], &scenario.pairs[pair].ends[1 - number]);
    let mut config = Config::new(qpn(pair, number), Service::Rc);
    config.write_layout = own.write_layout;
    config.window_packets = own.window_packets;
    config.window_bytes = own.window_bytes;
    config.ack_interval = own.ack_interval;
    config.read_chunk_bytes = own.read_chunk_bytes;
    config.max_send_wr = own.max_send_wr;
    config.max_inline_bytes = MAX_INLINE;
    config.adaptive_timeout = own.adaptive_timeout;
    let mut qp = Qp::new(config);
    let rtr = RtrAttr {
        max_dest_rd_atomic: peer.max_rd_atomic,
        min_rnr_timer: own.min_rnr_timer,
        recovery: scenario.recovery,
        challenges: (scenario.recovery == Recovery::SelectiveRepeat)
            .then_some(qpn(pair, number).into()),
        ..RtrAttr::new(qpn(pair, 1 - number), scenario.path_mtu, peer.first_psn)
    };
    let rts = RtsAttr {
        max_rd_atomic: own.max_rd_atomic,
        timeout: Some(own.timeout),
        retry_cnt: own.retry_cnt,
        rnr_retry: own.rnr_retry,
        ..RtsAttr::new(own.first_psn)
    };
    let init = InitAttr { remote_write: true, remote_read: true, remote_atomic: true, qkey: 0 };
    let connected = qp.init(init).and_then(|()| qp.rtr(rtr)).and_then(|()| qp.rts(rts));
    debug_assert_eq!(connected, Ok(()));
    debug_assert_eq!(qp.state(), QpState::Rts);
    qp
}
