//! Handing trains to the kernel, and what may come back instead of success.
use super::batch::Train;
use super::control::Control;
use super::name::Name;
use super::sys::{self, MAX_MESSAGES, Message};
use super::{Datagrams, Outgoing, SendBatch, SendFault, seal};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Bytes sealed ahead of one system call: what was just checksummed is still in the cache when the
/// kernel copies it.
const CALL_BYTES_MAX: usize = 256 << 10;
/// Faults kept for the caller; more are only counted.
const FAULTS_MAX: usize = 64;

/// Why a flush ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// The socket's send buffer is full: wait until it is writable.
    SocketFull,
    /// A queue of the kernel or the device is full: try again after a moment.
    NoBuffers,
}

/// What a flush did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flush {
    /// Packets that are with the kernel now.
    pub packets: usize,
    /// Their bytes, ICRC included, UDP and IP headers not.
    pub bytes: usize,
    /// Set if packets are left in the batch.
    pub blocked: Option<Blocked>,
}

/// What a batch has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendCounters {
    /// Packets handed to the kernel.
    pub packets: u64,
    /// Their bytes, ICRC included.
    pub bytes: u64,
    /// Messages that carried them; a train that the kernel segments is one.
    pub messages: u64,
    /// System calls.
    pub calls: u64,
    /// Flushes that had to stop.
    pub blocked: u64,
    /// Packets that the kernel refused.
    pub refused_packets: u64,
    /// Trains sent packet by packet, because the path does not support GSO.
    pub gso_fallbacks: u64,
}

/// What to do after a refusal.
enum Remedy {
    Stop(Blocked),
    Retry,
    Drop { ip_mtu: Option<u32> },
}

impl SendBatch {
    /// Hands all packets to the kernel. Never blocks. What cannot be sent now waits for the
    /// next flush; what can never be sent is dropped and reported by [`SendBatch::take_faults`].
    ///
    /// `datagrams` is what the batch was created for.
    pub fn flush(&mut self, datagrams: &dyn Datagrams) -> Flush {
        let mut done = Flush::default();
        if let Some(last) = self.trains.last_mut() {
            last.closed = true;
        }
        while self.next < self.trains.len() {
            match self.send_some(datagrams) {
                Ok(count) => self.account(count, &mut done),
                Err(error) => match self.remedy(datagrams, &error) {
                    Remedy::Retry => {}
                    Remedy::Drop { ip_mtu } => self.drop_next(error, ip_mtu),
                    Remedy::Stop(blocked) => {
                        self.counters.blocked += 1;
                        done.blocked = Some(blocked);
                        return done;
                    }
                },
            }
        }
        self.clear();
        done
    }

    /// Makes one system call with as many trains as fit; returns how many were sent.
    fn send_some(&mut self, datagrams: &dyn Datagrams) -> io::Result<usize> {
        let range = self.next..self.call_end();
        for at in range.clone() {
            seal::seal(self, at);
        }
        self.counters.calls += 1;
        datagrams.send(&mut Outgoing { batch: self, range })
    }

    /// Sends these trains with one call on a socket; returns how many were taken.
    pub(super) fn send_to_socket(
        &mut self,
        trains: Range<usize>,
        fd: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let count = trains.len();
        for (i, at) in trains.enumerate() {
            self.address(i, at);
        }
        // SAFETY: `address` wrote all messages just now, and nothing was moved since.
        unsafe { sys::send(fd, &mut self.messages[..count]) }
    }

    /// Writes message `i` of the next call: train `at`.
    fn address(&mut self, i: usize, at: usize) {
        let train = &self.trains[at];
        let (name, name_bytes) = Name::of(train.route.remote);
        self.names[i] = name;
        let control_bytes = write_control(&mut self.controls[i], train);
        let vectors = &mut self.vectors[train.vectors.clone()];
        // SAFETY: name and control are in boxes of the batch; the vectors lead into its arena and
        // into regions that it keeps mapped.
        self.messages[i] = unsafe {
            Message::new(
                ((&raw mut self.names[i]).cast(), name_bytes),
                (vectors.as_mut_ptr(), vectors.len()),
                ((&raw mut self.controls[i]).cast(), control_bytes),
            )
        };
    }

    /// Returns the train after the last one of the next call.
    fn call_end(&self) -> usize {
        let mut end = self.next;
        let mut bytes = 0;
        while let Some(train) = self.trains.get(end) {
            bytes += train.bytes;
            let full = end - self.next == MAX_MESSAGES || bytes > CALL_BYTES_MAX;
            if full && end > self.next {
                break;
            }
            end += 1;
        }
        end
    }

    fn account(&mut self, trains: usize, done: &mut Flush) {
        for train in &self.trains[self.next..self.next + trains] {
            done.packets += train.packets.len();
            done.bytes += train.bytes;
            self.counters.messages += 1;
            self.counters.packets += train.packets.len() as u64;
            self.counters.bytes += train.bytes as u64;
        }
        self.next += trains;
    }

    /// Returns what the refusal of the next train means.
    fn remedy(&mut self, datagrams: &dyn Datagrams, error: &io::Error) -> Remedy {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Remedy::Stop(Blocked::SocketFull),
            Some(libc::ENOBUFS | libc::ENOMEM) => Remedy::Stop(Blocked::NoBuffers),
            Some(libc::EMSGSIZE | libc::EINVAL) => self.too_long_or_not_cut(datagrams),
            Some(libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) if self.next_is_cut() => {
                self.fall_back()
            }
            _ => Remedy::Drop { ip_mtu: None },
        }
    }

    fn next_is_cut(&self) -> bool {
        self.trains[self.next].is_cut()
    }

    /// Kernels differ in how they call a packet that exceeds the MTU of its path, and in how they
    /// refuse to cut: the MTU decides what was meant.
    fn too_long_or_not_cut(&mut self, datagrams: &dyn Datagrams) -> Remedy {
        let train = &self.trains[self.next];
        let headers = if train.route.remote.is_ipv4() { 28 } else { 48 };
        let path = datagrams.path_to(train.route.remote);
        let ip_mtu = path.ok().map(|path| path.ip_mtu);
        if ip_mtu.is_some_and(|mtu| train.segment_bytes + headers > mtu as usize) {
            return Remedy::Drop { ip_mtu };
        }
        if train.is_cut() {
            return self.fall_back();
        }
        Remedy::Drop { ip_mtu: None }
    }

    /// Sends packet by packet to this peer from now on.
    fn fall_back(&mut self) -> Remedy {
        self.counters.gso_fallbacks += 1;
        let train = self.trains[self.next].clone();
        let peer = train.route.remote.ip();
        tracing::warn!(%peer, "the path does not support GSO; sending packets one by one");
        self.refuse_gso(peer);
        let singles = train.packets.clone().map(|at| Train {
            packets: at..at + 1,
            vectors: self.gather_alone(at),
            segment_bytes: self.packets[at].bytes,
            bytes: self.packets[at].bytes,
            closed: true,
            // The identification of IPv4, which the ICRC covers, is different now.
            sealed: false,
            route: train.route,
        });
        let singles: Vec<_> = singles.collect();
        self.trains.splice(self.next..=self.next, singles);
        Remedy::Retry
    }

    fn drop_next(&mut self, source: io::Error, ip_mtu: Option<u32>) {
        let train = &self.trains[self.next];
        self.counters.refused_packets += train.packets.len() as u64;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(SendFault {
                remote: train.route.remote,
                packets: train.packets.len(),
                bytes: train.segment_bytes,
                ip_mtu,
                source,
            });
        }
        self.next += 1;
    }

    /// Takes the list of what was dropped; the oldest 64, the counters know all.
    pub fn take_faults(&mut self) -> Vec<SendFault> {
        std::mem::take(&mut self.faults)
    }

    /// Counts a packet that went past the batch, in a call of its own.
    pub(crate) fn note_single(&mut self, bytes: usize, was_sent: bool) {
        self.counters.calls += 1;
        if was_sent {
            self.counters.packets += 1;
            self.counters.messages += 1;
            self.counters.bytes += bytes as u64;
        } else {
            self.counters.refused_packets += 1;
        }
    }

    /// Returns what the batch has done since it was made.
    pub fn counters(&self) -> SendCounters {
        self.counters
    }
}

fn write_control(control: &mut Control, train: &Train) -> usize {
    let mut end = 0;
    if train.is_cut() {
        // At most 64 KiB, by the limit of a train.
        end = control.segment(end, train.segment_bytes as u16);
    }
    if train.route.traffic_class != 0 {
        let (remote, traffic_class) = (train.route.remote, train.route.traffic_class);
        end = control.traffic_class(end, remote.is_ipv6(), traffic_class);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::super::{IcrcCheck, RecvRing, Route, SocketOptions, UdpSocket, options};
    use super::*;
    use catchment_roce::wire::icrc;
    use std::os::fd::AsFd;

    #[test]
    fn a_way_that_takes_no_gso_gets_packets_one_by_one_with_the_right_icrc() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let bind = || UdpSocket::bind(address.parse().unwrap(), &SocketOptions::default());
            let (tx, rx) = (bind().unwrap(), bind().unwrap());
            // Without a checksum the kernel refuses to segment; this socket does not know.
            options::drop_checksum(tx.as_fd(), tx.local().is_ipv6()).unwrap();
            let mut batch = SendBatch::new(&tx, 64);
            let route = Route { local: tx.local(), remote: rx.local(), traffic_class: 0 };
            for round in 0..2 {
                for i in 0..10u8 {
                    batch.push(&route, &[i; 200], &[]).unwrap();
                }
                let done = batch.flush(&tx);
                assert_eq!((done.packets, done.blocked), (10, None), "round {round}");
            }
            // The second time it was not even tried.
            assert_eq!(batch.counters().gso_fallbacks, 1);
            assert_eq!(batch.gso_refused(), [rx.local().ip()]);
            assert_eq!(batch.counters().messages, 20);

            let mut ring = RecvRing::new(32);
            let mut check = IcrcCheck::new();
            // Over loopback, what was sent is there.
            assert_eq!(ring.receive(&rx).unwrap(), 20);
            // Each is alone now: identification 0, also where the receiver could solve for another.
            for packet in ring.packets() {
                let (transport, received) = icrc::split(packet.bytes).unwrap();
                let net = super::super::net_header(packet.from, packet.to).unwrap();
                icrc::verify(&net, transport, received).unwrap();
            }
            let firsts: Vec<u8> =
                ring.packets().map(|packet| check.check(&packet).unwrap()[0]).collect();
            assert!(firsts.iter().copied().eq((0..10).chain(0..10)), "{firsts:?}");
        }
    }
}
