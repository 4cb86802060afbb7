//! Opcodes: the first byte of a packet determines its kind and its headers.
//!
//! The upper three bits are the transport, the lower five the operation (IBTA volume 1, 9.2).
//! All properties of an opcode are in a table built at compile time.

/// Headers that may follow the BTH, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSet(u8);

impl HeaderSet {
    /// No header.
    pub const NONE: Self = Self(0);
    /// Datagram: Q_Key and source queue pair, 8 bytes.
    pub const DETH: Self = Self(1);
    /// Address, key and length of a one-sided operation, 16 bytes.
    pub const RETH: Self = Self(1 << 1);
    /// Operands of an atomic operation, 28 bytes.
    pub const ATOMIC: Self = Self(1 << 2);
    /// Acknowledgement, 4 bytes.
    pub const AETH: Self = Self(1 << 3);
    /// The value before an atomic operation, 8 bytes.
    pub const ATOMIC_ACK: Self = Self(1 << 4);
    /// Immediate data, 4 bytes.
    pub const IMM: Self = Self(1 << 5);
    /// The key to invalidate, 4 bytes.
    pub const IETH: Self = Self(1 << 6);
    /// The 16 reserved bytes of a CNP.
    pub const CNP: Self = Self(1 << 7);

    const BYTES: [u8; 8] = [8, 16, 28, 4, 8, 4, 4, 16];

    /// Returns the headers of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all headers of `other` are in this set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the length of these headers together, in bytes.
    pub const fn bytes(self) -> usize {
        let mut bytes = 0;
        let mut bit = 0;
        while bit < 8 {
            if self.0 & (1 << bit) != 0 {
                bytes += Self::BYTES[bit] as usize;
            }
            bit += 1;
        }
        bytes
    }
}

/// The kind of queue pair that a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification, for any kind.
    Cnp,
    /// Our extension, in the manufacturer's space: RC between two of our stacks.
    Extension,
}

/// The operation that a packet is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// The request of an RDMA READ.
    ReadRequest,
    /// The data of an RDMA READ.
    ReadResponse,
    /// Acknowledgement, positive or negative.
    Acknowledge,
    /// The result of an atomic operation.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Congestion notification packet.
    Cnp,
    /// Selective acknowledgement, our extension.
    Sack,
    /// The question whether a NAK is the peer's, our extension.
    Challenge,
    /// The answer to a challenge.
    ChallengeAnswer,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several packets.
    Last,
    /// The whole message.
    Only,
}

/// Defines the opcodes and the list of all.
macro_rules! opcodes {
    ($(#[$of:meta])* pub enum Opcode { $($(#[$doc:meta])* $name:ident = $number:literal,)* }) => {
        $(#[$of])*
        pub enum Opcode { $($(#[$doc])* $name = $number,)* }

        impl Opcode {
            /// All of them, in the order of their numbers.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];
        }
    };
}

opcodes! {
    /// The opcode of a packet.
    ///
    /// Reliable datagram and XRC opcodes are not supported, nor FLUSH and ATOMIC WRITE of newer
    /// editions of the standard: such packets are dropped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    #[allow(missing_docs, reason = "the names are those of IBTA volume 1, 9.2")]
    pub enum Opcode {
        RcSendFirst = 0x00,
        RcSendMiddle = 0x01,
        RcSendLast = 0x02,
        RcSendLastWithImm = 0x03,
        RcSendOnly = 0x04,
        RcSendOnlyWithImm = 0x05,
        RcWriteFirst = 0x06,
        RcWriteMiddle = 0x07,
        RcWriteLast = 0x08,
        RcWriteLastWithImm = 0x09,
        RcWriteOnly = 0x0a,
        RcWriteOnlyWithImm = 0x0b,
        RcReadRequest = 0x0c,
        RcReadResponseFirst = 0x0d,
        RcReadResponseMiddle = 0x0e,
        RcReadResponseLast = 0x0f,
        RcReadResponseOnly = 0x10,
        RcAcknowledge = 0x11,
        RcAtomicAcknowledge = 0x12,
        RcCompareSwap = 0x13,
        RcFetchAdd = 0x14,
        RcSendLastWithInvalidate = 0x16,
        RcSendOnlyWithInvalidate = 0x17,
        UcSendFirst = 0x20,
        UcSendMiddle = 0x21,
        UcSendLast = 0x22,
        UcSendLastWithImm = 0x23,
        UcSendOnly = 0x24,
        UcSendOnlyWithImm = 0x25,
        UcWriteFirst = 0x26,
        UcWriteMiddle = 0x27,
        UcWriteLast = 0x28,
        UcWriteLastWithImm = 0x29,
        UcWriteOnly = 0x2a,
        UcWriteOnlyWithImm = 0x2b,
        UdSendOnly = 0x64,
        UdSendOnlyWithImm = 0x65,
        /// Congestion notification packet (IBTA annex A17, A17.9.3).
        Cnp = 0x81,
        /// Our extension: a selective acknowledgement, sent only to peers that agreed to it.
        Sack = 0xc0,
        /// Our extension: asks whether a NAK that would end the connection is the peer's.
        Challenge = 0xc1,
        /// Our extension: the answer, with the number of the challenge.
        ChallengeAnswer = 0xc2,
    }
}

/// The properties of an opcode.
#[derive(Clone, Copy)]
struct Shape {
    transport: Transport,
    operation: Operation,
    position: Position,
    headers: HeaderSet,
    header_bytes: u8,
    payload: bool,
}

impl Opcode {
    /// Returns the opcode with this number; `None` if it is undefined or not supported.
    pub const fn from_u8(number: u8) -> Option<Self> {
        BY_NUMBER[number as usize]
    }

    /// Returns the kind of queue pair that the packet is for.
    pub const fn transport(self) -> Transport {
        self.shape().transport
    }

    /// Returns the operation that the packet is part of.
    pub const fn operation(self) -> Operation {
        self.shape().operation
    }

    /// Returns the position of the packet in its message.
    pub const fn position(self) -> Position {
        self.shape().position
    }

    /// Returns the headers that follow the BTH.
    pub const fn headers(self) -> HeaderSet {
        self.shape().headers
    }

    /// Returns the length of all headers in bytes, with the BTH.
    pub const fn header_bytes(self) -> usize {
        self.shape().header_bytes as usize
    }

    /// Returns whether a payload may follow.
    pub const fn has_payload(self) -> bool {
        self.shape().payload
    }

    /// Returns whether this is the first of several packets.
    pub const fn is_first(self) -> bool {
        matches!(self.position(), Position::First)
    }

    /// Returns whether this is neither the first nor the last packet of its message.
    pub const fn is_middle(self) -> bool {
        matches!(self.position(), Position::Middle)
    }

    /// Returns whether this is the last of several packets.
    pub const fn is_last(self) -> bool {
        matches!(self.position(), Position::Last)
    }

    /// Returns whether this packet is the whole message.
    pub const fn is_only(self) -> bool {
        matches!(self.position(), Position::Only)
    }

    /// Returns whether a message begins with this packet.
    pub const fn starts_message(self) -> bool {
        self.is_first() || self.is_only()
    }

    /// Returns whether a message ends with this packet.
    pub const fn ends_message(self) -> bool {
        self.is_last() || self.is_only()
    }

    /// Returns whether the packet is part of a SEND.
    pub const fn is_send(self) -> bool {
        matches!(self.operation(), Operation::Send)
    }

    /// Returns whether the packet is part of an RDMA WRITE.
    pub const fn is_write(self) -> bool {
        matches!(self.operation(), Operation::Write)
    }

    /// Returns whether the packet carries data of an RDMA READ.
    pub const fn is_read_response(self) -> bool {
        matches!(self.operation(), Operation::ReadResponse)
    }

    /// Returns whether the packet requests an atomic operation.
    pub const fn is_atomic(self) -> bool {
        matches!(self.operation(), Operation::CompareSwap | Operation::FetchAdd)
    }

    /// Returns whether the packet goes to the requester: acknowledgements and results.
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse
                | Operation::Acknowledge
                | Operation::AtomicAcknowledge
                | Operation::Sack
                | Operation::ChallengeAnswer
        )
    }

    /// Returns whether the packet goes to the responder.
    pub const fn is_request(self) -> bool {
        !self.is_response() && !matches!(self.operation(), Operation::Cnp)
    }

    /// Returns whether the packet carries immediate data.
    pub const fn has_imm(self) -> bool {
        self.headers().has(HeaderSet::IMM)
    }

    const fn shape(self) -> &'static Shape {
        &SHAPES[self as usize]
    }
}

static BY_NUMBER: [Option<Opcode>; 256] = by_number();
/// By number; rows of undefined numbers are never read.
static SHAPES: [Shape; 256] = shapes();

const fn by_number() -> [Option<Opcode>; 256] {
    let mut table = [None; 256];
    let mut at = 0;
    while at < Opcode::ALL.len() {
        table[Opcode::ALL[at] as usize] = Some(Opcode::ALL[at]);
        at += 1;
    }
    table
}

const fn shapes() -> [Shape; 256] {
    let mut table = [describe(0); 256];
    let mut number: u8 = 0;
    while number < u8::MAX {
        number += 1;
        table[number as usize] = describe(number);
    }
    table
}

const fn describe(number: u8) -> Shape {
    use Operation as O;
    use Position as P;
    let transport = transport(number);
    let (operation, position) = match (transport, number & 0x1f) {
        (Transport::Cnp, _) => (O::Cnp, P::Only),
        (Transport::Extension, 0x01) => (O::Challenge, P::Only),
        (Transport::Extension, 0x02) => (O::ChallengeAnswer, P::Only),
        (Transport::Extension, _) => (O::Sack, P::Only),
        (_, 0x00) => (O::Send, P::First),
        (_, 0x01) => (O::Send, P::Middle),
        (_, 0x02 | 0x03 | 0x16) => (O::Send, P::Last),
        (_, 0x06) => (O::Write, P::First),
        (_, 0x07) => (O::Write, P::Middle),
        (_, 0x08 | 0x09) => (O::Write, P::Last),
        (_, 0x0a | 0x0b) => (O::Write, P::Only),
        (_, 0x0c) => (O::ReadRequest, P::Only),
        (_, 0x0d) => (O::ReadResponse, P::First),
        (_, 0x0e) => (O::ReadResponse, P::Middle),
        (_, 0x0f) => (O::ReadResponse, P::Last),
        (_, 0x10) => (O::ReadResponse, P::Only),
        (_, 0x11) => (O::Acknowledge, P::Only),
        (_, 0x12) => (O::AtomicAcknowledge, P::Only),
        (_, 0x13) => (O::CompareSwap, P::Only),
        (_, 0x14) => (O::FetchAdd, P::Only),
        (_, _) => (O::Send, P::Only),
    };
    let headers = headers(transport, number & 0x1f);
    Shape {
        transport,
        operation,
        position,
        headers,
        header_bytes: (super::bth::BYTES + headers.bytes()) as u8,
        payload: matches!(
            operation,
            O::Send | O::Write | O::ReadResponse | O::Sack | O::Challenge | O::ChallengeAnswer
        ),
    }
}

const fn transport(number: u8) -> Transport {
    match number >> 5 {
        0 => Transport::Rc,
        1 => Transport::Uc,
        3 => Transport::Ud,
        4 => Transport::Cnp,
        _ => Transport::Extension,
    }
}

const fn headers(transport: Transport, operation: u8) -> HeaderSet {
    use HeaderSet as H;
    let outer = match transport {
        Transport::Rc | Transport::Uc => H::NONE,
        Transport::Ud => H::DETH,
        Transport::Cnp => return H::CNP,
        Transport::Extension => return H::AETH,
    };
    outer.with(match operation {
        0x03 | 0x05 | 0x09 => H::IMM,
        0x06 | 0x0a | 0x0c => H::RETH,
        0x0b => H::RETH.with(H::IMM),
        0x0d | 0x0f | 0x10 | 0x11 => H::AETH,
        0x12 => H::AETH.with(H::ATOMIC_ACK),
        0x13 | 0x14 => H::ATOMIC,
        0x16 | 0x17 => H::IETH,
        _ => H::NONE,
    })
}

#[cfg(test)]
mod tests;
