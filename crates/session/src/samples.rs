//! One message of each kind with its text, for tests: the golden bytes of the protocol.
use crate::host::Host;
use crate::identity::{Hex, Identity, Nonce};
use crate::message::*;
use crate::path::KnownProviders;
use crate::refusal::{Refusal, RefusalCode};
use catchment_verbs::{Endpoint, Gid, NetEnd, ProviderInfo, Wire};

fn endpoint(last: u8) -> Endpoint {
    let mut gid = [0xab; 16];
    gid[15] = last;
    Endpoint { gid: Gid(gid), qpn: 17, psn: 0x00ff_ffff, net: None }
}

/// The key pair of the source.
pub(crate) fn identity() -> Identity {
    Identity::from_seed(Hex([7; 32])).unwrap()
}

/// The collector's number for its Challenge.
pub(crate) const NONCE: Nonce = Hex(*b"0123456789abcdef");

pub(crate) fn proof() -> Proof {
    Proof { signature: identity().prove(NONCE, hello().attempt) }
}

/// The providers of both sides.
pub(crate) fn known() -> KnownProviders {
    let provider = |name, rank, wire, is_hardware| ProviderInfo { name, rank, wire, is_hardware };
    KnownProviders::new([
        provider("roce", 2, Wire::RoceV2, false),
        provider("ibverbs", 1, Wire::RoceV2, true),
        provider("shm", 0, Wire::Memory, false),
    ])
}

pub(crate) fn hello() -> Hello {
    Hello {
        protocol: ProtocolRange { min: 3, max: 3 },
        software: "catchment 0.1.0".to_owned(),
        instance: identity().instance(),
        attempt: 3,
        host: Host {
            boot_id: "0f4b6a9e-7d0e-4c59-9a55-1f2a3b4c5d6e".to_owned(),
            netns: 4_026_531_840,
            uid: 1000,
            pid: 4242,
        },
        devices: vec![
            Device {
                name: "cam0".parse().unwrap(),
                format: Some("640x480:rgb24".to_owned()),
                policy: Policy::Block,
                next_packet: 0,
            },
            Device {
                name: "cam1".parse().unwrap(),
                format: None,
                policy: Policy::DropOldest,
                next_packet: 250,
            },
        ],
        providers: vec![
            ProviderOffer {
                name: "shm".to_owned(),
                gid: endpoint(1).gid,
                device: Some("shm0".to_owned()),
                net: None,
            },
            ProviderOffer {
                name: "roce".to_owned(),
                gid: endpoint(3).gid,
                device: None,
                net: Some(NetEnd { extensions: 1, ..NetEnd::of_rnic(4096) }),
            },
        ],
        missing: vec![WhyNot {
            provider: "ibverbs".to_owned(),
            reason: "libibverbs.so.1 is not installed".to_owned(),
        }],
        failed: vec![FailedPath {
            path: SessionPath {
                source: "roce".to_owned(),
                source_gid: endpoint(3).gid,
                collector: "ibverbs".to_owned(),
                path_mtu: Some(4096),
            },
            reason: "packets of 4096 bytes did not pass".to_owned(),
        }],
        wish: RingWish { blocks: 64, block_bytes: 1_048_576 },
    }
}

pub(crate) fn welcome() -> Welcome {
    Welcome {
        protocol: 3,
        epoch: 7,
        path: SessionPath {
            source: "shm".to_owned(),
            source_gid: endpoint(1).gid,
            collector: "shm".to_owned(),
            path_mtu: None,
        },
        reason: "same host, network namespace and user".to_owned(),
        ring: Ring {
            addr: 0x7f12_3456_0000,
            rkey: 99,
            blocks: 64,
            block_bytes: 1_048_576,
            layout_hash: 0xfedc_ba98_7654_3210,
            checksum: false,
        },
        endpoint: endpoint(2),
        lease_ms: 3_000,
        streams: vec![
            StreamGrant { device: "cam0".parse().unwrap(), stream: 0, next_packet: None },
            StreamGrant { device: "cam1".parse().unwrap(), stream: 1, next_packet: Some(240) },
        ],
    }
}

pub(crate) fn refusal() -> Refusal {
    Refusal::new(
        RefusalCode::DeviceInUse,
        "another live source sends device cam0",
        "stop that source, or give this device another name",
    )
}

pub(crate) fn connect() -> Connect {
    let start = |stream, first_packet| StreamStart { stream, first_packet };
    Connect { epoch: 7, endpoint: endpoint(1), streams: vec![start(0, 0), start(1, 245)] }
}

pub(crate) fn stats() -> SourceStats {
    SourceStats {
        epoch: 7,
        cpu_us: 1_250_000,
        streams: vec![StreamStats {
            stream: 1,
            sent_frames: 5,
            sent_bytes: 4_608_000,
            dropped_oldest: 2,
            dropped_newest: 0,
            dropped_reconnect: 5,
            blocked_us: 0,
        }],
    }
}

pub(crate) fn sink_report() -> SinkReport {
    let reason = "cannot write /out/cam1/000000000250: No space left on device (os error 28)";
    SinkReport { epoch: 7, refusing: 1, reason: Some(reason.to_owned()) }
}

pub(crate) fn goodbye() -> Goodbye {
    let end = |stream, end_packet| StreamEnd { stream, end_packet };
    Goodbye { epoch: 7, streams: vec![end(0, 300), end(1, 300)] }
}

pub(crate) fn goodbye_ack() -> GoodbyeAck {
    let done = |stream, frames, lost| StreamDelivered { stream, next_packet: 300, frames, lost };
    GoodbyeAck { epoch: 7, delivered: vec![done(0, 300, 0), done(1, 53, 5)] }
}

/// Every kind of message with the JSON that [`crate::wire::encode`] makes of it. The same lines
/// stand in docs/spec/session.md.
pub(crate) fn golden() -> Vec<(Message, &'static str)> {
    vec![
        (
            Message::Hello(hello()),
            r#"{"type":"hello","protocol":{"min":3,"max":3},"software":"catchment 0.1.0","instance":"ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c","attempt":3,"host":{"boot_id":"0f4b6a9e-7d0e-4c59-9a55-1f2a3b4c5d6e","netns":4026531840,"uid":1000,"pid":4242},"devices":[{"name":"cam0","format":"640x480:rgb24","policy":"block","next_packet":0},{"name":"cam1","format":null,"policy":"drop_oldest","next_packet":250}],"providers":[{"name":"shm","gid":"ababababababababababababababab01","device":"shm0"},{"name":"roce","gid":"ababababababababababababababab03","device":null,"net":{"udp_port":4791,"path_mtu":4096,"extensions":1}}],"missing":[{"provider":"ibverbs","reason":"libibverbs.so.1 is not installed"}],"failed":[{"path":{"source":"roce","source_gid":"ababababababababababababababab03","collector":"ibverbs","path_mtu":4096},"reason":"packets of 4096 bytes did not pass"}],"wish":{"blocks":64,"block_bytes":1048576}}"#,
        ),
        (
            Message::Challenge(Challenge { nonce: NONCE }),
            r#"{"type":"challenge","nonce":"30313233343536373839616263646566"}"#,
        ),
        (
            Message::Proof(proof()),
            r#"{"type":"proof","signature":"f0f8094eba1f2b66924a4499b8d4466f34b6d99e779eaaa253a6cc8430624d2b764a0305d16003482e01b1369cd855b80f162a3f8ef5d0938b8c274062642406"}"#,
        ),
        (
            Message::Welcome(welcome()),
            r#"{"type":"welcome","protocol":3,"epoch":7,"path":{"source":"shm","source_gid":"ababababababababababababababab01","collector":"shm","path_mtu":null},"reason":"same host, network namespace and user","ring":{"addr":"00007f1234560000","rkey":99,"blocks":64,"block_bytes":1048576,"layout_hash":"fedcba9876543210","checksum":false},"endpoint":{"gid":"ababababababababababababababab02","qpn":17,"psn":16777215},"lease_ms":3000,"streams":[{"device":"cam0","stream":0,"next_packet":null},{"device":"cam1","stream":1,"next_packet":240}]}"#,
        ),
        (
            Message::Refused(refusal()),
            r#"{"type":"refused","code":"device_in_use","reason":"another live source sends device cam0","remedy":"stop that source, or give this device another name","retry_after_ms":1000}"#,
        ),
        (
            Message::Connect(connect()),
            r#"{"type":"connect","epoch":7,"endpoint":{"gid":"ababababababababababababababab01","qpn":17,"psn":16777215},"streams":[{"stream":0,"first_packet":0},{"stream":1,"first_packet":245}]}"#,
        ),
        (Message::Ready(Ready { epoch: 7 }), r#"{"type":"ready","epoch":7}"#),
        (Message::Ping(Ping { epoch: 7, seq: 0 }), r#"{"type":"ping","epoch":7,"seq":0}"#),
        (Message::Pong(Pong { epoch: 7, seq: 0 }), r#"{"type":"pong","epoch":7,"seq":0}"#),
        (
            Message::SourceStats(stats()),
            r#"{"type":"source_stats","epoch":7,"cpu_us":1250000,"streams":[{"stream":1,"sent_frames":5,"sent_bytes":4608000,"dropped_oldest":2,"dropped_newest":0,"dropped_reconnect":5,"blocked_us":0}]}"#,
        ),
        (
            Message::SinkReport(sink_report()),
            r#"{"type":"sink_report","epoch":7,"refusing":1,"reason":"cannot write /out/cam1/000000000250: No space left on device (os error 28)"}"#,
        ),
        (
            Message::Revoke(Revoke::new(
                7,
                Refusal::new(
                    RefusalCode::ShuttingDown,
                    "the collector is being stopped",
                    "connect to another collector, or wait for this one",
                ),
            )),
            r#"{"type":"revoke","epoch":7,"code":"shutting_down","reason":"the collector is being stopped","remedy":"connect to another collector, or wait for this one","retry_after_ms":500}"#,
        ),
        (
            Message::Goodbye(goodbye()),
            r#"{"type":"goodbye","epoch":7,"streams":[{"stream":0,"end_packet":300},{"stream":1,"end_packet":300}]}"#,
        ),
        (
            Message::GoodbyeAck(goodbye_ack()),
            r#"{"type":"goodbye_ack","epoch":7,"delivered":[{"stream":0,"next_packet":300,"frames":300,"lost":0},{"stream":1,"next_packet":300,"frames":53,"lost":5}]}"#,
        ),
    ]
}
