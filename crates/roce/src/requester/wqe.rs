//! Send queue entries, and the segmentation of messages into packets.
use crate::Psn;
use crate::config::{Config, RtrAttr, WriteLayout};
use crate::wire::{AtomicEth, Bth, Headers, Opcode, PathMtu, Reth, pad_bytes};
use crate::wqe::SendWqe;
use catchment_verbs_types::{RemoteAddr, SendOp, Service};

/// A posted send request.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) request: SendWqe,
    pub(crate) bytes: u64,
    /// PSN of its first packet; valid once `sent` is not 0.
    pub(crate) first: Psn,
    /// PSNs that it takes.
    pub(crate) packets: u32,
    /// Of these, sent at least once.
    pub(crate) sent: u32,
    /// Of these, acknowledged in order.
    pub(crate) acked: u32,
    /// Of these, answered with data (READ, atomics).
    pub(crate) answered: u32,
}

/// One packet of a message: its headers, and its part of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) headers: Headers,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What all packets of a queue pair share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) service: Service,
    pub(crate) layout: WriteLayout,
    pub(crate) mtu: u64,
    pub(crate) dest_qpn: u32,
}

impl Shape {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            service: config.service,
            layout: config.write_layout,
            mtu: PathMtu::Mtu1024.bytes() as u64,
            dest_qpn: 0,
        }
    }

    /// Sets the peer's attributes from RTR.
    pub(crate) fn connect(&mut self, attr: &RtrAttr) {
        self.dest_qpn = attr.dest_qpn;
        self.mtu = attr.path_mtu.bytes() as u64;
    }
}

/// Returns the number of packets that a message of this length takes: at least one.
pub(crate) fn packets_of(bytes: u64, mtu: u64) -> u32 {
    bytes.div_ceil(mtu).max(1) as u32
}

impl Wqe {
    pub(crate) fn new(request: SendWqe, mtu: u64) -> Self {
        let bytes = request.payload.bytes();
        let packets = if request.op.is_atomic() { 1 } else { packets_of(bytes, mtu) };
        Self { request, bytes, first: Psn::default(), packets, sent: 0, acked: 0, answered: 0 }
    }

    /// Returns whether every packet was sent at least once.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent == self.packets
    }

    /// Returns whether nothing more is expected for it.
    pub(crate) fn is_done(&self) -> bool {
        let expected = if self.request.op.is_read_or_atomic() { self.answered } else { self.acked };
        self.is_sent() && expected == self.packets
    }

    /// Returns the number of payload bytes of `count` packets from packet `index` on.
    pub(crate) fn bytes_of(&self, index: u32, count: u32, mtu: u64) -> u64 {
        let at = |packet: u32| (u64::from(packet) * mtu).min(self.bytes);
        at(index + count) - at(index)
    }

    /// Returns the packet that takes `span` PSNs from `index` on.
    pub(crate) fn cut_span(&self, index: u32, span: u32, shape: &Shape) -> Cut {
        if self.request.op.is_read() {
            return self.ask(index, span, shape);
        }
        self.cut(index, shape)
    }

    /// Returns packet `index` of a SEND or WRITE, or an atomic request.
    pub(crate) fn cut(&self, index: u32, shape: &Shape) -> Cut {
        let offset = u64::from(index) * shape.mtu;
        let bytes = self.bytes_of(index, 1, shape.mtu);
        let (opcode, reth) = match self.request.op {
            SendOp::Write(remote) | SendOp::WriteImm(remote, _) => {
                // The receive of a train would complete with the length of its last packet only.
                let with_imm = matches!(self.request.op, SendOp::WriteImm(..));
                let train = shape.layout == WriteLayout::Train && !with_imm;
                let position = Position::of(index, self.packets);
                let position = if train { Position::Only } else { position };
                let imm = with_imm && index + 1 == self.packets;
                let reth = Reth {
                    va: remote.addr.wrapping_add(if train { offset } else { 0 }),
                    rkey: remote.rkey,
                    dma_bytes: if train { bytes } else { self.bytes } as u32,
                };
                (write_opcode(position, imm), Some(reth))
            }
            SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::SendTo(_)
            | SendOp::SendImmTo(..) => {
                (send_opcode(Position::of(index, self.packets), &self.request.op), None)
            }
            SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                return self.ask(index, 1, shape);
            }
        };
        let mut headers = Headers::new(self.bth(opcode.of(shape.service), index, shape));
        headers.bth.pad = pad_bytes(bytes as usize);
        headers.bth.solicited = self.request.solicited && opcode.takes_receive(index, self.packets);
        headers.reth = reth;
        match self.request.op {
            SendOp::WriteImm(_, imm) | SendOp::SendImm(imm) | SendOp::SendImmTo(_, imm) => {
                headers.imm = Some(imm)
            }
            SendOp::SendInvalidate(rkey) => headers.ieth = Some(rkey),
            SendOp::Write(_)
            | SendOp::Read(_)
            | SendOp::Send
            | SendOp::SendTo(_)
            | SendOp::CompareSwap { .. }
            | SendOp::FetchAdd { .. } => {}
        }
        Cut { headers, offset, bytes }
    }

    /// Returns the request for packets `index..index + count` of a READ, or an atomic request.
    pub(crate) fn ask(&self, index: u32, count: u32, shape: &Shape) -> Cut {
        let mut headers = Headers::new(self.bth(Opcode::RcReadRequest, index, shape));
        headers.bth.ack_req = true;
        match self.request.op {
            SendOp::CompareSwap { remote: RemoteAddr { addr: va, rkey }, compare, swap } => {
                headers.bth.opcode = Opcode::RcCompareSwap;
                headers.atomic = Some(AtomicEth { va, rkey, swap_or_add: swap, compare });
            }
            SendOp::FetchAdd { remote: RemoteAddr { addr: va, rkey }, add } => {
                headers.bth.opcode = Opcode::RcFetchAdd;
                headers.atomic = Some(AtomicEth { va, rkey, swap_or_add: add, compare: 0 });
            }
            SendOp::Read(remote) => {
                headers.reth = Some(Reth {
                    va: remote.addr.wrapping_add(u64::from(index) * shape.mtu),
                    rkey: remote.rkey,
                    dma_bytes: self.bytes_of(index, count, shape.mtu) as u32,
                });
            }
            SendOp::Write(_)
            | SendOp::WriteImm(..)
            | SendOp::Send
            | SendOp::SendImm(_)
            | SendOp::SendInvalidate(_)
            | SendOp::SendTo(_)
            | SendOp::SendImmTo(..) => {}
        }
        Cut { headers, offset: 0, bytes: 0 }
    }

    fn bth(&self, opcode: Opcode, index: u32, shape: &Shape) -> Bth {
        let qpn = match self.request.op.destination() {
            Some(to) => to.qpn,
            None => shape.dest_qpn,
        };
        Bth::new(opcode, qpn, self.first.add(index))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    First,
    Middle,
    Last,
    Only,
}

impl Position {
    fn of(index: u32, packets: u32) -> Self {
        match (index == 0, index + 1 == packets) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// An opcode of RC; [`RcOpcode::of`] returns that of another service.
#[derive(Clone, Copy)]
struct RcOpcode(Opcode);

impl RcOpcode {
    fn of(self, service: Service) -> Opcode {
        let class = match service {
            Service::Rc => 0x00,
            Service::Uc => 0x20,
            Service::Ud => 0x60,
        };
        // Operations that UC and UD lack were refused at posting.
        Opcode::from_u8(self.0 as u8 | class).unwrap_or(self.0)
    }

    /// Returns whether this packet completes a receive of the peer: only then the solicited bit
    /// matters.
    fn takes_receive(self, index: u32, packets: u32) -> bool {
        index + 1 == packets && (self.0.is_send() || self.0.has_imm())
    }
}

fn write_opcode(position: Position, imm: bool) -> RcOpcode {
    RcOpcode(match (position, imm) {
        (Position::First, _) => Opcode::RcWriteFirst,
        (Position::Middle, _) => Opcode::RcWriteMiddle,
        (Position::Last, false) => Opcode::RcWriteLast,
        (Position::Last, true) => Opcode::RcWriteLastWithImm,
        (Position::Only, false) => Opcode::RcWriteOnly,
        (Position::Only, true) => Opcode::RcWriteOnlyWithImm,
    })
}

fn send_opcode(position: Position, op: &SendOp) -> RcOpcode {
    let imm = matches!(op, SendOp::SendImm(_) | SendOp::SendImmTo(..));
    let invalidate = matches!(op, SendOp::SendInvalidate(_));
    RcOpcode(match position {
        Position::First => Opcode::RcSendFirst,
        Position::Middle => Opcode::RcSendMiddle,
        Position::Last if imm => Opcode::RcSendLastWithImm,
        Position::Last if invalidate => Opcode::RcSendLastWithInvalidate,
        Position::Last => Opcode::RcSendLast,
        Position::Only if imm => Opcode::RcSendOnlyWithImm,
        Position::Only if invalidate => Opcode::RcSendOnlyWithInvalidate,
        Position::Only => Opcode::RcSendOnly,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use catchment_verbs_types::{Payload, SendWr};

    const SHAPE: Shape =
        Shape { service: Service::Rc, layout: WriteLayout::Train, mtu: 1024, dest_qpn: 7 };

    fn opcodes_and_lengths(op: SendOp) -> Vec<(Opcode, u64, u32)> {
        let wr = SendWr::new(1, op, Payload::Inline(&[0; 2500]));
        let wqe = Wqe::new(SendWqe::new(&wr), SHAPE.mtu);
        let cuts = (0..wqe.packets).map(|index| wqe.cut(index, &SHAPE));
        let cuts = cuts.map(|cut| {
            (cut.headers.bth.opcode, cut.bytes, cut.headers.reth.map_or(0, |reth| reth.dma_bytes))
        });
        cuts.collect()
    }

    #[test]
    fn a_long_write_is_a_train_of_whole_messages() {
        let expected = [
            (Opcode::RcWriteOnly, 1024, 1024),
            (Opcode::RcWriteOnly, 1024, 1024),
            (Opcode::RcWriteOnly, 452, 452),
        ];
        assert_eq!(opcodes_and_lengths(SendOp::Write(RemoteAddr::default())), expected);
    }

    /// The receive that it takes must complete with the length of all of it.
    #[test]
    fn a_long_write_with_immediate_is_one_message_in_any_layout() {
        let expected = [
            (Opcode::RcWriteFirst, 1024, 2500),
            (Opcode::RcWriteMiddle, 1024, 2500),
            (Opcode::RcWriteLastWithImm, 452, 2500),
        ];
        assert_eq!(opcodes_and_lengths(SendOp::WriteImm(RemoteAddr::default(), 5)), expected);
    }
}
