//! Connections of one queue pair each, on the NIC alone: RC and UC have states, UD has none.
use catchment_sim::verbs::{Model, Rnic};
use std::collections::BTreeMap;
use std::time::Duration;

/// A transport service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Reliable connections, acknowledged.
    Rc,
    /// Unreliable connections: complete when they have left the pipe.
    Uc,
    /// Datagrams to as many peers, likewise.
    Ud,
}

/// Returns how many requests of so many bytes a NIC does in a second, for connections that have one outstanding
/// each.
#[must_use]
pub fn services(service: Service, connections: usize, bytes: u32, count: u64) -> f64 {
    let mut nic = Rnic::new(Model::paper());
    let model = nic.model();
    let mut ready: BTreeMap<(Duration, usize), ()> =
        (0..connections).map(|connection| ((Duration::ZERO, connection), ())).collect();
    let mut last = Duration::ZERO;
    for _ in 0..count {
        let Some(((at, connection), ())) = ready.pop_first() else { break };
        let state = (service != Service::Ud).then_some(connection as u32);
        let leaves = nic.send(at, state, false, bytes.into());
        // Unreliable requests are complete without an answer, but their poster waits for one in the same way.
        last = leaves + model.reaches + model.returns;
        ready.insert((last, connection), ());
    }
    count as f64 / last.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S5.23.
    #[test]
    fn s5_23_rc_and_uc_drop_beyond_the_cache_and_ud_does_not() {
        let many_by_few = |service| {
            let [few, many] =
                [20, 100].map(|connections| services(service, connections, 32, 5_000));
            many / few
        };
        assert!(many_by_few(Service::Rc) < 0.6 && many_by_few(Service::Uc) < 0.6);
        assert!((many_by_few(Service::Ud) - 1.0).abs() < 0.05);
    }
}
