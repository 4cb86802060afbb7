//! How the two ends of a connection are set up, on the simulator's cable.
use catchment_roce::wire::{Headers, PathMtu};
use catchment_roce::{
    Config, InitAttr, Psn, Qp, Recovery, RemoteAddr, RtrAttr, RtsAttr, Service, Sge,
};
pub(crate) use catchment_sim::roce::Side::{A, B};
use catchment_sim::roce::{Cable, Side, Space};
pub(crate) use catchment_sim::roce::{End, Pair};
use std::time::Duration;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// From one end to the other.
pub(crate) const LATENCY: Duration = Duration::from_micros(50);
/// Key of the region of an end, local and remote.
pub(crate) const KEY: u32 = Space::FIRST_KEY;
/// Address of its first byte.
pub(crate) const BASE: u64 = Space::FIRST_ADDR;
/// Both strategies, for tests that hold for each.
pub(crate) const BOTH: [Recovery; 2] = [Recovery::GoBackN, Recovery::SelectiveRepeat];

/// How both ends are set up.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) recovery: Recovery,
    /// Both ends are ours: NAKs that end the connection are challenged.
    pub(crate) challenges: bool,
    /// The window that both agreed to.
    pub(crate) window_packets: u32,
    pub(crate) psn: u32,
    pub(crate) rts: RtsAttr,
    pub(crate) region_bytes: usize,
    pub(crate) cable: Cable,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: Config::new(0, Service::Rc),
            recovery: Recovery::GoBackN,
            challenges: false,
            window_packets: Config::MAX_WINDOW_PACKETS,
            psn: 0xff_fff0,
            rts: RtsAttr::new(Psn::default()),
            region_bytes: 1 << 20,
            cable: Cable { latency: LATENCY, rate_bps: None, twin: None },
        }
    }
}

impl Setup {
    pub(crate) fn recovering(recovery: Recovery) -> Self {
        Self { recovery, ..Self::default() }
    }

    pub(crate) fn service(service: Service) -> Self {
        Self { config: Config::new(0, service), ..Self::default() }
    }

    /// Queue pair 0x11 at [`A`], which sends first, or 0x22 at [`B`].
    pub(crate) fn end(&self, side: Side) -> End {
        let (near, far) = ((0x11, self.psn), (0x22, 500));
        let ((qpn, psn), (dest_qpn, dest_psn)) = if side == A { (near, far) } else { (far, near) };
        let mut qp = Qp::new(Config { qpn, ..self.config });
        qp.init(InitAttr { remote_write: true, remote_read: true, remote_atomic: true, qkey: 77 })
            .unwrap();
        let rtr = RtrAttr::new(dest_qpn, PathMtu::Mtu256, Psn::new(dest_psn));
        let challenges = self.challenges.then_some(u64::from(qpn));
        let Self { recovery, window_packets, .. } = *self;
        qp.rtr(RtrAttr { recovery, window_packets, challenges, ..rtr }).unwrap();
        qp.rts(RtsAttr { sq_psn: Psn::new(psn), ..self.rts }).unwrap();
        End::new(side, qp, self.region_bytes)
    }

    pub(crate) fn pair(&self) -> Pair {
        Pair::new([self.end(A), self.end(B)], &self.cable)
    }
}

/// What a cable does that loses these of all its packets, the first of which is number 1.
pub(crate) fn losing(lost: impl Fn(u64) -> bool) -> impl FnMut(Side, &Headers) -> bool {
    let mut count = 0;
    move |_, _| {
        count += 1;
        lost(count)
    }
}

/// As [`losing`], of the packets to this end.
pub(crate) fn losing_to(
    end: Side,
    lost: impl Fn(u64) -> bool,
) -> impl FnMut(Side, &Headers) -> bool {
    let mut losing = losing(lost);
    move |to, headers| to == end && losing(to, headers)
}

/// A piece of an end's region.
pub(crate) fn sge(offset: u64, bytes: u32) -> Sge {
    Sge { addr: BASE + offset, bytes, lkey: KEY }
}

pub(crate) fn remote(offset: u64) -> RemoteAddr {
    RemoteAddr { addr: BASE + offset, rkey: KEY }
}
