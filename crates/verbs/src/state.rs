//! Queue pair states, their transitions, and what peers must tell each other to connect.
use crate::{Access, Service};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
    time::Duration,
};

/// States of a queue pair (IBTA 10.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Fresh; takes no requests.
    Reset,
    /// Takes receives, processes nothing.
    Init,
    /// Ready to receive: processes what the peer sends.
    Rtr,
    /// Ready to send: processes everything.
    Rts,
    /// Send queue drained: sends posted before complete, later ones wait.
    Sqd,
    /// Everything outstanding is flushed with an error.
    Err,
}

impl QpState {
    /// All states; each is at the place of its number.
    pub const ALL: [QpState; 6] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Err,
    ];

    /// Whether an application may ask for this transition (IBTA figure 124, without the
    /// transitions that only an error causes).
    pub fn may_become(self, to: QpState) -> bool {
        use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
        matches!(
            (self, to),
            (_, Reset | Err)
                | (Reset | Init, Init)
                | (Init, Rtr)
                | (Rtr | Rts | Sqd, Rts)
                | (Rts, Sqd)
        )
    }

    /// Whether receives may be posted.
    pub fn takes_recv(self) -> bool {
        self != QpState::Reset
    }

    /// Whether sends may be posted. In the error state they are taken and flushed.
    pub fn takes_send(self) -> bool {
        matches!(self, QpState::Rts | QpState::Sqd | QpState::Err)
    }
}

/// What [`crate::Qp::modify`] shall do, with the attributes that the transition needs.
///
/// The enum takes the place of the attribute masks of `ibv_modify_qp(3)`: a required attribute
/// cannot be left out and a forbidden one cannot be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpTransition {
    /// Back to the beginning. Outstanding requests vanish without completions.
    ToReset,
    /// To INIT (RC, UC), with what peers may do through this queue pair.
    ToInit {
        /// Rights of the peer; a region's own rights must allow the request too.
        access: Access,
    },
    /// To INIT (UD).
    ToInitUd {
        /// What datagrams must carry to be taken; at most [`crate::MAX_QKEY`].
        qkey: u32,
    },
    /// To RTR (RC): the peer is known now.
    ToRtr(RtrAttr),
    /// To RTR (UC): the peer is known now.
    ToRtrUc(Endpoint),
    /// To RTR (UD).
    ToRtrUd,
    /// To RTS (RC, from RTR), or on from SQD.
    ToRts(RtsAttr),
    /// To RTS (UC and UD, from RTR), or on from SQD: nothing is waited for or sent again, so there
    /// is nothing to say of it.
    ToRtsUnreliable,
    /// Drain the send queue.
    ToSqd,
    /// To the error state: everything outstanding is flushed.
    ToErr,
}

impl QpTransition {
    /// The state that the transition leads to.
    pub fn target(&self) -> QpState {
        match self {
            QpTransition::ToReset => QpState::Reset,
            QpTransition::ToInit { .. } | QpTransition::ToInitUd { .. } => QpState::Init,
            QpTransition::ToRtr(_) | QpTransition::ToRtrUc(_) | QpTransition::ToRtrUd => {
                QpState::Rtr
            }
            QpTransition::ToRts(_) | QpTransition::ToRtsUnreliable => QpState::Rts,
            QpTransition::ToSqd => QpState::Sqd,
            QpTransition::ToErr => QpState::Err,
        }
    }

    /// Whether queue pairs of this service have this transition.
    pub fn exists_on(&self, service: Service) -> bool {
        match self {
            QpTransition::ToReset | QpTransition::ToSqd | QpTransition::ToErr => true,
            QpTransition::ToInit { .. } => service != Service::Ud,
            QpTransition::ToRtr(_) | QpTransition::ToRts(_) => service == Service::Rc,
            QpTransition::ToRtrUc(_) => service == Service::Uc,
            QpTransition::ToInitUd { .. } | QpTransition::ToRtrUd => service == Service::Ud,
            QpTransition::ToRtsUnreliable => service != Service::Rc,
        }
    }
}

/// Attributes of INIT → RTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtrAttr {
    /// The peer's queue pair; its `psn` is the first that it will send.
    pub remote: Endpoint,
    /// READs and atomics of the peer to serve at once.
    pub max_dest_rd_atomic: u32,
    /// What a sender without a posted receive shall wait before it tries again.
    pub min_rnr_timer: Duration,
}

impl RtrAttr {
    /// Usual attributes for this peer.
    pub fn new(remote: Endpoint) -> RtrAttr {
        RtrAttr {
            remote,
            max_dest_rd_atomic: 16,
            min_rnr_timer: Duration::from_micros(640),
        }
    }
}

/// Attributes of RTR → RTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtsAttr {
    /// READs and atomics outstanding at once.
    pub max_rd_atomic: u32,
    /// Silence of the peer before a request is sent again.
    pub timeout: Duration,
    /// How often a request is sent again, 0..=7.
    pub retry_cnt: u8,
    /// How often a request is sent again that found no receive, 0..=7; 7 means for ever.
    pub rnr_retry: u8,
}

impl Default for RtsAttr {
    fn default() -> RtsAttr {
        RtsAttr {
            max_rd_atomic: 16,
            timeout: Duration::from_millis(67),
            retry_cnt: 7,
            rnr_retry: 7,
        }
    }
}

/// Address of a device port (IBTA 4.1.1). Sixteen bytes, in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID of a RoCEv2 port with this address: IPv4 as `::ffff:a.b.c.d` (IBTA annex 17).
    pub fn from_ip(address: IpAddr) -> Gid {
        match address {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }

    /// The address of a RoCEv2 port, the reverse of [`Gid::from_ip`].
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// A text is not a [`Gid`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GID: 32 hexadecimal digits are needed")]
pub struct GidParseError(pub String);

impl FromStr for Gid {
    type Err = GidParseError;

    fn from_str(text: &str) -> Result<Gid, GidParseError> {
        let wrong = || GidParseError(text.chars().take(64).collect());
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Gid(value.to_be_bytes()))
    }
}

/// What a peer must know to reach a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The device port.
    pub gid: Gid,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First packet sequence number that this side sends, 24 bits.
    pub psn: u32,
    /// What this side takes from the network; `None` where the provider has no packets.
    pub net: Option<NetEnd>,
}

/// One end of a path over a network. Each side tells the other its own; what both can is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetEnd {
    /// UDP port where it listens. RNICs know only 4791.
    pub udp_port: u16,
    /// Largest path MTU that it takes, in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// What it can beyond the standard, one bit each, as its provider documents. 0 for an RNIC.
    pub extensions: u32,
}

impl NetEnd {
    /// The only UDP port that an RNIC knows (IBTA annex 17).
    pub const RNIC_UDP_PORT: u16 = 4791;

    /// That of an RNIC with this path MTU in bytes.
    pub fn of_rnic(path_mtu: u32) -> NetEnd {
        NetEnd {
            udp_port: NetEnd::RNIC_UDP_PORT,
            path_mtu,
            extensions: 0,
        }
    }
}

impl fmt::Display for Endpoint {
    /// `GID/QPN/PSN`, and `/PORT/MTU/EXTENSIONS` where there is a network.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.gid, self.qpn, self.psn)?;
        match self.net {
            None => Ok(()),
            Some(net) => write!(f, "/{}/{}/{}", net.udp_port, net.path_mtu, net.extensions),
        }
    }
}

/// Text that is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an endpoint: GID/QPN/PSN or GID/QPN/PSN/PORT/MTU/EXTENSIONS is needed")]
pub struct EndpointParseError(pub String);

impl FromStr for Endpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointParseError> {
        parse_endpoint(text).ok_or_else(|| EndpointParseError(text.chars().take(128).collect()))
    }
}

fn parse_endpoint(text: &str) -> Option<Endpoint> {
    let fields: Vec<&str> = text.split('/').collect();
    let net = match fields[..] {
        [_, _, _] => None,
        [_, _, _, port, mtu, extensions] => Some(NetEnd {
            udp_port: port.parse().ok()?,
            path_mtu: mtu.parse().ok()?,
            extensions: extensions.parse().ok()?,
        }),
        _ => return None,
    };
    Some(Endpoint {
        gid: fields[0].parse().ok()?,
        qpn: fields[1].parse().ok()?,
        psn: fields[2].parse().ok()?,
        net,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};

    #[test]
    fn the_way_up_is_legal_and_shortcuts_are_not() {
        for (from, to) in [
            (Reset, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Sqd),
            (Sqd, Rts),
        ] {
            assert!(from.may_become(to), "{from:?} to {to:?}");
        }
        for (from, to) in [
            (Reset, Rtr),
            (Reset, Rts),
            (Init, Rts),
            (Rts, Rtr),
            (Err, Rts),
            (Rtr, Sqd),
        ] {
            assert!(!from.may_become(to), "{from:?} to {to:?}");
        }
    }

    #[test]
    fn every_state_can_fail_and_start_again() {
        for from in QpState::ALL {
            assert!(from.may_become(Err) && from.may_become(Reset));
        }
    }

    #[test]
    fn gid_reads_back_what_it_prints() {
        let gid = Gid([0xfe, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(gid.to_string().parse(), Ok(gid));
        for bad in [
            "",
            "fe80",
            "+e800001020304050607080910111213",
            "zz800001020304050607080910111213",
        ] {
            assert!(bad.parse::<Gid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gid_is_the_address_of_its_port() {
        for text in [
            "10.77.0.2",
            "10.99.0.1",
            "fd00::2",
            "2001:db8::2",
            "::1",
            "127.0.0.1",
        ] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(Gid::from_ip(ip).ip(), ip);
        }
        for (v4, text) in [
            ([10, 77, 0, 2], "00000000000000000000ffff0a4d0002"),
            ([10, 99, 0, 1], "00000000000000000000ffff0a630001"),
        ] {
            assert_eq!(Gid::from_ip(IpAddr::from(v4)).to_string(), text);
        }
    }

    #[test]
    fn an_endpoint_reads_back_what_it_prints() {
        let gid = Gid([7; 16]);
        let net = NetEnd {
            udp_port: 4791,
            path_mtu: 4096,
            extensions: 1,
        };
        for net in [None, Some(net)] {
            let (qpn, psn) = (17, 0x00ff_ffff);
            let end = Endpoint { gid, qpn, psn, net };
            assert_eq!(end.to_string().parse(), Ok(end));
        }
        for bad in [
            "",
            "1/2",
            "07070707070707070707070707070707/1",
            "a/1/2/3",
            "////",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }
}
