//! Checking the ICRC of IPv4 packets on a UDP socket, which hides the identification.
//!
//! The ICRC covers identification, flags and fragment offset. Senders choose the identification,
//! some a new one for each packet. A CRC is linear: the difference between the ICRC received and
//! the one computed with identification 0 is the CRC of the difference in these four bytes alone,
//! shifted by the number of bytes that follow. Shifting it back recovers the four bytes. Of their
//! 32 bits, only the 16 of the identification and "don't fragment" may be set; a damaged packet
//! passes with a probability of 2^-15. UDP and link have their own checksums.
//!
//! Shifting back is a multiplication by a constant that depends on the length: a linear map, kept
//! as eight tables of 16 numbers.
use super::icrc::{self, IcrcMismatch};
use super::net::{IPV4_BYTES, Ip, Ipv4Id, NetHeader, UDP_BYTES};

/// The polynomial of the CRC, lowest power first: bit 31 is the power 0.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// 1/x modulo the polynomial.
const INVERSE_X: u32 = POLYNOMIAL << 1 | 1;

/// Bytes between the four unknown ones and the BTH.
const BETWEEN_BYTES: usize = (IPV4_BYTES - 8) + UDP_BYTES;

const LENGTHS: usize = 64;

/// Product modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = times_x(b);
        bit >>= 1;
    }
    product
}

const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLYNOMIAL & (a & 1).wrapping_neg())
}

/// x^-power modulo the polynomial.
const fn inverse_power(mut power: usize) -> u32 {
    let (mut result, mut square) = (ONE, INVERSE_X);
    while power != 0 {
        if power & 1 != 0 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        power >>= 1;
    }
    result
}

/// Returns the factor that shifts a difference back over the rest of the packet and the four bytes.
const fn back(transport_bytes: usize) -> u32 {
    inverse_power(8 * (BETWEEN_BYTES + transport_bytes) + 32)
}

/// Returns the four bytes; `moved` is their difference from those of [`Ipv4Id::UNFRAGMENTED`].
fn four_bytes(moved: u32) -> Option<Ipv4Id> {
    let base = u32::from_le_bytes(Ipv4Id::UNFRAGMENTED.to_bytes());
    Ipv4Id::from_bytes((moved ^ base).to_le_bytes())
}

/// Returns the identification that explains `syndrome`: the ICRC received, XOR the one computed
/// with [`Ipv4Id::UNFRAGMENTED`]. `None` when the packet is damaged.
///
/// `transport_bytes` is the length from the BTH to the pad. [`Solver`] is faster.
pub fn solve(syndrome: u32, transport_bytes: usize) -> Option<Ipv4Id> {
    four_bytes(multiply(syndrome, back(transport_bytes)))
}

/// Multiplication by a constant, four bits at a time.
struct Factor {
    transport_bytes: usize,
    tables: [[u32; 16]; 8],
}

impl Factor {
    fn new(transport_bytes: usize) -> Self {
        let mut tables = [[0; 16]; 8];
        let mut power = back(transport_bytes);
        // From the highest bit, which is the power 0, down.
        for table in tables.iter_mut().rev() {
            for bit in (0..4).rev() {
                let with_bit = |(bits, _): &(usize, _)| bits & (1 << bit) != 0;
                for (_, product) in table.iter_mut().enumerate().filter(with_bit) {
                    *product ^= power;
                }
                power = times_x(power);
            }
        }
        Self { transport_bytes, tables }
    }

    fn times(&self, syndrome: u32) -> u32 {
        let numbered = self.tables.iter().enumerate();
        numbered
            .fold(0, |product, (at, table)| product ^ table[(syndrome >> (4 * at)) as usize & 15])
    }
}

/// Solves for the identification, with a cache of tables for the lengths seen last: about 35 KiB.
pub struct Solver {
    factors: Box<[Factor]>,
}

impl Solver {
    /// Creates a solver with an initial cache.
    pub fn new() -> Self {
        Self { factors: (0..LENGTHS).map(|slot| Factor::new(4 * slot)).collect() }
    }

    /// As [`solve`]. Takes nanoseconds for a length that was seen before, and about a microsecond
    /// for a new one.
    pub fn solve(&mut self, syndrome: u32, transport_bytes: usize) -> Option<Ipv4Id> {
        if syndrome == 0 {
            return Some(Ipv4Id::UNFRAGMENTED);
        }
        // Packets are multiples of 4.
        let factor = &mut self.factors[(transport_bytes / 4) % LENGTHS];
        if factor.transport_bytes != transport_bytes {
            *factor = Factor::new(transport_bytes);
        }
        four_bytes(factor.times(syndrome))
    }

    /// Checks the ICRC of a packet, whatever its identification, and returns it; `None` over IPv6.
    /// That of `net` is ignored.
    ///
    /// # Errors
    /// When no identification explains the ICRC: drop the packet.
    pub fn verify(
        &mut self,
        net: &NetHeader,
        transport: &[u8],
        received: u32,
    ) -> Result<Option<Ipv4Id>, IcrcMismatch> {
        let net = net.with_ipv4_id(Ipv4Id::UNFRAGMENTED);
        self.judge(&net, transport.len(), received, icrc::compute(&net, transport))
    }

    /// Does the second half of [`Solver::verify`], for a caller that keeps a begun [`icrc::Icrc`]
    /// for many packets: `computed` is the ICRC with identification [`Ipv4Id::UNFRAGMENTED`].
    ///
    /// # Errors
    /// As for [`Solver::verify`].
    #[inline]
    pub fn judge(
        &mut self,
        net: &NetHeader,
        transport_bytes: usize,
        received: u32,
        computed: u32,
    ) -> Result<Option<Ipv4Id>, IcrcMismatch> {
        let mismatch = IcrcMismatch { received, computed };
        match net.ip {
            Ip::V4 { .. } => {
                self.solve(received ^ computed, transport_bytes).map(Some).ok_or(mismatch)
            }
            Ip::V6 { .. } if received == computed => Ok(None),
            Ip::V6 { .. } => Err(mismatch),
        }
    }
}

impl Default for Solver {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Solver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Solver").finish_non_exhaustive()
    }
}
