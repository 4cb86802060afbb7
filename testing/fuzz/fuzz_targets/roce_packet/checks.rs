//! What must hold for any bytes in the place of an IP packet. The fuzz target and the ordinary test
//! that replays its corpus share this file.
use catchment_roce::wire::net::NetHeader;
use catchment_roce::wire::{Headers, ICRC_BYTES, MAX_HEADER_BYTES, Packet, datagram, icrc, ip_id};

/// Panics when something does not hold.
pub(crate) fn check(bytes: &[u8]) {
    check_headers(bytes);
    let Ok((net, datagram)) = NetHeader::decode(bytes) else { return };
    let opened = datagram::open(&net, datagram, &mut ip_id::Solver::new());
    let Some((transport, received)) = icrc::split(datagram) else {
        assert!(opened.is_err());
        return;
    };
    check_headers(transport);
    check_packet(&net, transport);
    let solved = ip_id::Solver::new().verify(&net, transport, received);
    assert!(icrc::verify(&net, transport, received).is_err() || solved.is_ok());
    assert!(opened.is_err() || solved.is_ok());
}

/// Headers that were read are written and read again as the same.
fn check_headers(bytes: &[u8]) {
    let Ok((headers, header_bytes)) = Headers::decode(bytes) else { return };
    let mut encoded = [0; MAX_HEADER_BYTES];
    assert_eq!(headers.encode(&mut encoded), header_bytes);
    assert_eq!(Headers::decode(&encoded[..header_bytes]), Ok((headers, header_bytes)));
}

/// A packet that was read is sealed and opened again as the same, but for another partition.
fn check_packet(net: &NetHeader, transport: &[u8]) {
    let Ok(packet) = Packet::decode(transport) else { return };
    let mut again = Vec::new();
    datagram::seal(net, &packet.headers, packet.payload, &mut again);
    assert_eq!(again.len(), transport.len() + ICRC_BYTES);
    match datagram::open(net, &again, &mut ip_id::Solver::new()) {
        Ok(opened) => assert_eq!(opened, packet),
        Err(datagram::OpenError::PartitionKey(_)) => {}
        Err(error) => panic!("{error}"),
    }
}
