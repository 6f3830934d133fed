//! L-BFGS, which minimizes a smooth function by its gradients (Liu and Nocedal, Mathematical Programming 45, 1989), with a line search
//! for the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5, 3.6 and 7.4).

use std::collections::VecDeque;

/// Pairs of steps and changes of the gradient that are kept.
const MEMORY: usize = 10;
/// Share of the expected decrease that a step must reach.
const DECREASE: f64 = 1e-4;
/// Share of the slope that may be left after a step.
const CURVATURE: f64 = 0.9;
/// Evaluations of one line search.
const SEARCHES: usize = 20;

/// When the search for a minimum ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoppingRule {
    /// Most iterations.
    pub iterations: u32,
    /// Norm of the gradient, over that at the start, at which it ends.
    pub tolerance: f64,
}

/// How the search for a minimum ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SolverEnd {
    /// The gradient is as small as asked for.
    Converged,
    /// The iterations are used up.
    OutOfIterations,
    /// No step makes the function smaller: the limit of the arithmetic.
    NoDecrease,
    /// The caller stopped it.
    Stopped,
}

/// A point with the function's value and gradient.
struct Point {
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A step and the change of the gradient along it.
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    /// 1 / (step change).
    rho: f64,
}

/// Minimizes a function from a point on, which the minimum replaces. `function` returns value and gradient; `on_iteration` is called with
/// the number of iterations, the value and the norm of the gradient, and stops the search by returning false.
///
/// # Errors
/// Returns the first error of `function`.
pub fn minimize<E>(
    x: &mut Vec<f64>,
    rule: StoppingRule,
    mut function: impl FnMut(&[f64]) -> Result<(f64, Vec<f64>), E>,
    mut on_iteration: impl FnMut(u32, f64, f64) -> bool,
) -> Result<SolverEnd, E> {
    let (value, gradient) = function(x)?;
    let mut at = Point { x: x.clone(), value, gradient };
    let first = dot(&at.gradient, &at.gradient).sqrt();
    let mut pairs: VecDeque<Pair> = VecDeque::new();
    for iteration in 1..=rule.iterations {
        if dot(&at.gradient, &at.gradient).sqrt() <= rule.tolerance * first {
            return Ok(SolverEnd::Converged);
        }
        let mut direction = direction(&at.gradient, &pairs);
        if dot(&direction, &at.gradient) >= 0.0 {
            pairs.clear();
            direction = at.gradient.iter().map(|g| -g).collect();
        }
        // without a past, a step of length 1 at most
        let length = if pairs.is_empty() { (1.0 / dot(&direction, &direction).sqrt()).min(1.0) } else { 1.0 };
        let Some(next) = line_search(&at, &direction, length, &mut function)? else {
            return Ok(SolverEnd::NoDecrease);
        };
        let step: Vec<f64> = next.x.iter().zip(&at.x).map(|(new, old)| new - old).collect();
        let change: Vec<f64> = next.gradient.iter().zip(&at.gradient).map(|(new, old)| new - old).collect();
        let curvature = dot(&step, &change);
        if curvature > 1e-10 * dot(&change, &change).sqrt() * dot(&step, &step).sqrt() {
            if pairs.len() == MEMORY {
                pairs.pop_front();
            }
            pairs.push_back(Pair { step, change, rho: 1.0 / curvature });
        }
        at = next;
        x.clone_from(&at.x);
        if !on_iteration(iteration, at.value, dot(&at.gradient, &at.gradient).sqrt()) {
            return Ok(SolverEnd::Stopped);
        }
    }
    Ok(SolverEnd::OutOfIterations)
}

/// The negative gradient times an estimate of the inverse of the second derivatives (the two loops of the paper).
fn direction(gradient: &[f64], pairs: &VecDeque<Pair>) -> Vec<f64> {
    let mut q: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut shares = Vec::with_capacity(pairs.len());
    for pair in pairs.iter().rev() {
        let share = pair.rho * dot(&pair.step, &q);
        q.iter_mut().zip(&pair.change).for_each(|(q, y)| *q -= share * y);
        shares.push(share);
    }
    if let Some(last) = pairs.back() {
        let scale = 1.0 / (last.rho * dot(&last.change, &last.change));
        q.iter_mut().for_each(|q| *q *= scale);
    }
    for (pair, share) in pairs.iter().zip(shares.into_iter().rev()) {
        let other = pair.rho * dot(&pair.change, &q);
        q.iter_mut().zip(&pair.step).for_each(|(q, s)| *q += (share - other) * s);
    }
    q
}

/// A step along a line: its length, and the function's value and slope there.
#[derive(Clone, Copy)]
struct Trial {
    length: f64,
    value: f64,
    slope: f64,
}

/// A point along a direction that satisfies the strong Wolfe conditions, or at least makes the function smaller; `None` if none does.
fn line_search<E>(
    from: &Point,
    direction: &[f64],
    first: f64,
    function: &mut impl FnMut(&[f64]) -> Result<(f64, Vec<f64>), E>,
) -> Result<Option<Point>, E> {
    let slope = dot(&from.gradient, direction);
    let start = Trial { length: 0.0, value: from.value, slope };
    let mut evaluate = |length: f64| -> Result<(Trial, Point), E> {
        let x: Vec<f64> = from.x.iter().zip(direction).map(|(x, d)| x + length * d).collect();
        let (value, gradient) = function(&x)?;
        let trial = Trial { length, value, slope: dot(&gradient, direction) };
        Ok((trial, Point { x, value, gradient }))
    };
    let decreases = |trial: &Trial| trial.value <= start.value + DECREASE * trial.length * slope;
    let is_flat = |trial: &Trial| trial.slope.abs() <= -CURVATURE * slope;
    let (mut low, mut high): (Trial, Option<Trial>) = (start, None);
    let (mut length, mut best): (f64, Option<Point>) = (first, None);
    for _ in 0..SEARCHES {
        let (trial, point) = evaluate(length)?;
        let is_good = trial.value.is_finite() && decreases(&trial);
        if is_good && is_flat(&trial) {
            return Ok(Some(point));
        }
        if !is_good || trial.value >= low.value {
            high = Some(trial);
        } else {
            // the minimum lies beyond, or between this and the lowest so far
            if trial.slope * (high.map_or(f64::INFINITY, |high| high.length) - low.length) >= 0.0 {
                high = Some(low);
            }
            low = trial;
            best = Some(point);
        }
        length = match high {
            None => 2.0 * length,
            Some(high) => between(&low, &high),
        };
    }
    Ok(best)
}

/// The minimum of the cubic through two trials, kept away from both.
fn between(low: &Trial, high: &Trial) -> f64 {
    let width = high.length - low.length;
    let middle = low.length + 0.5 * width;
    if !high.value.is_finite() {
        return middle;
    }
    let d1 = low.slope + high.slope - 3.0 * (low.value - high.value) / (low.length - high.length);
    let d2 = (d1 * d1 - low.slope * high.slope).sqrt() * width.signum();
    let cubic = high.length - width * (high.slope + d2 - d1) / (high.slope - low.slope + 2.0 * d2);
    let share = (cubic - low.length) / width;
    if share.is_finite() && (0.1..=0.9).contains(&share) { cubic } else { middle }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StoppingRule = StoppingRule { iterations: 200, tolerance: 1e-9 };

    #[test]
    fn a_quadratic_ends_at_its_minimum() {
        // f = sum of i (x_i - i)^2 / 2
        let function = |x: &[f64]| -> Result<(f64, Vec<f64>), ()> {
            let terms = x.iter().zip(1..).map(|(x, i)| f64::from(i) * (x - f64::from(i)).powi(2) / 2.0);
            Ok((terms.sum(), x.iter().zip(1..).map(|(x, i)| f64::from(i) * (x - f64::from(i))).collect()))
        };
        let mut x = vec![0.0; 20];
        assert_eq!(minimize(&mut x, RULE, function, |_, _, _| true), Ok(SolverEnd::Converged));
        x.iter().zip(1..).for_each(|(x, i)| assert!((x - f64::from(i)).abs() < 1e-6, "{x} {i}"));
    }

    #[test]
    fn the_valley_of_rosenbrock_is_followed() {
        let mut evaluations = 0;
        let function = |x: &[f64]| -> Result<(f64, Vec<f64>), ()> {
            evaluations += 1;
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            Ok((a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b]))
        };
        let mut x = vec![-1.2, 1.0];
        assert_eq!(minimize(&mut x, RULE, function, |_, _, _| true), Ok(SolverEnd::Converged));
        assert!((x[0] - 1.0).abs() < 1e-6 && (x[1] - 1.0).abs() < 1e-6, "{x:?}");
        assert!(evaluations < 80, "{evaluations}");
    }

    #[test]
    fn the_caller_can_stop_and_errors_come_through() {
        let function = |x: &[f64]| Ok::<_, ()>((x[0] * x[0], vec![2.0 * x[0]]));
        let rule = StoppingRule { iterations: 5, tolerance: 0.0 };
        assert_eq!(minimize(&mut vec![3.0], rule, function, |_, _, _| false), Ok(SolverEnd::Stopped));
        let failing = |_: &[f64]| Err::<(f64, Vec<f64>), _>("broken");
        assert_eq!(minimize(&mut vec![3.0], rule, failing, |_, _, _| true), Err("broken"));
    }
}
