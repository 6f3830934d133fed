//! Counting apart from computing, and the loss of every example.

use equipoise_criterion::{Batch, BatchError, Criterion, GhmConfig, Id, Output, Preset, SeesawConfig, Workspace};

const COUNTS: [u64; 3] = [90, 30, 3];
const LOGITS: [f32; 12] = [0.1, 2.0, -0.4, 1.2, 0.3, 0.2, -2.0, 0.5, 1.0, 0.7, 0.1, -0.3];
const LABELS: [u32; 4] = [0, 2, 1, 0];

fn evaluate(criterion: &Criterion, workspace: &mut Workspace) -> f64 {
    let (mut grad, mut weights) = ([0.0; 12], [0.0; 4]);
    let out = Output::new(&mut grad, &mut weights);
    criterion.evaluate(&Batch::new(&LOGITS, &LABELS), out, workspace).expect("a good batch").loss
}

#[test]
fn evaluating_and_observing_is_training() {
    for id in Id::ALL {
        let config = equipoise_criterion::Config::from(id.preset(Preset::Recommended));
        let (mut apart, mut at_once) = (config.init(&COUNTS).expect("good"), config.init(&COUNTS).expect("good"));
        let mut workspace = Workspace::new();
        for _ in 0..3 {
            evaluate(&apart, &mut workspace);
            apart.observe(&mut workspace).expect("just evaluated");
            let (mut grad, mut weights) = ([0.0; 12], [0.0; 4]);
            let out = Output::new(&mut grad, &mut weights);
            at_once.train(&Batch::new(&LOGITS, &LABELS), out, &mut Workspace::new()).expect("a good batch");
            assert_eq!(apart.state(), at_once.state(), "{id}");
        }
        assert_eq!(id.has_state(), apart.state() != equipoise_criterion::State::Stateless, "{id}");
    }
}

#[test]
fn only_what_was_just_evaluated_can_be_counted_and_only_once() {
    let mut seesaw = SeesawConfig::default().init(&COUNTS).expect("good");
    let ghm = GhmConfig::default().init(&COUNTS).expect("good");
    let mut workspace = Workspace::new();
    let refused = Err(BatchError::NotEvaluated);
    assert_eq!(seesaw.observe(&mut workspace), refused, "nothing evaluated");
    evaluate(&ghm, &mut workspace);
    assert_eq!(seesaw.observe(&mut workspace), refused, "evaluated by another criterion");
    evaluate(&seesaw, &mut workspace);
    assert_eq!(seesaw.observe(&mut workspace), Ok(()));
    assert_eq!(seesaw.observe(&mut workspace), refused, "counted twice");
    evaluate(&seesaw, &mut workspace);
    seesaw.end_epoch();
    assert_eq!(seesaw.observe(&mut workspace), refused, "evaluated before the epoch ended");
    evaluate(&seesaw, &mut workspace);
    let bad = Batch::new(&LOGITS, &[0, 1, 2, 9]);
    let (mut grad, mut weights) = ([0.0; 12], [0.0; 4]);
    seesaw.evaluate(&bad, Output::new(&mut grad, &mut weights), &mut workspace).expect_err("a label out of range");
    assert_eq!(seesaw.observe(&mut workspace), refused, "the last batch was refused");
    let mut clone = seesaw.clone();
    evaluate(&seesaw, &mut workspace);
    assert_eq!(clone.observe(&mut workspace), Ok(()), "a clone is in the same state");
}

/// The mean over the losses of all examples is the loss of the batch, also where class weights divide.
#[test]
fn losses_of_examples_average_to_the_loss() {
    for id in Id::ALL {
        let config = equipoise_criterion::Config::from(id.preset(Preset::Reference));
        let criterion = config.init(&COUNTS).expect("good");
        let (mut grad, mut weights, mut losses) = ([0.0; 12], [0.0; 4], [0.0; 4]);
        let out = Output { losses: Some(&mut losses), ..Output::new(&mut grad, &mut weights) };
        let batch = Batch::new(&LOGITS, &LABELS);
        let summary = criterion.evaluate(&batch, out, &mut Workspace::new()).expect("a good batch");
        let mean = losses.iter().map(|loss| f64::from(*loss)).sum::<f64>() / 4.0;
        assert!((mean - summary.loss).abs() < 1e-6 * summary.loss.abs().max(1.0), "{id}: {mean} {}", summary.loss);
        assert!(summary.denominator > 0.0);
        let softmax = id.name() == "softmax";
        assert!(!softmax || summary.denominator == 4.0, "softmax divides by the number of examples");
    }
}
