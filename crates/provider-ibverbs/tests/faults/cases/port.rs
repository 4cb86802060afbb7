//! Ports and their addresses.
use super::{Cable, assert_says, event, eventually, provider, run};
use catchment_conformance::Options;
use catchment_netns::Namespace;
use catchment_provider_ibverbs::{NoDevice, PortState};
use catchment_verbs::{AsyncEvent, Endpoint, Gid, QpTransition, RtrAttr, VerbsError};

/// An event reports the port; opening a device then reports it too.
pub(super) fn goes_down_and_up() {
    let cable = Cable::new();
    let context = cable.open();
    run(&format!("ip link set {} down", cable.far));
    event(&*context, |event| *event == AsyncEvent::PortDown);
    let refused = provider().open_device(&cable.device).err().unwrap();
    assert_says(&refused.to_string(), &[&cable.device, "DOWN", "cable"]);
    let reason = provider().device_for(cable.address).unwrap_err();
    assert!(matches!(reason, NoDevice::PortDown { state: PortState::Down, .. }), "{reason}");
    run(&format!("ip link set {} up", cable.far));
    event(&*context, |event| *event == AsyncEvent::PortActive);
    assert!(provider().device_for(cable.address).is_ok());
}

/// A device that is open keeps the GID that it was opened by, and notices that it is gone.
pub(super) fn loses_its_address() {
    let cable = Cable::new();
    let (mut a, b) = cable.sides();
    run(&format!("ip address del {}/24 dev {}", cable.address, cable.near));
    a.init(&Options::default());
    // The kernel takes the address out of the table a little later.
    let mut refused = None;
    eventually("the address to leave the table", || {
        refused = a.qp.modify(QpTransition::ToRtr(RtrAttr::new(b.qp.endpoint()))).err();
        if refused.is_none() {
            a.qp.modify(QpTransition::ToReset).unwrap();
            a.init(&Options::default());
        }
        refused.is_some()
    });
    let address = cable.address.to_string();
    assert_says(
        &refused.unwrap().to_string(),
        &[&address, &cable.device, "no longer in the table", "open the device again"],
    );
}

/// RNICs speak with one family at a time, and with one UDP port.
pub(super) fn cannot_reach_every_peer() {
    let cable = Cable::new();
    let (mut a, b) = cable.sides();
    a.init(&Options::default());
    let good = b.qp.endpoint();
    let net = good.net.unwrap();
    let other_family = Endpoint { gid: Gid::from_ip("fd00::1".parse().unwrap()), ..good };
    let with_net = |net| Endpoint { net: Some(net), ..good };
    let other_port = with_net(catchment_verbs::NetEnd { udp_port: 14_791, ..net });
    let wrong_mtu = with_net(catchment_verbs::NetEnd { path_mtu: 1500, ..net });
    for (peer, parts) in [
        (other_family, ["fd00::1", "same family"]),
        (other_port, ["14791", "4791 only"]),
        (wrong_mtu, ["1500", "4096"]),
    ] {
        let error = a.qp.modify(QpTransition::ToRtr(RtrAttr::new(peer)));
        assert_says(&error.unwrap_err().to_string(), &parts);
    }
    a.qp.modify(QpTransition::ToRtr(RtrAttr::new(good))).unwrap();
}

/// The kernel shows the devices of all namespaces, and their GIDs.
pub(super) fn is_in_another_namespace() {
    let cable = Cable::new();
    let elsewhere = Namespace::new().unwrap();
    let outcome = elsewhere.run(|| {
        let reason = provider().device_for(cable.address).unwrap_err();
        (reason, provider().open_device(&cable.device).err().unwrap())
    });
    let (reason, refused) = outcome.unwrap();
    assert!(matches!(reason, NoDevice::OtherNamespace { .. }), "{reason}");
    assert_says(
        &reason.to_string(),
        &[&cable.address.to_string(), &cable.device, "another network namespace"],
    );
    assert!(matches!(refused, VerbsError::Invalid(_)));
    assert_says(&refused.to_string(), &[&cable.device, "network namespace"]);
    assert!(cable.open().place().starts_with(&cable.device));
}
