//! Who runs what, and what that is worth.
use crate::Random;
use catchment_control::drum::{
    Application, Coupling, Destination, Edges, Objective, Problem, Settings, Solver, marginal,
    utility,
};
use std::collections::{BTreeMap, BTreeSet};

/// Worth of completions as a fraction, at an equal share.
const BETA_HAT: f64 = 0.1;
/// How little an application may ask for, in decades below its share.
const MOST_DECADES: f64 = 5.0;
/// Other hosts that an application sends to.
const DEGREE: usize = 2;

/// A host's capacities and what it runs, by number.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) send: f64,
    pub(super) completion: f64,
    pub(super) beta: f64,
    pub(super) applications: BTreeMap<u32, Application>,
}

/// All hosts; those that are gone run nothing.
#[derive(Clone, Debug)]
pub(super) struct Population {
    pub(super) members: Vec<Member>,
    pub(super) alpha: f64,
    numbers: u32,
    random: Random,
}

/// What a replacement changed, by host.
pub(super) struct Replaced {
    /// Applications that left.
    pub(super) left: Vec<(u32, u32)>,
    /// Applications that came, or send to less.
    pub(super) changed: Vec<(u32, Application)>,
}

/// What is the best that all hosts together can have.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    best: Objective,
    /// Fraction of the optimum that shares of hosts alone are worth.
    pub(super) alone: f64,
}

fn fraction(random: &mut Random) -> f64 {
    random.below(1 << 30) as f64 / f64::from(1 << 30)
}

impl Population {
    pub(super) fn new(
        hosts: usize,
        numbers: u32,
        active: usize,
        alpha: f64,
        mut random: Random,
    ) -> Self {
        let members = (0..hosts).map(|_| {
            let send = 20.0 + 80.0 * fraction(&mut random);
            let completion = 15.0 + 35.0 * fraction(&mut random);
            let share = completion / active as f64;
            let beta = BETA_HAT * share * share;
            Member { send, completion, beta, applications: BTreeMap::new() }
        });
        let mut new = Self { members: members.collect(), alpha, numbers, random };
        let mut running: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); hosts];
        for running in &mut running {
            while running.len() < active.min(numbers as usize) {
                running.insert(new.random.below(u64::from(numbers)) as u32);
            }
        }
        let mut places = vec![Vec::new(); numbers as usize];
        for (host, running) in running.iter().enumerate() {
            running.iter().for_each(|number| places[*number as usize].push(host as u32));
        }
        for (host, running) in running.into_iter().enumerate() {
            for number in running {
                let application = new.draw(host as u32, number, &places[number as usize]);
                new.members[host].applications.insert(number, application);
            }
        }
        new
    }

    /// Makes completions worth a tenth of what rates are worth where `active` applications share a host equally, at every
    /// fairness.
    pub(super) fn temper(&mut self, active: usize) {
        for member in &mut self.members {
            member.beta *= marginal(self.alpha, member.completion / active as f64);
        }
    }

    /// Draws an application that sends to itself and to some of `places`.
    fn draw(&mut self, host: u32, number: u32, places: &[u32]) -> Application {
        let batch = |random: &mut Random| 1.0 / random.between(1, 4) as f64;
        let mut parts: BTreeMap<u32, f64> = BTreeMap::new();
        for _ in 0..DEGREE {
            let to = self.random.pick(places).unwrap_or(host);
            if to != host {
                *parts.entry(to).or_default() += 0.1 + fraction(&mut self.random);
            }
        }
        let sum: f64 = parts.values().sum();
        let mut destinations = Vec::new();
        for (to, part) in parts {
            let completions = part / sum * batch(&mut self.random);
            destinations.push(Destination { host: to, application: number, completions });
        }
        let completions = batch(&mut self.random);
        destinations.push(Destination { host, application: number, completions });
        let weight = self.random.pick(&[1.0, 2.0, 4.0, 8.0]).unwrap_or(1.0);
        Application { application: number, weight, limit: None, destinations }
    }

    fn places(&self) -> Vec<Vec<u32>> {
        let mut places = vec![Vec::new(); self.numbers as usize];
        for (host, member) in self.members.iter().enumerate() {
            member.applications.keys().for_each(|number| {
                places[*number as usize].push(host as u32);
            });
        }
        places
    }

    /// Replaces a part of all applications; nobody sends to those that left any more.
    pub(super) fn replace(&mut self, part: f64) -> Replaced {
        let places = self.places();
        let (mut left, mut came) = (Vec::new(), BTreeSet::new());
        for host in 0..self.members.len() {
            let old: Vec<u32> = self.members[host].applications.keys().copied().collect();
            for number in old {
                if fraction(&mut self.random) >= part {
                    continue;
                }
                let free = |number: &u32| !self.members[host].applications.contains_key(number);
                let drawn = self.random.below(u64::from(self.numbers)) as u32;
                let Some(new) = Some(drawn).filter(free) else { continue };
                let application = self.draw(host as u32, new, &places[new as usize]);
                self.members[host].applications.remove(&number);
                self.members[host].applications.insert(new, application);
                left.push((host as u32, number));
                came.insert((host as u32, new));
            }
        }
        let gone: BTreeSet<(u32, u32)> =
            left.iter().copied().filter(|end| !came.contains(end)).collect();
        let mut changes = self.stop_sending_to(|to| gone.contains(&(to.host, to.application)));
        changes.extend(came);
        Replaced { left, changed: self.named(changes) }
    }

    /// Takes destinations away; returns whose, by host and number.
    fn stop_sending_to(&mut self, gone: impl Fn(&Destination) -> bool) -> BTreeSet<(u32, u32)> {
        let mut changes = BTreeSet::new();
        for (host, member) in self.members.iter_mut().enumerate() {
            for application in member.applications.values_mut() {
                let before = application.destinations.len();
                application.destinations.retain(|to| !gone(to));
                if application.destinations.len() != before {
                    changes.insert((host as u32, application.application));
                }
            }
        }
        changes
    }

    /// A part of all applications asks for little, or for more than it gets again if it did; returns which.
    pub(super) fn ask(&mut self, part: f64) -> Vec<(u32, Application)> {
        // So that what little is worth does not hide all else.
        let decades = MOST_DECADES / self.alpha.max(1.0);
        let mut changes = Vec::new();
        for (host, member) in self.members.iter_mut().enumerate() {
            let share = member.completion / member.applications.len().max(1) as f64;
            for application in member.applications.values_mut() {
                if fraction(&mut self.random) < part {
                    let little = share * 10_f64.powf(-decades * fraction(&mut self.random));
                    application.limit = application.limit.is_none().then_some(little);
                    changes.push((host as u32, application.clone()));
                }
            }
        }
        changes
    }

    /// Multiplies the weights of a part of all applications by 4; returns which.
    pub(super) fn weigh(&mut self, part: f64) -> Vec<(u32, Application)> {
        let mut changes = Vec::new();
        for (host, member) in self.members.iter_mut().enumerate() {
            for application in member.applications.values_mut() {
                if fraction(&mut self.random) < part {
                    application.weight *= 4.0;
                    changes.push((host as u32, application.clone()));
                }
            }
        }
        changes
    }

    /// A host is gone: who sent to it does not any more. Returns who that is, as it is now.
    pub(super) fn lose(&mut self, host: u32) -> Vec<(u32, Application)> {
        self.members[host as usize].applications.clear();
        let changes = self.stop_sending_to(|to| to.host == host);
        self.named(changes)
    }

    /// A host is back, with so many applications.
    pub(super) fn revive(&mut self, host: u32, active: usize) {
        let places = self.places();
        for _ in 0..active {
            let number = self.random.below(u64::from(self.numbers)) as u32;
            let application = self.draw(host, number, &places[number as usize]);
            self.members[host as usize].applications.insert(number, application);
        }
    }

    fn named(&self, names: BTreeSet<(u32, u32)>) -> Vec<(u32, Application)> {
        let named = |(host, number): (u32, u32)| {
            let known = self.members[host as usize].applications.get(&number);
            known.map(|application| (host, application.clone()))
        };
        names.into_iter().filter_map(named).collect()
    }

    pub(super) fn edges(&self) -> usize {
        let all = self.members.iter().flat_map(|member| member.applications.values());
        all.map(|application| application.destinations.len()).sum()
    }

    /// All applications as one problem.
    fn problem(&self) -> Problem {
        let (hosts, applications) = (self.members.len(), self.numbers as usize);
        let mut weights = vec![0.0; hosts * applications];
        let mut limits = vec![1.0; hosts * applications];
        let mut edges = Edges::default();
        let index = |host: usize, number: u32| host * applications + number as usize;
        for (host, member) in self.members.iter().enumerate() {
            for application in member.applications.values() {
                let from = index(host, application.application);
                weights[from] = application.weight;
                // Nobody has more than all of his host.
                limits[from] = application.limit.unwrap_or(member.send);
                for to in &application.destinations {
                    edges.push(from, index(to.host as usize, to.application), to.completions);
                }
            }
        }
        let mut all = self.members.iter().flat_map(|member| member.applications.values());
        let is_limited = all.any(|application| application.limit.is_some());
        let list = |value: fn(&Member) -> f64| self.members.iter().map(value).collect::<Vec<f64>>();
        Problem {
            hosts,
            applications,
            alpha: self.alpha,
            weights,
            beta: list(|member| member.beta),
            send_capacity: list(|member| member.send),
            completion_capacity: list(|member| member.completion),
            edges,
            coupling: Coupling::Equal,
            send_preemption: None,
            completion_preemption: None,
            limits: is_limited.then_some(limits),
        }
    }

    /// Finds the optimum with the central solver.
    pub(super) fn solve(&self) -> Result<Reference, String> {
        let problem = self.problem();
        let settings = Settings { gap: 1e-6, iterations: 2000, ..Settings::default() };
        let mut solver =
            Solver::<f64>::new(&problem, settings).map_err(|error| error.to_string())?;
        let alone = solver.recover();
        let solution = solver.solve();
        let objective = solution.objective;
        // The parts are those of the best point found: the gap to the bound is added to them.
        let rates = objective.rates + solution.bound - objective.value();
        let mut reference = Reference { best: Objective { rates, ..objective }, alone: 0.0 };
        reference.alone = reference.fraction(self.alpha, alone.value());
        Ok(reference)
    }

    /// Returns what rates in force are worth; minus infinity while one is 0.
    pub(super) fn worth(&self, rate: impl Fn(u32, u32) -> f64) -> f64 {
        let mut completed: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        let mut worth = 0.0;
        for (host, member) in self.members.iter().enumerate() {
            for application in member.applications.values() {
                let rate = rate(host as u32, application.application);
                if rate <= 0.0 {
                    return f64::NEG_INFINITY;
                }
                worth += application.weight * utility(self.alpha, rate);
                for to in &application.destinations {
                    *completed.entry((to.host, to.application)).or_default() +=
                        rate * to.completions;
                }
            }
        }
        let lost = completed.iter().map(|((host, _), completions)| {
            self.members[*host as usize].beta * marginal(2.0, *completions)
        });
        worth - lost.sum::<f64>()
    }
}

impl Reference {
    /// The fraction of the optimum that something is worth, free of units: the worse of gap and rate loss.
    pub(super) fn fraction(&self, alpha: f64, worth: f64) -> f64 {
        let gap = (self.best.value() - worth) / self.best.magnitude;
        1.0 - gap.max(self.best.rate_loss(alpha, worth))
    }
}
