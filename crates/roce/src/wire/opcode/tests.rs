use super::*;

#[test]
fn numbers_and_opcodes_are_the_same_both_ways() {
    let known: Vec<_> = (0..=u8::MAX).filter_map(Opcode::from_u8).collect();
    assert_eq!(known, Opcode::ALL);
    for opcode in Opcode::ALL {
        assert_eq!(Opcode::from_u8(opcode as u8), Some(opcode));
    }
}

/// The name, from IBTA volume 1, 9.2, implies everything in the table of shapes.
#[test]
fn an_opcode_is_what_its_name_says() {
    for opcode in Opcode::ALL {
        let name = format!("{opcode:?}");
        let has = |word: &str| name.contains(word);
        let transports = [
            ("Rc", Transport::Rc),
            ("Uc", Transport::Uc),
            ("Ud", Transport::Ud),
            ("Cnp", Transport::Cnp),
            ("Sack", Transport::Extension),
            ("Challenge", Transport::Extension),
        ];
        let of_name = transports.into_iter().find(|(start, _)| name.starts_with(start));
        assert_eq!(of_name.map(|(_, transport)| transport), Some(opcode.transport()));
        assert_eq!(opcode.is_first(), has("First"), "{name}");
        assert_eq!(opcode.is_middle(), has("Middle"), "{name}");
        assert_eq!(opcode.is_last(), has("Last"), "{name}");
        assert_eq!(opcode.is_send(), has("Send"), "{name}");
        assert_eq!(opcode.is_write(), has("Write"), "{name}");
        assert_eq!(opcode.is_read_response(), has("ReadResponse"), "{name}");
        assert_eq!(opcode.is_atomic(), has("Swap") || has("FetchAdd"), "{name}");
        assert_eq!(opcode.has_imm(), has("WithImm"), "{name}");
        assert_eq!(opcode.headers().has(HeaderSet::IETH), has("WithInvalidate"), "{name}");
        let response = has("Response") || has("Acknowledge") || has("Sack") || has("Answer");
        assert_eq!(opcode.is_response(), response, "{name}");
        assert_eq!(opcode.is_request(), !response && !has("Cnp"), "{name}");
        let ours = has("Sack") || has("Challenge");
        let data = has("Send") || has("Write") || has("Response") || ours;
        assert_eq!(opcode.has_payload(), data, "{name}");
        assert_eq!(opcode.ends_message(), !has("First") && !has("Middle"), "{name}");
        assert_eq!(opcode.starts_message(), !has("Last") && !has("Middle"), "{name}");
    }
}

/// The packet formats of IBTA volume 1, 9.2: bytes from the BTH to the payload.
#[test]
fn headers_are_as_long_as_the_standard_says() {
    let lengths = |transport: u8| -> Vec<usize> {
        let numbers = (0..32).filter_map(|low| Opcode::from_u8(transport << 5 | low));
        numbers.map(Opcode::header_bytes).collect()
    };
    let send_and_write = [12, 12, 12, 16, 12, 16, 28, 12, 12, 16, 28, 32];
    let read_and_atomic = [28, 16, 12, 16, 16, 16, 24, 40, 40, 16, 16];
    assert_eq!(lengths(0), [&send_and_write[..], &read_and_atomic].concat());
    assert_eq!(lengths(1), send_and_write);
    assert_eq!(lengths(3), [20, 24]);
    assert_eq!(lengths(4), [28]);
    assert_eq!(lengths(6), [16, 16, 16]);
}
