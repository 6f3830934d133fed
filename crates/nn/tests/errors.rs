//! Wrong inputs are refused with an error that names them, and the engine can still be used.

use equipoise_nn::{Architecture, Cpu, CpuOptions, Engine, Network, NnError, Precision, TensorKind};
use equipoise_pool::Pool;

fn engine() -> Cpu {
    let network = Network::new(Architecture::ResNet8, 3, [8, 12], 5).expect("valid");
    Cpu::new(network, 4, 0, Pool::single()).expect("valid")
}

const IMAGE: usize = 3 * 8 * 12;

#[test]
fn wrong_batches() {
    let mut engine = engine();
    assert_eq!(engine.forward(&[], true), Err(NnError::BatchSize { got: 0, most: 4 }));
    assert_eq!(engine.forward(&[0.0; 5 * IMAGE], true), Err(NnError::BatchSize { got: 5, most: 4 }));
    for got in [2 * IMAGE + 1, IMAGE / 3] {
        let want = NnError::Images { got, channels: 3, height: 8, width: 12 };
        assert_eq!(want.to_string(), format!("images: {got} values are not whole images of 3 x 8 x 12"));
        assert_eq!(engine.forward(&vec![0.0; got], true), Err(want));
    }
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut images = vec![0.0; 3 * IMAGE];
        images[IMAGE + 17] = value;
        let error = engine.forward(&images, true).expect_err("not finite").to_string();
        assert_eq!(error, format!("image 1 of the batch: {value} is not finite"));
    }
    let many = Cpu::new(engine.network().clone(), 0, 0, Pool::single()).err();
    assert_eq!(many, Some(NnError::BatchSize { got: 0, most: 65_536 }));
}

/// An engine that is too large is refused before memory is allocated, and the estimate is near what an engine takes.
#[test]
fn batches_beyond_memory() {
    let network = Network::new(Architecture::ResNet50, 1024, [65_536, 65_536], 1000).expect("valid");
    let error = Cpu::new(network, 65_536, 0, Pool::single()).err().expect("refused");
    assert!(matches!(error, NnError::Memory { batch_size: 65_536, .. }), "{error}");
    let network = Network::new(Architecture::ResNet32, 3, [32, 32], 10).expect("valid");
    // 267 MiB were measured
    let bytes = Cpu::bytes(&network, 128, 2, Precision::F32);
    assert!((250 << 20..330 << 20).contains(&bytes), "{bytes}");
    let network = Network::new(Architecture::ResNet50, 3, [224, 224], 1000).expect("valid");
    // 1,001 and 692 MiB were measured in training with ten classes; an evaluation takes another 77 MiB a thread
    for (precision, want) in [(Precision::F32, 1200 << 20..1500 << 20), (Precision::Bf16, 800 << 20..1100 << 20)] {
        let bytes = Cpu::bytes(&network, 16, 2, precision);
        assert!(want.contains(&bytes), "{bytes}");
    }
    // frames and tiles, and the few images of an evaluation
    let thread = (Cpu::bytes(&network, 128, 32, Precision::F32) - Cpu::bytes(&network, 128, 2, Precision::F32)) / 30;
    assert!((80 << 20..200 << 20).contains(&thread), "{thread}");
    // 673 and 481 MiB were measured in training, 381 and 301 in evaluation
    let network = Network::new(Architecture::ResNet8, 3, [1000, 1000], 10).expect("valid");
    for (precision, want) in [(Precision::F32, 1000 << 20..1500 << 20), (Precision::Bf16, 650 << 20..1000 << 20)] {
        let bytes = Cpu::bytes(&network, 1, 2, precision);
        assert!(want.contains(&bytes), "{bytes}");
    }
}

#[test]
fn backward_needs_a_forward_pass() {
    let mut engine = engine();
    assert_eq!(engine.backward(&[0.0; 5]), Err(NnError::NoForward));
    engine.forward(&[0.5; IMAGE], false).expect("fits");
    assert_eq!(engine.backward(&[0.0; 5]), Err(NnError::NoForward), "after an evaluation");
    engine.forward(&[0.5; 2 * IMAGE], true).expect("fits");
    let what = "gradient of the logits";
    assert_eq!(engine.backward(&[0.0; 5]), Err(NnError::Length { what, got: 5, want: 10 }));
    engine.backward(&[0.1; 10]).expect("fits");
    assert_eq!(engine.backward(&[0.1; 10]), Err(NnError::NoForward), "a second time");
    // new weights do not go with old activations
    engine.forward(&[0.5; IMAGE], true).expect("fits");
    let weights = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    engine.set_tensors(TensorKind::Parameters, &weights).expect("its own");
    assert_eq!(engine.backward(&[0.0; 5]), Err(NnError::NoForward));
    // after a batch that was refused
    engine.forward(&[0.5; IMAGE], true).expect("fits");
    engine.forward(&[f32::NAN; IMAGE], true).expect_err("not finite");
    assert_eq!(engine.backward(&[0.0; 5]), Err(NnError::NoForward));
}

#[test]
fn wrong_tensors() {
    let mut engine = engine();
    let before = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    let mut wrong = before.clone();
    wrong.pop();
    let (got, want) = (before.len() - 1, before.len());
    assert_eq!(engine.set_tensors(TensorKind::Parameters, &wrong), Err(NnError::Length { what: "tensors", got, want }));
    let mut wrong = before.clone();
    wrong[3].push(0.0);
    let tensor = engine.network().parameters().remove(3);
    let want = NnError::Shape { name: tensor.name, got: vec![before[3].len() + 1], want: tensor.shape };
    assert_eq!(engine.set_tensors(TensorKind::Momentum, &wrong), Err(want));
    assert_eq!(engine.tensors(TensorKind::Parameters).expect("on the CPU"), before);
}

/// Small and odd sizes, batches of any order of sizes, and values at the edge of the range of f32.
#[test]
fn odd_shapes_and_wild_values() {
    use Architecture::{ResNet8, ResNet14, ResNet18};
    for (architecture, size) in
        [(ResNet8, [1, 1]), (ResNet8, [2, 3]), (ResNet14, [5, 1]), (ResNet18, [33, 7]), (ResNet18, [1, 1])]
    {
        let network = Network::new(architecture, 2, size, 3).expect("valid");
        let mut engine = Cpu::new(network, 3, 0, Pool::new(2).expect("threads")).expect("valid");
        for (number, value) in [(3, 0.0), (1, 1e30), (2, -3e38), (3, 1e-40), (1, 1.0)] {
            let images = vec![value; number * 2 * size[0] * size[1]];
            let logits = engine.forward(&images, true).expect("fits").to_vec();
            assert_eq!(logits.len(), 3 * number);
            engine.backward(&vec![0.25; logits.len()]).expect("fits");
            engine.forward(&images, false).expect("fits");
        }
    }
}

/// NaN in the weights reaches the logits at every level of instructions: no ReLU and no max pool hides it.
#[test]
fn nan_reaches_the_logits() {
    use equipoise_simd::SimdLevel;
    let network = |architecture| Network::new(architecture, 3, [8, 12], 5).expect("valid");
    let head = Network::new(Architecture::Mlp, IMAGE, [1, 1], 5).expect("valid").with_hidden(Some(19));
    for network in [network(Architecture::ResNet8), network(Architecture::ResNet18), head] {
        for (&simd, precision) in SimdLevel::available().iter().zip([Precision::F32, Precision::Bf16].iter().cycle()) {
            let options = CpuOptions { simd, precision: *precision, ..CpuOptions::default() };
            let mut engine = Cpu::with_options(network.clone(), 4, 0, Pool::single(), options).expect("valid");
            let mut weights = engine.tensors(TensorKind::Parameters).expect("on the CPU");
            weights[0][0] = f32::NAN;
            engine.set_tensors(TensorKind::Parameters, &weights).expect("its own shapes");
            for train in [true, false] {
                let logits = engine.forward(&[0.5; 2 * IMAGE], train).expect("fits");
                assert!(logits.iter().all(|x| x.is_nan()), "{} {simd:?} {precision}: {logits:?}", network.name);
            }
        }
    }
}

/// Images with more channels than any layer.
#[test]
fn many_channels() {
    let network = Network::new(Architecture::ResNet8, 200, [8, 8], 3).expect("valid");
    let mut engine = Cpu::new(network, 2, 0, Pool::single()).expect("valid");
    engine.forward(&vec![0.5; 2 * 200 * 64], true).expect("fits");
    engine.backward(&[0.1; 6]).expect("fits");
}
