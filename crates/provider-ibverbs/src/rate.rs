//! Rates that a device keeps for its queue pairs.
//!
//! Drivers take a limit in RTS only, and forget it in RESET: a queue pair remembers the requested
//! rate and sets it whenever it enters RTS.
use crate::sys::types::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, ibv_packet_pacing_caps};
use catchment_verbs::{Gid, RateRange, Service};
use std::{io, mem};

/// Bytes on the wire of a WRITE besides IP and payload: Ethernet with FCS, UDP, BTH, RETH, ICRC.
const PACKET_BYTES: u32 = 14 + 4 + 8 + 12 + 16 + 4;
const STEP_BPS: u64 = 1_000;

/// Returns the [`Caps::rate`](catchment_verbs::Caps::rate) of a device, if it paces RC queue pairs.
pub(crate) fn range(pacing: &ibv_packet_pacing_caps, gid: Gid) -> Option<RateRange> {
    let paces = paces(pacing, Service::Rc) && pacing.qp_rate_limit_max > 0;
    let ip_bytes = if gid.ip().is_ipv4() { 20 } else { 40 };
    paces.then(|| RateRange {
        min_bps: u64::from(pacing.qp_rate_limit_min).max(1) * STEP_BPS,
        max_bps: u64::from(pacing.qp_rate_limit_max) * STEP_BPS,
        step_bps: STEP_BPS,
        packet_overhead_bytes: PACKET_BYTES + ip_bytes,
    })
}

pub(crate) fn paces(pacing: &ibv_packet_pacing_caps, service: Service) -> bool {
    let kind = match service {
        Service::Rc => IBV_QPT_RC,
        Service::Uc => IBV_QPT_UC,
        Service::Ud => IBV_QPT_UD,
    };
    pacing.supported_qpts & (1 << kind) != 0
}

/// The limits of one queue pair in kbit/s; 0 is none.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    asked_kbps: u32,
    /// What the device has.
    set_kbps: u32,
}

impl Rate {
    /// Stores a rate in the device's range, and returns the one requested before.
    pub(crate) fn ask(&mut self, rate_bps: Option<u64>) -> Self {
        let asked_kbps = rate_bps.map_or(0, |bps| (bps / STEP_BPS) as u32);
        Self { asked_kbps: mem::replace(&mut self.asked_kbps, asked_kbps), ..*self }
    }

    pub(crate) fn forget_set(&mut self) {
        self.set_kbps = 0;
    }

    /// Sets the requested rate on the device, unless it has that already.
    pub(crate) fn settle(&mut self, limit: impl FnOnce(u32) -> io::Result<()>) -> io::Result<()> {
        if self.asked_kbps != self.set_kbps {
            limit(self.asked_kbps)?;
            self.set_kbps = self.asked_kbps;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn pacing(max: u32, supported_qpts: u32) -> ibv_packet_pacing_caps {
        ibv_packet_pacing_caps { qp_rate_limit_min: 0, qp_rate_limit_max: max, supported_qpts }
    }

    #[test]
    fn only_a_device_that_paces_rc_has_a_range() {
        let gid = Gid::from_ip(Ipv4Addr::LOCALHOST.into());
        let rc = 1 << IBV_QPT_RC;
        // rdma_rxe reports zeros, mlx5 only raw packets.
        for without in [pacing(0, 0), pacing(0, rc), pacing(100_000_000, 1 << 8)] {
            assert_eq!(range(&without, gid), None, "{without:?}");
        }
        let found = range(&pacing(100_000_000, rc), gid).unwrap();
        assert_eq!((found.min_bps, found.max_bps, found.step_bps), (1_000, 100_000_000_000, 1_000));
        assert_eq!(found.packet_overhead_bytes, 78);
        let six = range(&pacing(1, rc), Gid::from_ip(Ipv6Addr::LOCALHOST.into())).unwrap();
        assert_eq!(six.packet_overhead_bytes, 98);
        assert!(!paces(&pacing(1, rc), Service::Ud));
    }

    #[test]
    fn the_device_is_told_once_and_again_after_it_forgot() {
        let mut rate = Rate::default();
        let settled = |rate: &mut Rate| {
            let mut settled = None;
            rate.settle(|kbps| {
                settled = Some(kbps);
                Ok(())
            })
            .map(|()| settled)
        };
        assert_eq!(settled(&mut rate).unwrap(), None, "no limit was asked");
        rate.ask(Some(2_999_999));
        assert_eq!(settled(&mut rate).unwrap(), Some(2_999), "rounded down");
        assert_eq!(settled(&mut rate).unwrap(), None);
        rate.forget_set();
        assert_eq!(settled(&mut rate).unwrap(), Some(2_999));
        let before = rate.ask(None);
        assert!(rate.settle(|_| Err(io::ErrorKind::Unsupported.into())).is_err());
        rate = before;
        assert_eq!(settled(&mut rate).unwrap(), None, "the limit is as before a refusal");
        rate.ask(None);
        assert_eq!(settled(&mut rate).unwrap(), Some(0));
    }
}
