//! One test per error: what is wrong is named, and nothing was counted.

mod common;

use common::*;
use equipoise_criterion::*;

fn seesaw() -> Criterion {
    SeesawConfig::default().init(&[50, 5, 2]).expect("valid")
}

/// The error of a training call; the criterion must not have counted anything.
fn rejected(batch: &Batch<'_>) -> BatchError {
    let mut criterion = seesaw();
    let before = criterion.state();
    let error = call(batch, |batch, out| criterion.train(batch, out, &mut Workspace::new())).expect_err("a bad batch");
    assert_eq!(criterion.state(), before, "counted in spite of {error}");
    error
}

#[test]
fn an_empty_batch() {
    assert_eq!(rejected(&Batch::new(&[], &[])), BatchError::Empty);
}

#[test]
fn logits_that_are_not_rows_times_classes() {
    let want = BatchError::Logits { got: 5, want: 6, rows: 2, classes: 3 };
    assert_eq!(rejected(&Batch::new(&[0.0; 5], &[0, 1])), want);
}

#[test]
fn a_label_out_of_range() {
    let error = rejected(&Batch::new(&[0.0; 6], &[0, 3]));
    assert_eq!(error, BatchError::Label { field: "labels", row: 1, label: 3, classes: 3 });
    assert_eq!(error.to_string(), "labels[1] is 3; there are 3 classes, numbered from 0");
}

#[test]
fn logits_that_are_not_finite() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = rejected(&Batch::new(&[0.0, 0.0, 0.0, 0.0, bad, 0.0], &[0, 2]));
        assert!(matches!(error, BatchError::NotFinite { row: 1, class: 1, .. }), "{error}");
        // the label's own logit, and every criterion
        for (name, config) in configs() {
            let mut criterion = config.init(&[50, 5, 2]).expect("valid");
            let logits = [0.0, 0.0, 0.0, 0.0, 0.0, bad];
            let batch = Batch::new(&logits, &[0, 2]);
            let before = criterion.state();
            let error = call(&batch, |batch, out| criterion.train(batch, out, &mut Workspace::new())).expect_err(&name);
            assert!(matches!(error, BatchError::NotFinite { row: 1, class: 2, .. }), "{name}: {error}");
            assert_eq!(criterion.state(), before, "{name}");
        }
    }
}

#[test]
fn logits_that_overflow_when_scaled() {
    let ldam = LdamConfig::default().init(&[50, 5, 2]).expect("valid");
    let batch = Batch::new(&[0.0, 3e38, 1.0], &[0]);
    let error = call(&batch, |batch, out| ldam.evaluate(batch, out, &mut Workspace::new())).expect_err("overflow");
    assert_eq!(error, BatchError::NotFinite { row: 0, class: 1, value: 3e38 });
}

#[test]
fn buffers_of_the_wrong_size() {
    let (criterion, mut workspace) = (seesaw(), Workspace::new());
    let batch = Batch::new(&[0.0; 6], &[0, 1]);
    let (mut grad, mut weights) = ([0.0; 7], [0.0; 2]);
    let error = criterion.evaluate(&batch, Output::new(&mut grad, &mut weights), &mut workspace);
    assert_eq!(error, Err(BatchError::Length { field: "grad", got: 7, want: 6 }));
    let error = criterion.evaluate(&batch, Output::new(&mut grad[..6], &mut weights[..1]), &mut workspace);
    assert_eq!(error, Err(BatchError::Length { field: "weights", got: 1, want: 2 }));
    let out = Output { losses: Some(&mut [0.0; 1]), ..Output::new(&mut grad[..6], &mut weights) };
    let error = criterion.evaluate(&batch, out, &mut workspace);
    assert_eq!(error, Err(BatchError::Length { field: "losses", got: 1, want: 2 }));
    let out = Output { gradient_norms: Some(&mut [0.0; 3]), ..Output::new(&mut grad[..6], &mut weights) };
    let error = criterion.evaluate(&batch, out, &mut workspace);
    assert_eq!(error, Err(BatchError::Length { field: "gradient_norms", got: 3, want: 2 }));
    let out = Output { adjusted_norms: Some(&mut [0.0; 1]), ..Output::new(&mut grad[..6], &mut weights) };
    let error = criterion.evaluate(&batch, out, &mut workspace);
    assert_eq!(error, Err(BatchError::Length { field: "adjusted_norms", got: 1, want: 2 }));
}

#[test]
fn examples_and_mixtures_that_do_not_fit() {
    let error = rejected(&Batch { examples: &[1], ..Batch::new(&[0.0; 6], &[0, 1]) });
    assert_eq!(error, BatchError::Length { field: "examples", got: 1, want: 2 });
    fn mixed(labels: &[u32], share: &[f32]) -> BatchError {
        rejected(&Batch { mixed: Some(Mixed { labels, share }), ..Batch::new(&[0.0; 6], &[0, 1]) })
    }
    assert_eq!(mixed(&[0], &[0.5, 0.5]), BatchError::Length { field: "mixed.labels", got: 1, want: 2 });
    assert_eq!(mixed(&[0, 1], &[0.5]), BatchError::Length { field: "mixed.share", got: 1, want: 2 });
    let want = BatchError::Label { field: "mixed.labels", row: 0, label: 9, classes: 3 };
    assert_eq!(mixed(&[9, 1], &[0.5, 0.5]), want);
    for bad in [1.5, -0.1, f32::NAN] {
        assert!(matches!(mixed(&[0, 1], &[0.5, bad]), BatchError::Share { row: 1, .. }));
    }
}

#[test]
fn counts_that_cannot_be() {
    let init = |counts: &[u64]| SoftmaxConfig::default().init(counts).expect_err("bad counts");
    assert_eq!(init(&[]), ConfigError::Classes(0));
    assert_eq!(init(&[4]), ConfigError::Classes(1));
    assert_eq!(init(&[0, 0]), ConfigError::NoImages);
    assert_eq!(init(&[1, u64::MAX]), ConfigError::TooMany { class: 1, count: u64::MAX });
}

/// Every parameter that has a range refuses what lies outside, and says its name.
#[test]
fn parameters_out_of_range() {
    let cases: &[(Id, &str, &[&str])] = &[
        (Id::ClassBalanced, "power", &["-1", "11", "1e300"]),
        (Id::EffectiveNumber, "beta", &["-0.1", "1", "2"]),
        (Id::Focal, "gamma", &["-1", "101"]),
        (Id::Ghm, "bins", &["0", "10001"]),
        (Id::Ghm, "momentum", &["-0.5", "1"]),
        (Id::Equalization, "gamma", &["-0.1", "1.1"]),
        (Id::Equalization, "lambda", &["-0.1", "1.1"]),
        (Id::Seesaw, "p", &["-1", "101"]),
        (Id::Seesaw, "q", &["-1", "101"]),
        (Id::Seesaw, "eps", &["0", "-1", "1.1"]),
        (Id::Cwap, "bins", &["0", "10001"]),
        (Id::Cwap, "alpha", &["-1", "11"]),
        (Id::Cwap, "gamma", &["-1", "101"]),
        (Id::Cwap, "prior", &["-1", "1e7"]),
        (Id::Cwap, "momentum", &["-1", "1"]),
        (Id::Cwap, "cap", &["0", "-3"]),
        (Id::LogitAdjusted, "tau", &["-1", "101"]),
        (Id::Vs, "gamma", &["-1", "11"]),
        (Id::Vs, "tau", &["-1", "101"]),
        (Id::Cdt, "gamma", &["-1", "11"]),
        (Id::Ldam, "scale", &["0", "-1", "1001"]),
        (Id::Ldam, "max_margin", &["-1", "101"]),
        (Id::LabelAwareSmoothing, "head", &["-0.1", "1.1"]),
        (Id::LabelAwareSmoothing, "tail", &["-0.1", "1.1"]),
    ];
    for (id, field, values) in cases {
        for value in *values {
            let text = format!("{{\"method\": \"{id}\", \"params\": {{\"{field}\": {value}}}}}");
            let config: Config = serde_json::from_str(&text).expect("parses");
            match config.init(&[9, 1]) {
                Err(ConfigError::Range { method, field: named, .. }) => assert_eq!((method, named), (*id, *field)),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
    let nan = FocalConfig { gamma: f64::NAN }.init(&[9, 1]);
    assert!(matches!(nan, Err(ConfigError::Range { field: "gamma", .. })));
    let drw =
        Config { method: Id::Softmax.preset(Preset::Paper), drw: Some(DrwConfig { beta: 1.0, ..DrwConfig::new(3) }) };
    assert!(matches!(drw.init(&[9, 1]), Err(ConfigError::Range { field: "drw.beta", .. })));
}

#[test]
fn unknown_names() {
    let params = |text: &str| serde_json::from_str::<Config>(&format!("{{\"method\": \"focal\", \"params\": {text}}}"));
    let error = params("{\"gama\": 1}").expect_err("unknown").to_string();
    assert!(error.contains("params.gama: unknown parameter; did you mean 'gamma'?"), "{error}");
    assert!(params("{\"gamma\": \"x\"}").is_err());
    for (wrong, near) in [
        ("focall", "focal"),
        ("sesaw", "seesaw"),
        ("balanced_softmax", "balanced-softmax"),
        ("smoothing", "label-aware-smoothing"),
    ] {
        let error = wrong.parse::<Id>().expect_err("unknown").to_string();
        assert!(error.contains(&format!("did you mean '{near}'?")), "{error}");
    }
    assert!(!"xyzzy".parse::<Id>().expect_err("unknown").to_string().contains("did you mean"));
}

#[test]
fn states_that_do_not_fit() {
    let mut criterion = seesaw();
    let before = criterion.state();
    let error = criterion.restore(&State::Stateless);
    assert_eq!(error, Err(StateError::Method { got: "stateless", want: "seesaw" }));
    let short = State::Seesaw(SeesawState { before: vec![0; 3], seen: vec![0; 2] });
    assert_eq!(criterion.restore(&short), Err(StateError::Length { field: "seen", got: 2, want: 3 }));
    assert_eq!(criterion.state(), before);
    let mut ghm = GhmConfig::default().init(&[50, 5, 2]).expect("valid");
    let bad = State::Ghm(GhmState { mass: [vec![0.0; 29], vec![f64::NAN]].concat() });
    assert_eq!(ghm.restore(&bad), Err(StateError::Value { field: "mass", index: 29, want: "at least 0" }));
    let mut cwap = CwapConfig::preset(Preset::Printed).init(&[50, 5, 2]).expect("valid");
    let State::Cwap(good) = cwap.state() else { panic!("not a state of cwap") };
    type Spoil<'a> = &'a dyn Fn(&mut CwapState);
    let spoilt = |f: Spoil<'_>| {
        let mut state = good.clone();
        f(&mut state);
        State::Cwap(state)
    };
    let cases: [(Spoil<'_>, &str); 8] = [
        (&|s| s.bins = 7, "bins"),
        (&|s| s.counts.clear(), "counts"),
        (&|s| s.filling[4] = 0.0, "filling"),
        (&|s| s.widths[4] = f64::NAN, "widths"),
        (&|s| s.values[4] = -1.0, "values"),
        (&|s| s.values[4] = 1e308, "values"),
        (&|s| s.widths.fill(1.0), "widths"),
        (
            &|s| s.average = Some(AverageState { values: vec![], widths: vec![], batches: 0, updated: vec![] }),
            "average",
        ),
    ];
    for (spoil, field) in cases {
        let error = cwap.restore(&spoilt(spoil)).expect_err(field).to_string();
        assert!(error.starts_with(&format!("state.{field}")), "{error}");
    }
    assert_eq!(cwap.state(), State::Cwap(good));
}

#[test]
fn states_that_cannot_be_merged() {
    let mut a = seesaw();
    let mut b = seesaw();
    drop(train(&mut b, &Batch::new(&[0.0; 3], &[1])));
    b.end_epoch();
    assert_eq!(a.merge(&[b.state()]), Err(StateError::DifferentStart { field: "before" }));
    assert_eq!(a.merge(&[State::Stateless]), Err(StateError::Method { got: "stateless", want: "seesaw" }));
    let mut cwap = CwapConfig::preset(Preset::Printed).init(&[50, 5, 2]).expect("valid");
    let mut later = cwap.clone();
    drop(train(&mut later, &Batch::new(&[0.0; 3], &[1])));
    later.end_epoch();
    assert_eq!(cwap.merge(&[later.state()]), Err(StateError::DifferentStart { field: "filling" }));
    let mut ghm = GhmConfig::default().init(&[50, 5, 2]).expect("valid");
    drop(train(&mut ghm, &Batch::new(&[0.0; 3], &[1])));
    let error = ghm.merge(&[ghm.state()]).expect_err("a moving average");
    assert_eq!(error, StateError::MovingAverage("ghm"));
}

#[test]
fn classes_without_images_are_warned_of() {
    let criterion = ClassBalancedConfig::preset(Preset::Reference).init(&[50, 0, 2]).expect("valid");
    assert_eq!(criterion.warnings(|class| class.to_string()), ["class 1 has no training images: its weight is 0"]);
    assert!(seesaw().warnings(|class| class.to_string()).is_empty());
}
