//! Paths of markers and step functions.

use super::{Scale, px};
use crate::escape::put;

/// Path of a step function with values between consecutive edges; missing values leave gaps.
pub(crate) fn steps(x: &Scale, y: &Scale, edges: &[f64], values: &[Option<f64>]) -> String {
    let mut path = String::new();
    let mut is_connected = false;
    for (value, ends) in values.iter().zip(edges.windows(2)) {
        if let Some(value) = value {
            let (from, to, height) = (px(x.position(ends[0])), px(x.position(ends[1])), px(y.position(*value)));
            match is_connected {
                true => put!(path, "V{height}H{to}"),
                false => put!(path, "M{from} {height}H{to}"),
            }
        }
        is_connected = value.is_some();
    }
    path
}

/// Area under a step function over intervals of equal width on [0, 1].
pub(crate) fn step_area(x: &Scale, y: &Scale, values: &[f64]) -> String {
    let mut path = format!("M{} {}", px(x.position(0.0)), px(y.position(0.0)));
    for (index, value) in values.iter().enumerate() {
        let end = (index + 1) as f64 / values.len() as f64;
        put!(path, "V{}H{}", px(y.position(*value)), px(x.position(end)));
    }
    put!(path, "V{}Z", px(y.position(0.0)));
    path
}

/// Path of a marker around a point: circle, square, triangle, diamond, inverted triangle or cross.
pub(crate) fn marker(shape: usize, x: f64, y: f64, r: f64) -> String {
    let polygon = |corners: &[(f64, f64)]| {
        let mut path = String::new();
        for (index, (dx, dy)) in corners.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            put!(path, "{command}{} {}", px(x + dx * r), px(y + dy * r));
        }
        path + "Z"
    };
    match shape % 6 {
        0 => {
            let (from, r, diameter) = (px(x - r), px(r), px(2.0 * r));
            format!("M{from} {}a{r} {r} 0 1 0 {diameter} 0a{r} {r} 0 1 0 -{diameter} 0Z", px(y))
        }
        1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => polygon(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
        3 => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        4 => polygon(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
        _ => {
            let (a, b) = (0.4, 1.2);
            let (upper, lower) = ([(-a, -b), (a, -b), (a, -a), (b, -a)], [(b, a), (a, a), (a, b), (-a, b)]);
            polygon(&[&upper[..], &lower, &[(-a, a), (-b, a), (-b, -a), (-a, -a)]].concat())
        }
    }
}

#[test]
fn steps_leave_gaps() {
    let scale = Scale::new(super::ScaleKind::Linear, (0.0, 1.0), (0.0, 10.0));
    let path = steps(&scale, &scale, &[0.0, 0.2, 0.4, 0.6, 1.0], &[Some(0.5), Some(1.0), None, Some(0.0)]);
    assert_eq!(path, "M0 5H2V10H4M6 0H10");
    assert_eq!(step_area(&scale, &scale, &[0.5, 1.0]), "M0 0V5H5V10H10V0Z");
}
