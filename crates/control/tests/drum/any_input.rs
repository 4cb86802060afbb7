//! Whatever goes in, a status or an error that names the value comes out, and rates that fit.
use catchment_control::drum::{
    Coupling, Edges, Preemption, Problem, ProblemError, Real, Settings, Solver, Start, max_min,
    solve_exactly,
};
use proptest::prelude::*;

/// Good values mostly, and some of every bad kind.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => 0.01_f64..100.0,
        1 => Just(0.0),
        1 => prop::sample::select(vec![
            -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e12, 1e-12, 1e300, 5e-324,
        ]),
    ]
}

/// Values that pass the checks, however far apart.
fn extreme() -> impl Strategy<Value = f64> {
    prop_oneof![4 => 0.1_f64..10.0, 1 => Just(1e12), 1 => Just(1e-9), 1 => 1e-3_f64..1e3]
}

fn problem<S: Strategy<Value = f64> + Clone>(value: S) -> impl Strategy<Value = Problem> {
    (1_usize..4, 1_usize..5).prop_flat_map(move |(hosts, applications)| {
        let all = hosts * applications;
        let many = |count: usize| prop::collection::vec(value.clone(), count);
        let edge = (0..all, 0..all, value.clone());
        (
            (many(all), many(hosts), many(hosts), many(hosts), many(all)),
            prop::collection::btree_map((0..all, 0..all), edge.prop_map(|edge| edge.2), 0..3 * all),
            prop::sample::select(vec![0.5, 1.0, 1.3, 2.0, 5.0]),
            (any::<bool>(), any::<bool>(), any::<bool>()),
        )
            .prop_map(move |(values, pairs, alpha, (at_least, limited, preempted))| {
                let (weights, beta, send_capacity, completion_capacity, more) = values;
                let mut edges = Edges::default();
                pairs.into_iter().for_each(|((from, to), share)| edges.push(from, to, share));
                let cone = Preemption { reserved: more.clone(), uncertain: more.clone() };
                Problem {
                    hosts,
                    applications,
                    alpha,
                    weights,
                    beta,
                    send_capacity,
                    completion_capacity,
                    edges,
                    coupling: if at_least { Coupling::AtLeast } else { Coupling::Equal },
                    send_preemption: preempted.then(|| cone.clone()),
                    completion_preemption: preempted.then_some(cone),
                    limits: limited.then_some(more),
                }
            })
    })
}

fn is_fine(problem: &Problem, x: &[f64], z: &[f64], over: f64) {
    let m = problem.applications;
    for host in 0..problem.hosts {
        let used = |v: &[f64], cone: &Option<Preemption>| -> f64 {
            let row = host * m..(host + 1) * m;
            let Some(cone) = cone else { return v[row].iter().sum() };
            let mean: f64 = row.clone().map(|at| cone.reserved[at] * v[at]).sum();
            mean + row.map(|at| (cone.uncertain[at] * v[at]).powi(2)).sum::<f64>().sqrt()
        };
        let sent = used(x, &problem.send_preemption) / problem.send_capacity[host];
        let completed = used(z, &problem.completion_preemption) / problem.completion_capacity[host];
        assert!(sent <= 1.0 + over && completed <= 1.0 + over, "host {host}: {sent}, {completed}");
    }
    for (at, x) in x.iter().enumerate() {
        assert_eq!(*x > 0.0, problem.weights[at] > 0.0, "application {at}: {x}");
        assert!(
            x.is_finite()
                && *x <= problem.limits.as_ref().map_or(f64::INFINITY, |limits| limits[at])
        );
    }
}

fn run<T: Real>(problem: &Problem, start: Start) {
    [None, Some(1e-3)].into_iter().for_each(|residual| run_until::<T>(problem, start, residual));
}

fn run_until<T: Real>(problem: &Problem, start: Start, residual: Option<f64>) {
    let settings = Settings { start, gap: 1e-6, residual, iterations: 60, ..Settings::default() };
    match Solver::<T>::new(problem, settings) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(mut solver) => {
            let solution = solver.solve();
            assert!(!solution.certified_gap().is_nan(), "{solution:?}");
            assert!(!solution.objective.value().is_nan(), "{solution:?}");
            is_fine(problem, &solution.x, &solution.z, 1e-9);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_values_end_with_a_status_or_an_error(problem in problem(value().boxed())) {
        run::<f64>(&problem, Start::Local);
        run::<f32>(&problem, Start::Fair);
        if let Ok(x) = max_min(&problem) {
            assert!(x.iter().all(|x| x.is_finite()), "{x:?}");
        }
    }

    #[test]
    fn values_far_apart_end_with_a_status(mut problem in problem(extreme().boxed())) {
        // Ends that do not exist are another test's.
        let weights = &problem.weights;
        assert!(weights.iter().all(|weight| *weight > 0.0));
        problem.beta[0] = 0.0;
        run::<f64>(&problem, Start::Local);
        run::<f64>(&problem, Start::Fair);
        run::<f32>(&problem, Start::Local);
        match solve_exactly(&problem) {
            Ok((solution, _)) => is_fine(&problem, &solution.x, &solution.z, 1e-9),
            Err(error) => assert_eq!(error, ProblemError::NotOneSided),
        }
    }
}

#[test]
fn errors_name_host_application_and_value() {
    let good = super::family::Family::new(2, 3, 1.0, 1, 1).draw();
    let message = |change: &dyn Fn(&mut Problem)| {
        let mut problem = good.clone();
        change(&mut problem);
        problem.check().expect_err("a bad value").to_string()
    };
    assert!(good.check().is_ok());
    type Case<'a> = (&'a dyn Fn(&mut Problem), &'a [&'a str]);
    let cases: [Case<'_>; 9] = [
        (&|p| p.weights[4] = -3.5, &["host 1", "application 1", "weight", "-3.5"]),
        (&|p| p.weights[4] = f64::NAN, &["host 1", "application 1", "weight", "NaN"]),
        (&|p| p.send_capacity[1] = 0.0, &["host 1", "send capacity", "0"]),
        (&|p| p.completion_capacity[0] = f64::INFINITY, &["host 0", "completion capacity", "inf"]),
        (&|p| p.beta[1] = -1.0, &["host 1", "beta", "-1"]),
        (&|p| p.edges.completions[0] = 0.0, &["host 0", "application 0", "completions", "0"]),
        (&|p| p.edges.to[2] = 77, &["edge 2", "77"]),
        (&|p| p.alpha = -1.0, &["alpha", "-1"]),
        (&|p| p.limits = Some(vec![1.0; 5]), &["limits", "5", "6"]),
    ];
    for (change, words) in cases {
        let message = message(change);
        words.iter().for_each(|word| assert!(message.contains(word), "{word} in {message}"));
    }
}
