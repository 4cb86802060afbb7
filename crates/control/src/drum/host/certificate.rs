//! Prices that a host knows, and its part of the certificate: what its own rates and completions are worth, beside the
//! most that they could be at these prices (weak duality). The parts of all hosts add up to that of the whole problem.
use super::Host;
use super::application::{Edge, Sending};
use crate::drum::bound::Part;
use crate::drum::utility::{completion_marginal, marginal, utility};
use std::collections::BTreeMap;

impl Host {
    /// The prices of sending from here and of completing here: what a little more of either would add, in utility for
    /// each Mops.
    #[must_use]
    pub fn prices(&self) -> (f64, f64) {
        (self.sending.linear, self.completing.linear)
    }

    /// The price of completing at each host that applications here send to, this one included, as it said last: the
    /// highest of its applications.
    #[must_use]
    pub fn prices_told(&self) -> BTreeMap<u32, f64> {
        let mut prices = BTreeMap::new();
        for edge in self.applications.iter().flat_map(|sending| &sending.edges) {
            let Some(told) = edge.told else { continue };
            // What a completion is worth by itself is not part of what is asked for it.
            let price = told.price + edge.worth;
            prices
                .entry(edge.host)
                .and_modify(|most: &mut f64| *most = most.max(price))
                .or_insert(price);
        }
        prices
    }

    /// By how much less than the most that is possible at the prices that it knows this host's rates in force and its
    /// completions are worth, beside what they are worth; nothing while it has neither, or was not told all prices. If
    /// no host has more than this, and all know the same prices, all rates are worth less than the optimum by twice this at
    /// most, beside the sum of `w x U'(x)`: rates are worth that, and completions no more, as prices are paid out of it.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        let (sent, sent_worth) = self.gap_of_sending()?;
        let (completed, completed_worth) = self.gap_of_completing()?;
        let gap = (sent + completed).max(0.0) / (sent_worth + completed_worth);
        gap.is_finite().then_some(gap)
    }

    /// What is missing, and what there is.
    fn gap_of_sending(&self) -> Option<(f64, f64)> {
        let alpha = self.config.alpha;
        let takes_part = |sending: &&Sending| sending.takes_part(&self.targets);
        let all: Vec<&Sending> = self.applications.iter().filter(takes_part).collect();
        let rates: BTreeMap<u32, f64> = self.enforced().collect();
        let cost = |sending: &&Sending| {
            let price = |edge: &Edge| Some(edge.completions * edge.told?.price);
            sending.edges.iter().map(price).sum::<Option<f64>>()
        };
        let costs = all.iter().map(cost).collect::<Option<Vec<f64>>>()?;
        let list =
            |value: fn(&Sending) -> f64| all.iter().map(|one| value(one)).collect::<Vec<_>>();
        let (weights, limits) = (list(|one| one.weight), list(|one| one.limit));
        let part = Part {
            alpha,
            weights: &weights,
            costs: &costs,
            shares: &vec![1.0; costs.len()],
            limits: Some(&limits),
            capacity: self.config.send_capacity,
        };
        let best = part.best(self.sending.linear)?;
        let (mut is, mut worth) = (0.0, 0.0);
        for ((sending, cost), weight) in all.iter().zip(&costs).zip(&weights) {
            let x = rates.get(&sending.application).copied().unwrap_or(0.0);
            is += weight * utility(alpha, x) - cost * x;
            worth += weight * x * marginal(alpha, x);
        }
        Some((best - is, worth))
    }

    fn gap_of_completing(&self) -> Option<(f64, f64)> {
        let mut used: BTreeMap<u32, f64> = BTreeMap::new();
        for (key, edge) in &self.incoming {
            *used.entry(key.2).or_default() += edge.in_use();
        }
        let price = |application: &u32| Some(self.receiving.get(application)?.price());
        let prices = used.keys().map(price).collect::<Option<Vec<f64>>>()?;
        let part = Part {
            alpha: 3.0,
            weights: &[2.0 * self.config.beta],
            costs: &prices.iter().map(|price| -price).collect::<Vec<_>>(),
            shares: &vec![1.0; prices.len()],
            limits: None,
            capacity: self.config.completion_capacity,
        };
        let best = part.best(self.completing.linear)?;
        let (mut is, mut worth) = (0.0, 0.0);
        for (z, price) in used.values().zip(&prices) {
            is += 2.0 * self.config.beta * utility(3.0, *z) + price * z;
            worth += z * (price + completion_marginal(self.config.beta, *z));
        }
        Some((best - is, worth))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use crate::drum::{Application, Destination, Host, HostConfig, Input, Output};

    fn host(number: u32, completion_capacity: f64) -> Host {
        let config = HostConfig {
            host: number,
            incarnation: 1,
            alpha: 1.0,
            beta: 1e-6,
            send_capacity: 10.0,
            completion_capacity,
            round_ns: 1_000_000,
            lease_ns: 2_000_000_000,
            restarted: false,
        };
        Host::new(config, 0).unwrap()
    }

    fn application(application: u32, weight: f64) -> Application {
        let destinations = vec![Destination { host: 2, application: 0, completions: 1.0 }];
        Application { application, weight, limit: None, destinations }
    }

    /// Lets two hosts go on for a time, each message at once.
    fn run(hosts: &mut [Host; 2], now: &mut u64, ns: u64) {
        let end = *now + ns;
        while *now < end {
            let mut next = end;
            for at in 0..2 {
                hosts[at].handle(*now, Input::Tick).unwrap();
                loop {
                    match hosts[at].poll(*now) {
                        Output::Rates => {}
                        Output::Send { bytes, .. } => {
                            let packet = Input::Packet { from: 1 + at as u32, bytes: &bytes };
                            hosts[1 - at].handle(*now, packet).unwrap();
                        }
                        Output::Timeout(due) => {
                            next = next.min(due);
                            break;
                        }
                    }
                }
            }
            *now = next.max(*now + 1000);
        }
    }

    /// The certificate is large while rates are far from what prices allow, and small once they are agreed; the price is
    /// what the last of the capacity is worth.
    #[test]
    fn a_host_knows_prices_and_how_near_its_part_is() {
        let (mut hosts, mut now) = ([host(1, 9.0), host(2, 6.0)], 0);
        assert_eq!(hosts[0].gap(), None, "it has no part");
        hosts[0].handle(0, Input::Join(application(1, 3.0))).unwrap();
        hosts[0].handle(0, Input::Join(application(2, 1.0))).unwrap();
        run(&mut hosts, &mut now, 100_000_000);
        assert!(hosts.iter().all(Host::is_still));
        let price = hosts[1].prices().1;
        assert!((price - 4.0 / 6.0).abs() < 1e-3, "{price}");
        let told = hosts[0].prices_told();
        assert!((told[&2] - price).abs() < 1e-3, "{told:?}");
        let near = hosts.each_ref().map(|host| host.gap().unwrap());
        assert!(near.iter().all(|gap| *gap < 1e-3), "{near:?}");
        assert!(hosts[0].rounds_since_change() >= 3);
        // Rates go on as they were while the weight is another.
        hosts[0].handle(now, Input::Join(application(2, 4.0))).unwrap();
        assert_eq!(hosts[0].rounds_since_change(), 0);
        let far = hosts[0].gap().unwrap();
        assert!(far > 0.05, "{far}");
        run(&mut hosts, &mut now, 100_000_000);
        let near = hosts.each_ref().map(|host| host.gap().unwrap());
        assert!(near.iter().all(|gap| *gap < 1e-3), "{near:?}");
        assert!((hosts[1].prices().1 - 7.0 / 6.0).abs() < 2e-3);
    }
}
