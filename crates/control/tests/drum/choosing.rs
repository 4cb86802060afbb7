//! Which applications get queue pairs of their own.
use super::family::{Family, Spread};
use super::oracle::instances;
use catchment_control::drum::{
    Candidates, Fifo, Problem, Rotation, Score, Selector, SmallestFirst, TopK, Weight,
};

fn choice<'a>(problem: &'a Problem, k: usize, floor: f64) -> TopK<'a> {
    let all = problem.weights.len();
    let arrivals = (0..all as u64).rev().collect();
    let sizes = (0..all).map(|at| ((at * 7) % all) as f64).collect();
    TopK::new(problem, k, vec![floor; all], arrivals, sizes).expect("good values")
}

/// S5.13.
#[test]
fn the_best_set_of_every_instance_is_found_and_bounded() {
    for instance in instances().iter().filter(|instance| instance.kind.as_deref() == Some("topk")) {
        let optimum = instance.optimum.as_ref().expect("an optimum");
        let problem = instance.problem().expect("a problem");
        let topk = choice(&problem, instance.k.expect("a k"), instance.x_floor.expect("a floor"));
        let best = topk.choose(&Score).expect("a choice");
        let scale = best.solution.objective.magnitude;
        let error = (optimum.objective - best.solution.objective.value()) / scale;
        assert!(error.abs() <= 1e-9, "{}: {error}", instance.id);
        assert_eq!(Some(&best.active[0]), optimum.active.as_ref(), "{}", instance.id);
        assert!(best.bound >= optimum.objective - 1e-9 * scale, "{}: {}", instance.id, best.bound);
    }
}

#[test]
fn no_selector_is_better_than_every_set() {
    let mut family = Family::new(1, 8, 1.0, 0, 4);
    family.spread = Spread::Decades;
    family.most_batch = 16;
    family.beta_hat = 1e-5;
    let problem = family.draw();
    let topk = choice(&problem, 3, 0.05);
    let mut best = f64::NEG_INFINITY;
    for set in 0_u32..256 {
        if set.count_ones() == 3 {
            let active = (0..8).filter(|at| set >> at & 1 == 1).collect();
            best = best.max(topk.solve(&[active]).expect("a problem").0.objective.value());
        }
    }
    let selectors: [&dyn Selector; 4] = [&Score, &Weight, &Fifo, &SmallestFirst];
    for selector in selectors {
        let found = topk.choose(selector).expect("a choice");
        let value = found.solution.objective.value();
        assert!(value <= best + 1e-9, "{}: {value}, {best}", selector.name());
        assert!(found.bound >= best - 1e-9, "{}: {}", selector.name(), found.bound);
        if selector.uses_scores() {
            assert!((best - value) / found.solution.objective.magnitude <= 1e-6, "{value}, {best}");
        }
    }
}

/// S5.13: by score, weight, arrival and size.
#[test]
fn selectors_rank_by_what_they_are_named_after() {
    let candidates = Candidates {
        weights: &[1.0, 4.0, 0.0, 2.0],
        arrivals: &[3, 2, 0, 1],
        sizes: &[10.0, 30.0, 1.0, 20.0],
        scores: Some(&[5.0, 0.0, 9.0, 6.0]),
    };
    assert_eq!(Score.select(0, &candidates, 2), [0, 3]);
    assert_eq!(Weight.select(0, &candidates, 2), [1, 3]);
    assert_eq!(Fifo.select(0, &candidates, 2), [1, 3]);
    assert_eq!(SmallestFirst.select(0, &candidates, 2), [0, 3]);
    assert_eq!(Weight.select(0, &candidates, 9), [0, 1, 3]);
}

/// S5.13: as many as the paper has queue pairs for, 20 to 50, of 60 applications; the more, the better.
#[test]
fn twenty_to_fifty_of_sixty_are_chosen() {
    let mut family = Family::new(1, 60, 1.0, 0, 5);
    (family.spread, family.beta_hat) = (Spread::Decades, 1e-5);
    let problem = family.draw();
    let floor = 1e-4;
    let selectors: [&dyn Selector; 4] = [&Score, &Weight, &Fifo, &SmallestFirst];
    for selector in selectors {
        let mut before = f64::NEG_INFINITY;
        for k in [20, 35, 50] {
            let found = choice(&problem, k, floor).choose(selector).expect("a choice");
            let (name, active) = (selector.name(), &found.active[0]);
            assert_eq!(active.len(), k, "{name}");
            let mut others = (0..60).filter(|at| !active.contains(at));
            assert!(others.all(|at| found.solution.x[at] <= floor), "{name}, {k}");
            let value = found.solution.objective.value();
            assert!(value > before, "{name}, {k}: {value} after {before}");
            let gap = (found.bound - value) / found.solution.objective.magnitude;
            assert!(gap >= -1e-9, "{name}, {k}: {gap}");
            assert!(!selector.uses_scores() || gap <= 1e-4, "{k}: {gap}");
            before = value;
        }
    }
}

/// S5.13: whoever is not chosen now is so later.
#[test]
fn in_rotation_everybody_is_served() {
    let mut family = Family::new(1, 60, 2.0, 0, 8);
    family.beta_hat = 1e-9;
    let problem = family.draw();
    let floor = 1e-4;
    let topk = choice(&problem, 6, floor);
    let mut rotation = Rotation::new(&problem);
    let mut served = vec![false; 60];
    for _ in 0..300 {
        let choice = topk.choose(&rotation).expect("a choice");
        choice.active[0].iter().for_each(|at| served[*at] = true);
        rotation.observe(&choice.solution.x);
    }
    assert!(served.iter().all(|served| *served), "{served:?}");
}
