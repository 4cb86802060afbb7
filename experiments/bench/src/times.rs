//! How long things take: requests in virtual time, and workers by chance.
use catchment_sim::Random;
use catchment_sim::verbs::{OpTime, Times};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long things take, in microseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constants {
    /// A WRITE of a block with what announces it, from posting to completion.
    pub(crate) t_write_us: f64,
    /// On top, for each byte: the link's rate in bytes per second.
    pub(crate) bytes_per_s: f64,
    /// A READ of the status bytes, from posting to completion.
    pub(crate) t_read_us: f64,
    /// A SEND, from posting until the peer has it: the way of an acknowledgement.
    pub(crate) t_send_us: f64,
    /// A small inline WRITE by itself, from posting until it is there: the way of a credit.
    pub(crate) t_credit_us: f64,
}

impl Constants {
    pub(crate) fn times(&self) -> Times {
        let us = |us: f64| Duration::from_nanos((us * 1000.0).round() as u64);
        Times {
            write: OpTime::occupying(us(self.t_write_us))
                .with_ps_per_byte((1e12 / self.bytes_per_s).round() as u64),
            write_inline: OpTime::one_way(us(self.t_credit_us)),
            read: OpTime::round_trip(us(self.t_read_us)),
            send: OpTime::one_way(us(self.t_send_us)),
            linked: Duration::ZERO,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Law {
    /// It is given back as soon as it is taken.
    Nothing,
    /// Always so long, in nanoseconds.
    Constant(f64),
    /// From nothing to twice this, each equally likely.
    Uniform(f64),
    Exponential(f64),
    /// Pareto with shape 1.5 and this mean.
    Pareto(f64),
}

/// Shape of the Pareto law.
const PARETO: f64 = 1.5;

impl Law {
    pub(crate) fn draw(self, random: &mut Random) -> f64 {
        // Never 0, never 1.
        let part = (random.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
        match self {
            Self::Nothing => 0.0,
            Self::Constant(mean) => mean,
            Self::Uniform(mean) => 2.0 * mean * part,
            Self::Exponential(mean) => -mean * part.ln(),
            Self::Pareto(mean) => mean * (PARETO - 1.0) / PARETO * part.powf(-1.0 / PARETO),
        }
    }
}
