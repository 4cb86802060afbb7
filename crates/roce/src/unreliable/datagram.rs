//! The receiving half of UD (IBTA volume 1, 9.8.3): each packet is a message, from any sender.
use crate::config::{InitAttr, RtrAttr};
use crate::input::{Arrival, Env};
use crate::responder::receives::{ReceiveError, Receives};
use crate::wire::Deth;
use catchment_verbs_types::{GRH_BYTES, Success, WcOpcode, WcStatus};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DatagramReceiver {
    mtu: usize,
    qkey: u32,
    pub(crate) receives: Receives,
}

impl DatagramReceiver {
    pub(crate) fn connect(&mut self, attr: &RtrAttr, access: &InitAttr) {
        self.mtu = attr.path_mtu.bytes();
        self.qkey = access.qkey;
    }

    pub(crate) fn handle(&mut self, arrival: &Arrival<'_>, env: &mut Env<'_>) {
        let Some(deth) = arrival.headers.deth.filter(|deth| deth.qkey == self.qkey) else {
            env.counters.dropped += 1;
            return;
        };
        if self.receives.is_empty() || arrival.payload.len() > self.mtu {
            env.counters.messages_dropped += 1;
            return;
        }
        env.counters.bytes_received += arrival.payload.len() as u64;
        match self.fill(arrival, env) {
            Ok(()) => {
                let success = self.success(arrival, &deth);
                self.receives.complete(success, arrival.headers.bth.solicited, env.completions);
            }
            Err(status) => {
                env.counters.messages_dropped += 1;
                self.receives.fail(status, env.completions);
            }
        }
    }

    fn fill(&mut self, arrival: &Arrival<'_>, env: &mut Env<'_>) -> Result<(), WcStatus> {
        let header = match arrival.grh {
            Some(grh) => self.receives.fill(grh, env.memory),
            None => self.receives.skip(GRH_BYTES as u64),
        };
        header
            .and_then(|()| self.receives.fill(arrival.payload, env.memory))
            .map_err(ReceiveError::status)
    }

    fn success(&self, arrival: &Arrival<'_>, deth: &Deth) -> Success {
        Success::plain(WcOpcode::Recv, self.receives.filled())
            .with_imm(arrival.headers.imm)
            .from_qpn(deth.src_qpn)
    }
}
