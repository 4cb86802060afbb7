//! What a device moves and what a request costs it, measured between two queue pairs of its own: for policies that do
//! not say so. A line that is narrower than the device is not seen: its capacity has to be given.
use crate::daemon::open_device;
use crate::policy::{Below, Policy, request_bytes};
use catchment_verbs::mem::{Region, RegionOptions};
use catchment_verbs::{
    Access, Completion, Context, Cq, Mr, Payload, Qp, QpInit, QpTransition, RemoteAddr, RtrAttr,
    RtsAttr, SendOp, SendWr, Sge, VerbsError,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time of a measurement. The median of some counts.
const TIME: Duration = Duration::from_millis(60);
const MEASUREMENTS: usize = 5;
/// Bytes that chunks are taken from in turn: more than processors keep near, as the data of applications are.
const SPAN: u64 = 32 << 20;
/// Chunks in the device's hands, as in an agent.
const CHUNKS: u32 = 2;
/// Bytes of a short request, and how many are in the device's hands.
const SHORT_BYTES: u32 = 64;
const SHORT: u32 = 32;
/// Time after which a request that is not done will not be.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a device did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Calibration {
    /// Bytes a second, in WRITEs of a chunk.
    pub bytes_per_s: f64,
    /// WRITEs of 64 bytes a second.
    pub requests_per_s: f64,
}

impl Calibration {
    /// Returns what a request costs at least: as many bytes as can be sent in the time of a short one, as far as a policy
    /// may say so. That is what the device moves, or its line takes, if that is given and less.
    #[must_use]
    pub fn request_bytes(&self, line_bytes_per_s: Option<u64>) -> u32 {
        let line = line_bytes_per_s.map_or(f64::INFINITY, |line| line as f64);
        request_bytes(self.bytes_per_s.min(line) / self.requests_per_s)
    }

    /// Writes what was measured into a policy: `request_bytes`, and the capacities between hosts that it does not say.
    pub fn fill(&self, policy: &mut Policy) {
        policy.request_bytes = Some(self.request_bytes(policy.between.send_bytes_per_s));
        let between = &mut policy.between;
        let bytes_per_s = self.bytes_per_s as u64;
        between.send_bytes_per_s.get_or_insert(bytes_per_s);
        between.completion_bytes_per_s.get_or_insert(bytes_per_s);
    }
}

/// Measures a device for some tenths of a second, in which it does nothing else.
///
/// # Errors
/// When it cannot be opened, or a request fails.
pub fn calibrate(device: &Below, chunk_bytes: u32) -> Result<Calibration, VerbsError> {
    let context = open_device(device)?;
    let span = SPAN.next_multiple_of(u64::from(chunk_bytes.max(SHORT_BYTES)));
    let mut pair = Pair::connect(&*context, span)?;
    let chunks = pair.median(chunk_bytes, CHUNKS)?;
    let requests_per_s = pair.median(SHORT_BYTES, SHORT)?;
    Ok(Calibration { bytes_per_s: chunks * f64::from(chunk_bytes), requests_per_s })
}

/// Two queue pairs of a device, connected with each other.
struct Pair<'a> {
    context: &'a dyn Context,
    cq: Arc<dyn Cq>,
    from: Box<dyn Qp>,
    _to: Box<dyn Qp>,
    mr: Arc<dyn Mr>,
    /// The first half of the region is read, the second half of as many bytes is written.
    span: u64,
}

fn failed(what: &str, why: impl std::fmt::Display) -> VerbsError {
    VerbsError::Invalid(format!("calibrating: {what}: {why}"))
}

impl<'a> Pair<'a> {
    fn connect(context: &'a dyn Context, span: u64) -> Result<Self, VerbsError> {
        let cq = context.create_cq(2 * SHORT, None)?;
        let pd = context.alloc_pd()?;
        let region = Region::alloc(2 * span as usize, RegionOptions::default())?;
        let mr = pd.reg_mr(region, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let mut ends =
            [pd.create_qp(QpInit::rc(&cq, SHORT, 0))?, pd.create_qp(QpInit::rc(&cq, SHORT, 0))?];
        let at = [ends[1].endpoint(), ends[0].endpoint()];
        let steps = [
            [0, 1].map(|_| QpTransition::ToInit { access: Access::REMOTE_WRITE }),
            at.map(|peer| QpTransition::ToRtr(RtrAttr::new(peer))),
            [0, 1].map(|_| QpTransition::ToRts(RtsAttr::default())),
        ];
        for step in steps {
            for (end, transition) in ends.iter_mut().zip(step) {
                end.modify(transition).map_err(|error| failed("connecting", error))?;
            }
        }
        let [from, to] = ends;
        Ok(Self { context, cq, from, _to: to, mr, span })
    }

    /// Returns how many WRITEs of these bytes are done in a second, with so many outstanding.
    fn median(&mut self, bytes: u32, outstanding: u32) -> Result<f64, VerbsError> {
        let mut found = (0..MEASUREMENTS)
            .map(|_| self.measure(bytes, outstanding))
            .collect::<Result<Vec<f64>, _>>()?;
        found.sort_by(f64::total_cmp);
        Ok(found[MEASUREMENTS / 2])
    }

    fn measure(&mut self, bytes: u32, outstanding: u32) -> Result<f64, VerbsError> {
        let (mut given, mut done) = (0_u64, 0_u64);
        let (start, mut heard) = (Instant::now(), Instant::now());
        while given > done || start.elapsed() < TIME {
            while given - done < outstanding.into() && start.elapsed() < TIME {
                self.post(given, bytes)?;
                given += 1;
            }
            let now = self.poll()?;
            if now > 0 {
                (done, heard) = (done + now, Instant::now());
            } else if heard.elapsed() > PATIENCE {
                return Err(failed("a WRITE", format!("not done after {PATIENCE:?}")));
            } else {
                self.context.progress();
                std::thread::yield_now();
            }
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }

    fn post(&mut self, number: u64, bytes: u32) -> Result<(), VerbsError> {
        let pieces = self.span / u64::from(bytes);
        let offset = number % pieces * u64::from(bytes);
        let (addr, lkey) = (self.mr.addr() + offset, self.mr.lkey());
        let to = RemoteAddr { addr: addr + self.span, rkey: self.mr.rkey() };
        let sges = [Sge { addr, bytes, lkey }];
        let write = SendWr::new(number, SendOp::Write(to), Payload::Sges(&sges));
        self.from.post_send(&[write]).map_err(|error| failed("posting a WRITE", error))
    }

    /// Returns how many requests were done.
    fn poll(&self) -> Result<u64, VerbsError> {
        let mut completions = [Completion::EMPTY; SHORT as usize];
        let count = self.cq.poll(&mut completions).map_err(|error| failed("polling", error))?;
        for done in &completions[..count] {
            if let Err(failure) = &done.result {
                return Err(failed("a WRITE", format!("{:?}", failure.status)));
            }
        }
        Ok(count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_measured_and_a_policy_keeps_what_it_says() {
        let found = calibrate(&Below::Shm, 64 << 10).unwrap();
        assert!(found.bytes_per_s > 0.0 && found.requests_per_s > 0.0, "{found:?}");
        let text = r#"{"applications": [{"name": "a"}], "between": {"send_bytes_per_s": 7}}"#;
        let mut policy = Policy::parse(text).unwrap();
        found.fill(&mut policy);
        assert_eq!(policy.request_bytes, Some(64), "the line is slow");
        assert_eq!(policy.between.send_bytes_per_s, Some(7));
        assert_eq!(policy.between.completion_bytes_per_s, Some(found.bytes_per_s as u64));
    }

    #[test]
    fn a_request_costs_what_a_policy_may_say() {
        let of = |bytes_per_s, requests_per_s| Calibration { bytes_per_s, requests_per_s };
        assert_eq!(of(12.8e9, 7.575e6).request_bytes(None), 1690);
        assert_eq!(of(12.8e9, 7.575e6).request_bytes(Some(6_400_000_000)), 845);
        assert_eq!(of(12.8e9, 7.575e6).request_bytes(Some(u64::MAX)), 1690);
        assert_eq!(of(1e6, 1e6).request_bytes(None), 64);
        assert_eq!(of(1e12, 1.0).request_bytes(None), 65_536);
    }
}
