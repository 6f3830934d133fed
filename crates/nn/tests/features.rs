//! Heads on features: logits and gradients by their definition in 64 bits, any number of threads, and what is refused.

use equipoise_nn::network::Head;
use equipoise_nn::{Architecture, Cpu, CpuOptions, Engine, Network, NnError, Optimizer, Precision, TensorKind};
use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;

const CLASSES: usize = 7;
const WIDTH: usize = 21;
const ROWS: usize = 61;

fn value(i: usize) -> f32 {
    ((i * 37 % 101) as f32 - 50.0) / 40.0
}

fn values(number: usize, seed: usize) -> Vec<f32> {
    (0..number).map(|i| value(i + 13 * seed)).collect()
}

fn heads() -> Vec<Network> {
    let network = |architecture| Network::new(architecture, WIDTH, [1, 1], CLASSES).expect("valid");
    vec![
        network(Architecture::Linear),
        network(Architecture::Cosine).with_head(Head::Cosine { scale: 5.0, learned: false }),
        network(Architecture::Cosine).with_head(Head::Cosine { scale: 3.0, learned: true }),
        network(Architecture::Mlp).with_hidden(Some(19)),
        network(Architecture::Mlp).with_hidden(Some(40)).with_head(Head::Cosine { scale: 4.0, learned: true }),
    ]
}

fn engine(network: &Network, threads: usize) -> Cpu {
    engine_with(network, threads, CpuOptions::default())
}

fn engine_with(network: &Network, threads: usize, options: CpuOptions) -> Cpu {
    let pool = if threads == 1 { Pool::single() } else { Pool::new(threads).expect("threads") };
    let mut engine = Cpu::with_options(network.clone(), ROWS, 1, pool, options).expect("valid");
    let parameters: Vec<Vec<f32>> =
        network.parameters().iter().enumerate().map(|(i, tensor)| values(tensor.len(), i + 2)).collect();
    engine.set_tensors(TensorKind::Parameters, &parameters).expect("they fit");
    engine
}

/// The logits of a row by their definition.
fn logits(network: &Network, parameters: &[Vec<f64>], row: &[f64]) -> Vec<f64> {
    let product = |weight: &[f64], x: &[f64]| -> Vec<f64> {
        weight.chunks_exact(x.len()).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    };
    let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let (mut features, mut rest) = (row.to_vec(), parameters);
    if network.feature_input.is_some_and(|input| input.hidden.is_some()) {
        let hidden = product(&rest[0], &features);
        features = hidden.iter().zip(&rest[1]).map(|(x, b)| (x + b).max(0.0)).collect();
        rest = &rest[2..];
    }
    let sums = product(&rest[0], &features);
    match network.head {
        Head::Linear => sums.iter().zip(&rest[1]).map(|(x, b)| x + b).collect(),
        Head::Cosine { scale, learned } => {
            let scale = if learned { rest[1][0] } else { f64::from(scale) };
            let weights = rest[0].chunks_exact(features.len());
            sums.iter().zip(weights).map(|(x, w)| scale * x / (length(w) * length(&features))).collect()
        }
        Head::Lws => unreachable!("not tested here"),
    }
}

fn wide(tensors: &[Vec<f32>]) -> Vec<Vec<f64>> {
    tensors.iter().map(|values| values.iter().map(|x| f64::from(*x)).collect()).collect()
}

#[test]
fn logits_and_gradients_are_those_of_the_definition() {
    for network in heads() {
        let mut engine = engine(&network, 2);
        let (rows, gradient) = (values(ROWS * WIDTH, 0), values(ROWS * CLASSES, 1));
        let parameters = wide(&engine.tensors(TensorKind::Parameters).expect("tensors"));
        let of = |parameters: &[Vec<f64>]| -> Vec<f64> {
            let row =
                |row: &[f32]| logits(&network, parameters, &row.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
            rows.chunks_exact(WIDTH).flat_map(row).collect()
        };
        let got = engine.forward(&rows, true).expect("good rows").to_vec();
        for (got, want) in got.iter().zip(of(&parameters)) {
            assert!((f64::from(*got) - want).abs() < 1e-4, "{}: {got} {want}", network.name);
        }
        engine.backward(&gradient).expect("after a forward pass");
        let gradients = engine.tensors(TensorKind::Gradients).expect("tensors");
        let loss = |parameters: &[Vec<f64>]| -> f64 {
            of(parameters).iter().zip(&gradient).map(|(z, g)| z * f64::from(*g)).sum()
        };
        for (number, tensor) in network.parameters().iter().enumerate() {
            for at in (0..tensor.len()).step_by(1 + tensor.len() / 9) {
                let mut moved = parameters.clone();
                moved[number][at] += 1e-6;
                let up = loss(&moved);
                moved[number][at] -= 2e-6;
                let want = (up - loss(&moved)) / 2e-6;
                let got = f64::from(gradients[number][at]);
                assert!(
                    (got - want).abs() < 2e-3 * (1.0 + want.abs()),
                    "{} {} {at}: {got} {want}",
                    network.name,
                    tensor.name
                );
            }
        }
    }
}

/// Values that bf16 has exactly lose nothing: sums are f32, and so are the small numbers that these add up to.
#[test]
fn bf16_multiplies_exactly_what_it_can_hold() {
    let network = &heads()[0];
    let short = |number: usize, seed: usize| -> Vec<f32> {
        (0..number).map(|i| ((i * 37 + 11 * seed) % 101) as f32 / 8.0 - 6.0).collect()
    };
    let parameters: Vec<Vec<f32>> =
        network.parameters().iter().enumerate().map(|(i, tensor)| short(tensor.len(), i)).collect();
    // an odd number of rows, the last one without a partner
    for rows in [1, 2, ROWS - 1, ROWS] {
        let run = |precision| {
            let mut engine = engine_with(network, 2, CpuOptions { precision, ..CpuOptions::default() });
            engine.set_tensors(TensorKind::Parameters, &parameters).expect("they fit");
            let logits = engine.forward(&short(rows * WIDTH, 3), true).expect("good rows").to_vec();
            engine.backward(&short(rows * CLASSES, 4)).expect("after a forward pass");
            (logits, engine.tensors(TensorKind::Gradients).expect("tensors"))
        };
        assert!(run(Precision::F32) == run(Precision::Bf16), "{rows} rows");
    }
}

#[test]
fn bf16_is_close_to_f32() {
    for network in heads() {
        let [exact, short] = [Precision::F32, Precision::Bf16].map(|precision| {
            let mut engine = engine_with(&network, 2, CpuOptions { precision, ..CpuOptions::default() });
            let logits = engine.forward(&values(ROWS * WIDTH, 0), true).expect("good rows").to_vec();
            engine.backward(&values(ROWS * CLASSES, 1)).expect("after a forward pass");
            (logits, engine.tensors(TensorKind::Gradients).expect("tensors").concat())
        });
        for (what, exact, short) in [("logits", exact.0, short.0), ("gradients", exact.1, short.1)] {
            let difference: f64 = exact.iter().zip(&short).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let size: f64 = exact.iter().map(|x| f64::from(*x).powi(2)).sum();
            assert!(
                difference > 0.0 && (difference / size).sqrt() < 0.01,
                "{} {what}: {difference} of {size}",
                network.name
            );
        }
    }
}

/// The portable level has no fused multiply-add.
#[test]
fn any_number_of_threads_and_any_instructions_give_the_same_bits() {
    for (network, precision) in heads().iter().flat_map(|network| Precision::ALL.map(|precision| (network, precision)))
    {
        let trained = |threads: usize, simd: SimdLevel| {
            let mut engine = engine_with(network, threads, CpuOptions { precision, simd, ..CpuOptions::default() });
            for step in 0..3 {
                engine.forward(&values(ROWS * WIDTH, step), true).expect("good rows");
                engine.backward(&values(ROWS * CLASSES, step + 5)).expect("after a forward pass");
                engine.step(&Optimizer::sgd(1e-3, 0.9, 1e-3)).expect("a step");
            }
            engine.tensors(TensorKind::Parameters).expect("tensors")
        };
        let best = trained(1, SimdLevel::best());
        assert!(trained(3, SimdLevel::best()) == best, "{}, {precision}", network.name);
        for &simd in SimdLevel::available().iter().filter(|level| **level != SimdLevel::Portable) {
            assert!(trained(2, simd) == best, "{}, {precision}, {simd:?}", network.name);
        }
    }
}

#[test]
fn rows_that_cannot_be_used_are_refused() {
    let network = &heads()[0];
    let mut engine = engine(network, 1);
    let mut rows = values(3 * WIDTH, 0);
    rows[WIDTH + 4] = f32::INFINITY;
    assert_eq!(engine.forward(&rows, false).map(|_| ()), Err(NnError::NotFinite { image: 1, value: f32::INFINITY }));
    assert!(matches!(engine.forward(&rows[1..], false), Err(NnError::Images { .. })));
    assert!(matches!(engine.forward(&[], false), Err(NnError::BatchSize { got: 0, .. })));
    assert!(Network::new(Architecture::Linear, 5, [2, 1], 3).is_err());
    assert!(network.clone().with_hidden(Some(0)).check().is_err());
}

#[test]
fn a_linear_head_starts_at_zero() {
    let network = &heads()[0];
    assert!(network.initial_parameters(3).iter().flatten().all(|w| *w == 0.0));
    assert!(heads()[3].initial_parameters(3).iter().flatten().any(|w| *w != 0.0));
}
