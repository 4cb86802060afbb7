//! The same problem, as a conic program for Clarabel.
use catchment_control::drum::{Coupling, Preemption, Problem};
use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, SolverStatus, SupportedConeT};

/// Rows `b - a v` in cones, and costs, over variables that are added as they are needed.
#[derive(Default)]
struct Program {
    costs: Vec<f64>,
    entries: Vec<(usize, usize, f64)>,
    right: Vec<f64>,
    cones: Vec<SupportedConeT<f64>>,
}

impl Program {
    fn variable(&mut self, cost: f64) -> usize {
        self.costs.push(cost);
        self.costs.len() - 1
    }

    /// Adds the row `constant + sum factor * variable`.
    fn row(&mut self, constant: f64, terms: &[(usize, f64)]) {
        let row = self.right.len();
        self.entries.extend(terms.iter().map(|(variable, factor)| (row, *variable, -factor)));
        self.right.push(constant);
    }

    /// `x^-alpha` integrated: adds a variable whose cost is `-weight U(x)`.
    fn utility(&mut self, alpha: f64, weight: f64, x: usize) {
        if alpha == 1.0 {
            let value = self.variable(-weight);
            self.row(0.0, &[(value, 1.0)]);
            self.row(1.0, &[]);
            self.row(0.0, &[(x, 1.0)]);
            self.cones.push(SupportedConeT::ExponentialConeT());
            return;
        }
        let value = self.variable(-weight / (1.0 - alpha));
        if alpha > 1.0 {
            self.row(0.0, &[(value, 1.0)]);
            self.row(0.0, &[(x, 1.0)]);
            self.row(1.0, &[]);
            self.cones.push(SupportedConeT::PowerConeT(1.0 / alpha));
        } else {
            self.row(0.0, &[(x, 1.0)]);
            self.row(1.0, &[]);
            self.row(0.0, &[(value, 1.0)]);
            self.cones.push(SupportedConeT::PowerConeT(1.0 - alpha));
        }
    }

    fn capacity(&mut self, capacity: f64, of: &[(usize, usize)], preemption: &Option<Preemption>) {
        let Some(Preemption { reserved, uncertain }) = preemption else {
            let terms: Vec<_> = of.iter().map(|(variable, _)| (*variable, -1.0)).collect();
            self.row(capacity, &terms);
            self.cones.push(SupportedConeT::NonnegativeConeT(1));
            return;
        };
        let norm = self.variable(0.0);
        let mut terms: Vec<_> =
            of.iter().map(|(variable, at)| (*variable, -reserved[*at])).collect();
        terms.push((norm, -1.0));
        self.row(capacity, &terms);
        self.cones.push(SupportedConeT::NonnegativeConeT(1));
        self.row(0.0, &[(norm, 1.0)]);
        of.iter().for_each(|(variable, at)| self.row(0.0, &[(*variable, uncertain[*at])]));
        self.cones.push(SupportedConeT::SecondOrderConeT(of.len() + 1));
    }

    fn solve(self) -> (SolverStatus, f64) {
        let (rows, columns) = (self.right.len(), self.costs.len());
        let mut by_column: Vec<Vec<(usize, f64)>> = vec![Vec::new(); columns];
        self.entries
            .iter()
            .for_each(|(row, column, value)| by_column[*column].push((*row, *value)));
        let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for mut column in by_column {
            column.sort_by_key(|(row, _)| *row);
            indices.extend(column.iter().map(|(row, _)| *row));
            values.extend(column.iter().map(|(_, value)| *value));
            starts.push(indices.len());
        }
        let matrix = CscMatrix::new(rows, columns, starts, indices, values);
        let settings = DefaultSettings {
            verbose: false,
            tol_gap_abs: 1e-9,
            tol_gap_rel: 1e-9,
            tol_feas: 1e-9,
            ..DefaultSettings::default()
        };
        let quadratic = CscMatrix::zeros((columns, columns));
        let mut solver = DefaultSolver::new(
            &quadratic, &self.costs, &matrix, &self.right, &self.cones, settings,
        )
        .expect("a program");
        solver.solve();
        (solver.solution.status, -solver.solution.obj_val)
    }
}

/// Returns Clarabel's optimum of a problem in which every application has a weight.
pub(crate) fn optimum(problem: &Problem) -> (SolverStatus, f64) {
    let mut program = Program::default();
    let all = problem.weights.len();
    let x: Vec<usize> = (0..all).map(|_| program.variable(0.0)).collect();
    for (at, x) in x.iter().enumerate() {
        program.utility(problem.alpha, problem.weights[at], *x);
        if let Some(limits) = &problem.limits {
            program.row(limits[at], &[(*x, -1.0)]);
            program.cones.push(SupportedConeT::NonnegativeConeT(1));
        }
    }
    let edges = &problem.edges;
    let mut incoming: Vec<Vec<(usize, f64)>> = vec![Vec::new(); all];
    for (edge, to) in edges.to.iter().enumerate() {
        incoming[*to as usize].push((x[edges.from[edge] as usize], -edges.completions[edge]));
    }
    let mut completions: Vec<Vec<(usize, usize)>> = vec![Vec::new(); problem.hosts];
    for (to, mut terms) in incoming.into_iter().enumerate().filter(|(_, terms)| !terms.is_empty()) {
        let host = to / problem.applications;
        let z = program.variable(0.0);
        completions[host].push((z, to));
        terms.push((z, 1.0));
        program.row(0.0, &terms);
        program.cones.push(match problem.coupling {
            Coupling::Equal => SupportedConeT::ZeroConeT(1),
            Coupling::AtLeast => SupportedConeT::NonnegativeConeT(1),
        });
        if problem.beta[host] > 0.0 {
            let square = program.variable(problem.beta[host]);
            program.row(0.0, &[(square, 1.0)]);
            program.row(0.0, &[(z, 1.0)]);
            program.row(1.0, &[]);
            program.cones.push(SupportedConeT::PowerConeT(1.0 / 3.0));
        }
    }
    for (host, completions) in completions.iter().enumerate() {
        let range = host * problem.applications..(host + 1) * problem.applications;
        let rates: Vec<_> = range.map(|at| (x[at], at)).collect();
        program.capacity(problem.send_capacity[host], &rates, &problem.send_preemption);
        program.capacity(
            problem.completion_capacity[host],
            completions,
            &problem.completion_preemption,
        );
    }
    program.solve()
}
