//! Heads on features: files in every format, training, evaluation, prediction, and what is refused.

use super::{Place, text};

const WIDTH: usize = 20;

/// A uniform number in -1..1, a function of its arguments.
fn noise(seed: u64, index: u64) -> f32 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index.wrapping_mul(0xd1b5_4a32_d192_ed03);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    (x & 0xffff) as f32 / 32768.0 - 1.0
}

/// Rows around the corners of four classes with these numbers of rows, and their labels.
fn rows(counts: &[usize], seed: u64) -> (Vec<f32>, Vec<i64>) {
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for (class, count) in counts.iter().enumerate() {
        for _ in 0..*count {
            let row = labels.len() as u64;
            for column in 0..WIDTH {
                let center = if column % counts.len() == class { 0.8 } else { 0.0 };
                values.push(center + noise(seed, row * WIDTH as u64 + column as u64));
            }
            labels.push(class as i64);
        }
    }
    (values, labels)
}

/// The bytes of a `.npy` file.
fn npy(descr: &str, shape: &str, order: &str, values: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (10 + header.len()) % 64 != 63 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values);
    bytes
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn longs(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

const COUNTS: [usize; 4] = [200, 80, 30, 12];

impl Place {
    /// A file `x.npy` with 322 rows and `x.labels.npy` with their labels.
    fn features() -> Self {
        let place = Self::new();
        let (values, labels) = rows(&COUNTS, 1);
        let shape = format!("({}, {WIDTH})", labels.len());
        place.write("x.npy", npy("<f4", &shape, "False", &floats(&values)));
        place.write("x.labels.npy", npy("<i8", &format!("({},)", labels.len()), "False", &longs(&labels)));
        place
    }

    fn result(&self, run: &str) -> serde_json::Value {
        serde_json::from_str(&self.read(&format!("{run}/result.json"))).expect("JSON")
    }
}

#[test]
fn a_head_is_trained_evaluated_and_used() {
    let place = Place::features();
    let said = place.stdout(&["inspect", "x.npy"]);
    assert!(said.contains("x: 258 training and 64 test rows of features, 4 classes"), "{said}");
    assert!(said.contains("20 features; lengths of rows") && said.contains("chooses linear"), "{said}");
    assert!(!said.contains("image") && !said.contains("--config recommended"), "{said}");
    let out = place.run(&["train", "x.npy", "-o", "shown", "--epochs", "2", "--val-fraction", "0.1"]);
    let (said, result) = (text(&out.stderr), text(&out.stdout));
    let line = "training, 25 validation and 64 test rows, 4 classes; balanced-softmax, linear on 20 features; in shown";
    assert!(said.contains(line), "{said}");
    assert!(result.contains(" rows/s in training") && !(said + &result).contains("image"), "{result}");
    let page = place.read("shown/report.html");
    assert!(page.contains("25 validation and 64 test rows"), "the header");
    let body = &page[page.find("<main>").expect("a body")..page.find("id=\"c0-provenance\"").expect("provenance")];
    let body = body.replace("data-images", "");
    assert!(!body.contains("images"), "{}", &body[body.find("images").unwrap_or(0).saturating_sub(200)..][..400]);
    let lbfgs = place.stdout(&["train", "x.npy", "-o", "lbfgs", "--set", "optimizer.name=lbfgs", "--quiet"]);
    assert!(!lbfgs.contains("/s in training") && lbfgs.contains("its report in"), "{lbfgs}");
    let refused = place.refused(&["train", "x.npy", "--image-size", "32"]);
    assert!(refused.contains("'data.image_size': features have no height and width"), "{refused}");
    place.stdout(&["train", "x.npy", "-o", "run", "--epochs", "10", "--quiet"]);
    let config = place.read("run/config.toml");
    assert!(config.contains("name = \"linear\"") && config.contains("learning_rate = 0.01"), "{config}");
    let accuracy = place.result("run")["last"]["top1"].as_f64().expect("an accuracy");
    assert!(accuracy > 80.0, "{accuracy}");
    let evaluated = place.stdout(&["evaluate", "run", "--json"]);
    let evaluated: serde_json::Value = serde_json::from_str(&evaluated).expect("JSON");
    assert_eq!(evaluated["metrics"]["top1"].as_f64(), Some(accuracy), "{evaluated}");
    let predicted = place.stdout(&["predict", "run", "x.npy", "--csv"]);
    assert_eq!(predicted.lines().count(), 1 + 322);
    let (_, labels) = rows(&COUNTS, 1);
    let lines = predicted.lines().skip(1).zip(&labels).enumerate();
    let hits = lines.filter(|(row, (line, label))| line.starts_with(&format!("x.npy[{row}],{label},"))).count();
    assert!(hits > 250, "{hits} of 322");
    assert!(place.read("run/report.html").contains("linear"));
}

/// Validation rows that are all classified correctly have no temperature of highest likelihood, and no epoch is more accurate than another.
#[test]
fn rows_that_are_all_classified_correctly() {
    let place = Place::new();
    let (values, labels): (Vec<f32>, Vec<i64>) = {
        let (values, labels) = rows(&[120, 100, 80, 60], 3);
        // far apart: every class has its own corner
        let corner =
            |(i, x): (usize, f32)| x * 0.2 + if i % WIDTH % 4 == labels[i / WIDTH] as usize { 3.0 } else { 0.0 };
        (values.into_iter().enumerate().map(corner).collect(), labels)
    };
    let shape = format!("({}, {WIDTH})", labels.len());
    place.write("x.npy", npy("<f4", &shape, "False", &floats(&values)));
    place.write("x.labels.npy", npy("<i8", &format!("({},)", labels.len()), "False", &longs(&labels)));
    let train = |run: &str, more: &[&str]| {
        let args = ["train", "x.npy", "-o", run, "--epochs", "6", "--val-fraction", "0.2", "--quiet"];
        place.stdout(&[&args[..], more].concat());
    };
    train("run", &[]);
    let epochs = place.epochs("run");
    let val = |epoch: &serde_json::Value, what: &str| epoch["val"][what].as_f64().expect("a number");
    let perfect: Vec<&serde_json::Value> = epochs.iter().filter(|epoch| val(epoch, "balanced") == 100.0).collect();
    assert!(perfect.len() > 2, "{epochs:?}");
    let lowest = perfect.iter().min_by(|a, b| val(a, "loss").total_cmp(&val(b, "loss"))).expect("there are some");
    assert_eq!(place.result("run")["best"]["epoch"], lowest["epoch"], "the loss decides among equally accurate epochs");
    assert_eq!(lowest["epoch"], 6, "it falls all the time");
    // early stopping waits for accuracy, not for a loss that falls forever
    train("patient", &["--set", "patience=2"]);
    let (first, last) = (perfect[0]["epoch"].as_u64().expect("a number"), &place.result("patient")["last"]["epoch"]);
    assert_eq!(last.as_u64(), Some((first + 2).min(6)));
    // on the test split it is the first epoch, as in the code of the papers that select there
    train("test", &["--set", "select_best=test"]);
    let top1 = |epoch: &serde_json::Value| epoch["test"]["top1"].as_f64().expect("a number");
    let highest = epochs.iter().map(top1).fold(0.0, f64::max);
    let first = epochs.iter().find(|epoch| top1(epoch) == highest).expect("it is one of them");
    assert_eq!(place.result("test")["best"]["epoch"], first["epoch"]);
    // the temperature is finite, and noise is not one of the classes for sure
    let calibration: serde_json::Value = serde_json::from_str(&place.read("run/calibration.json")).expect("JSON");
    let temperature = calibration["temperature"].as_f64().expect("a number");
    assert!(calibration["fit"] == "fitted" && temperature > 0.15 && temperature < 1.0, "{temperature}");
    let noise: Vec<f32> = (0..50 * WIDTH as u64).map(|i| 0.2 * noise(9, i)).collect();
    place.write("noise.npy", npy("<f4", &format!("(50, {WIDTH})"), "False", &floats(&noise)));
    let sure = place.stdout(&["predict", "run", "noise.npy", "--csv"]);
    let mean = sure
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().expect("a column").parse::<f64>().expect("p"))
        .sum::<f64>()
        / 50.0;
    assert!(mean < 0.6, "{mean}");
}

#[test]
fn every_criterion_and_every_head_trains() {
    let place = Place::features();
    let criteria = place.stdout(&["criteria", "--json"]);
    let criteria: Vec<serde_json::Value> = serde_json::from_str(&criteria).expect("JSON");
    let ids: Vec<&str> =
        criteria.iter().map(|about| about["id"].as_str().expect("an id")).filter(|id| *id != "drw").collect();
    assert!(ids.len() >= 14, "{ids:?}");
    for model in ["linear", "cosine", "mlp"] {
        for id in &ids {
            let run = format!("{model}-{id}");
            let args = ["train", "x.npy", "-o", &run, "--epochs", "6", "--quiet", "--criterion", id, "--model", model];
            place.stdout(&args);
            assert!(place.result(&run)["last"]["top1"].as_f64() > Some(40.0), "{run}");
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let place = Place::features();
    for (model, sampler) in [("linear", "class-balanced"), ("cosine", "square-root"), ("mlp", "progressive")] {
        let sampler = format!("data.sampler={sampler}");
        let train = |run: &str, threads: &str| {
            let args = ["train", "x.npy", "--model", model, "--epochs", "4", "--quiet", "--set", &sampler];
            place.stdout(&[&args[..], &["--threads", threads, "-o", run]].concat());
            (
                place.read(&format!("{run}/metrics.jsonl")),
                std::fs::read(place.path().join(run).join("checkpoint.eqp")).expect("read"),
            )
        };
        assert!(train(&format!("{model}-1"), "1") == train(&format!("{model}-3"), "3"), "{model}");
    }
}

#[test]
fn labels_come_from_files_and_arrays() {
    let place = Place::features();
    let (values, labels) = rows(&COUNTS, 1);
    let train = |data: &str, more: &[&str], run: &str| {
        place.stdout(&[&["train", data, "--epochs", "2", "--quiet", "-o", run], more].concat());
        place.result(run)["last"]["top1"].as_f64().expect("an accuracy")
    };
    let want = train("x.npy", &[], "beside");
    // a CSV file with names, in another file than usual
    let mut csv = "id,label\n".to_owned();
    labels.iter().enumerate().for_each(|(row, label)| csv.push_str(&format!("{row},class-{label}\n")));
    place.write("names.csv", &csv);
    place.write("y.npy", npy("<f4", &format!("({}, {WIDTH})", labels.len()), "False", &floats(&values)));
    train("y.npy", &["--labels", "names.csv"], "csv");
    assert!(place.read("csv/result.json").contains("class-3"));
    // columns one after the other, in 64 bits
    let by_columns: Vec<u8> = (0..WIDTH)
        .flat_map(|column| values.iter().skip(column).step_by(WIDTH).flat_map(|x| f64::from(*x).to_be_bytes()))
        .collect();
    place.write("z.npy", npy(">f8", &format!("({}, {WIDTH})", labels.len()), "True", &by_columns));
    assert_eq!(train("z.npy", &["--labels", "x.labels.npy"], "columns"), want);
    // a safetensors file as `embed` writes it
    let n = labels.len();
    let splits: Vec<u8> = (0..n).map(|row| if row % 5 == 0 { 2 } else { 0 }).collect();
    let header = serde_json::json!({
        "__metadata__": {"classes": "[\"ant\", \"bee\", \"cat\", \"dog\"]"},
        "labels": {"dtype": "I64", "shape": [n], "data_offsets": [0, 8 * n]},
        "features": {"dtype": "F32", "shape": [n, WIDTH], "data_offsets": [8 * n, 8 * n + 4 * n * WIDTH]},
        "split": {"dtype": "U8", "shape": [n], "data_offsets": [8 * n + 4 * n * WIDTH, 9 * n + 4 * n * WIDTH]},
    })
    .to_string();
    let length = (header.len() as u64).to_le_bytes();
    place.write("f.safetensors", [&length[..], header.as_bytes(), &longs(&labels), &floats(&values), &splits].concat());
    let said = place.stdout(&["inspect", "f.safetensors"]);
    assert!(said.contains("257 training and 65 test rows") && said.contains("dog"), "{said}");
    train("f.safetensors", &[], "safetensors");
    // another file for testing, whose labels are beside it
    let (values, labels) = rows(&[20; 4], 2);
    place.write("t.npy", npy("<f4", &format!("(80, {WIDTH})"), "False", &floats(&values)));
    place.write("t.labels.npy", npy("<i8", "(80,)", "False", &longs(&labels)));
    train("x.npy", &["--test-data", "t.npy"], "tested");
    assert!(place.stdout(&["evaluate", "tested", "t.npy"]).contains("80"));
}

#[test]
fn bad_files_are_refused_in_one_sentence() {
    let place = Place::features();
    let (mut values, labels) = rows(&COUNTS, 1);
    let shape = format!("({}, {WIDTH})", labels.len());
    let whole = npy("<f4", &shape, "False", &floats(&values));
    place.write("alone.npy", &whole);
    place.write("short.npy", &whole[..whole.len() - 5]);
    place.write("objects.npy", npy("|O", &shape, "False", &[0; 64]));
    place.write("whole.npy", npy("<i4", &shape, "False", &vec![0; 4 * values.len()]));
    place.write("flat.npy", npy("<f4", &format!("({},)", values.len()), "False", &floats(&values)));
    place.write("few.npy", npy("<i8", "(7,)", "False", &longs(&labels[..7])));
    place.write("half.npy", npy("<f8", "(322,)", "False", &[0x3f; 8 * 322]));
    place.write("noise.npz", b"not a zip archive");
    values[3 * WIDTH + 2] = f32::NAN;
    place.write("nan.npy", npy("<f4", &shape, "False", &floats(&values)));
    let labels = ["--labels", "x.labels.npy"];
    for (file, more, want) in [
        ("short.npy", &labels[..], "short.npy: it is truncated: its array needs 25760 bytes, and 25755 are there"),
        ("objects.npy", &labels, "objects.npy: its array holds Python objects"),
        (
            "whole.npy",
            &labels,
            "whole.npy: its array has values of type <i4, but features are numbers of 16, 32 or 64 bits",
        ),
        ("flat.npy", &[], "flat.npy: its array has shape [6440], but features are a table"),
        ("nan.npy", &labels, "nan.npy: row 3 of its array has NaN in column 2; features must be finite"),
        ("x.npy", &["--labels", "few.npy"], "few.npy: 7 labels for 322 rows of features"),
        ("x.npy", &["--labels", "half.npy"], "half.npy: the label of row 0 is 0.0004"),
        ("alone.npy", &[], "alone.npy: it has no labels: name their file with --labels"),
        ("noise.npz", &[], "noise.npz: it is no .npz file"),
        ("x.npy", &["--model", "resnet8"], "resnet8 is a network on images, and these are features"),
        ("fashion-mini", &["--model", "linear"], "linear is a head on features, and these are images"),
        ("fashion-mini", &labels, "only features take their labels from a file"),
        ("x.npy", &["--set", "augment.cutout=8"], "features are not augmented"),
        (
            "x.npy",
            &["--criterion", "cwap", "--set", "optimizer.name=lbfgs"],
            "the loss of cwap changes from step to step",
        ),
    ] {
        let message = place.refused(&[&["train", file], more].concat());
        assert!(message.contains(want) && message.trim().lines().count() == 1, "{file} {more:?}: {message}");
    }
    place.stdout(&["train", "x.npy", "--epochs", "1", "--quiet", "-o", "run"]);
    let message = text(&place.run(&["predict", "run", "photo.jpg"]).stderr);
    assert!(message.contains("the run was trained on features"), "{message}");
}

#[test]
fn a_run_on_features_resumes_to_the_same_bits() {
    let place = Place::features();
    let args = ["train", "x.npy", "--quiet", "--model", "mlp", "--set", "optimizer.schedule.name=constant"];
    place.stdout(&[&args[..], &["--epochs", "4", "-o", "whole"]].concat());
    place.stdout(&[&args[..], &["--epochs", "2", "-o", "run"]].concat());
    place.stdout(&["train", "--resume", "run", "--epochs", "4", "--quiet"]);
    assert!(place.read("run/metrics.jsonl") == place.read("whole/metrics.jsonl"));
}

#[test]
fn lbfgs_finds_the_minimum_and_class_means_are_a_start() {
    let place = Place::features();
    let solve = ["--set", "optimizer.name=lbfgs", "--set", "optimizer.weight_decay=0.01", "--quiet"];
    for criterion in ["balanced-softmax", "class-balanced"] {
        let of = |more: &[&str], run: &str| {
            let run = format!("{criterion}-{run}");
            place.stdout(&[&["train", "x.npy", "--criterion", criterion, "-o", &run], &solve[..], more].concat());
            place.epochs(&run)[0]["loss"].as_f64().expect("a loss")
        };
        // the minimum does not depend on where the search starts
        let (from_zero, from_means) = (of(&[], "zero"), of(&["--set", "model.class_means=true"], "means"));
        assert!((from_zero - from_means).abs() < 1e-5 * from_zero, "{criterion}: {from_zero} {from_means}");
        // and no other weights have a smaller loss
        let few = of(&["--set", "optimizer.iterations=3"], "few");
        assert!(few > from_zero + 1e-6, "{criterion}: {few} {from_zero}");
    }
}

#[test]
fn a_comparison_shows_classifiers_without_training() {
    let place = Place::features();
    let args = [
        "compare",
        "x.npy",
        "--criteria",
        "softmax,balanced-softmax",
        "--seeds",
        "2",
        "--epochs",
        "5",
        "--quiet",
        "-o",
        "all",
    ];
    let said = place.stdout(&args);
    let rows: Vec<&str> = said.lines().filter(|line| line.contains("nearest")).collect();
    assert!(
        rows.len() == 2 && rows[0].contains("nearest class mean") && rows[1].contains("10 nearest neighbors"),
        "{said}"
    );
    // rows around corners: both classifiers are far above chance
    for row in rows {
        let overall: f64 = row.split_whitespace().last().and_then(|x| x.parse().ok()).expect("an accuracy");
        assert!(overall > 60.0, "{row}");
    }
    let page = place.read("all/report.html");
    assert!(page.contains("nearest class mean") && page.contains("10 nearest neighbors"));
    assert!(place.stdout(&["report", "all", "--plain"]).contains("nearest class mean"));
}

#[test]
fn cross_validation_chooses_the_weight_decay() {
    let place = Place::features();
    let args = ["--set", "optimizer.name=lbfgs", "--set", "optimizer.cross_validation=3", "--quiet"];
    place.stdout(&[&["train", "x.npy", "-o", "run"], &args[..]].concat());
    let decay = |run: &str| {
        let config = place.read(&format!("{run}/config.toml"));
        config.lines().find(|line| line.starts_with("weight_decay")).map(str::to_owned).expect("a weight decay")
    };
    assert_ne!(decay("run"), "weight_decay = 0.0002");
    place.stdout(&[&["train", "x.npy", "-o", "again"], &args[..]].concat());
    assert_eq!(decay("run"), decay("again"));
    assert!(place.read("run/metrics.jsonl") == place.read("again/metrics.jsonl"));
    // what was chosen with some rows held out is refitted on all of them, with the run's own number of epochs
    place.stdout(&["train", "x.npy", "-o", "held-out", "--val", "0.2", "--epochs", "3", "--quiet"]);
    place.stdout(&["train", "--refit", "held-out", "-o", "refitted", "--quiet"]);
    assert_eq!(place.read("refitted/metrics.jsonl").lines().count(), 3);
    let message = place.refused(&["train", "x.npy", "--set", "optimizer.cross_validation=1"]);
    assert!(message.contains("0, or from 2 to 20"), "{message}");
}

#[test]
fn a_head_is_exported() {
    let place = Place::features();
    place.stdout(&["train", "x.npy", "--epochs", "1", "--quiet", "-o", "run"]);
    place.stdout(&["export", "run", "-o", "head.onnx"]);
    place.stdout(&["export", "run", "-o", "head.safetensors"]);
    let message = place.refused(&["export", "run", "-o", "joined.onnx", "--backbone", "head.onnx"]);
    assert!(message.contains("x.npy: it does not say how its features were computed"), "{message}");
}

#[test]
fn mirror_images_of_features_are_refused() {
    let place = Place::features();
    place.stdout(&["train", "x.npy", "--epochs", "1", "--quiet", "-o", "run"]);
    for args in [&["evaluate", "run", "--tta", "flip"][..], &["predict", "run", "x.npy", "--tta", "flip"]] {
        let message = place.refused(args);
        assert!(message.contains("--tta flip is for images") && message.trim().lines().count() == 1, "{message}");
    }
}

#[test]
fn every_command_counts_rows_of_features() {
    let place = Place::features();
    let said = |args: &[&str]| {
        let output = place.run(args);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        assert!(!said.to_lowercase().contains("image"), "{args:?}: {said}");
        said
    };
    said(&["inspect", "x.npy"]);
    said(&["train", "x.npy", "--epochs", "3", "--val-fraction", "0.2", "-o", "run"]);
    let found = said(&["evaluate", "run", "--sweep", "--sets", "0.1", "--reject", "0.1"]);
    assert!(found.contains("of the rows of") && found.contains("shares of the training rows"), "{found}");
    assert!(said(&["calibrate", "run"]).contains("validation rows"));
    said(&["predict", "run", "x.npy", "--sets", "0.1", "--reject", "0.1"]);
    said(&["export", "run", "-o", "head.onnx"]);
    said(&["train", "x.npy", "--epochs", "2", "--folds", "3", "-o", "folds"]);
    said(&["compare", "x.npy", "--epochs", "2", "--criteria", "softmax,cwap", "-o", "all"]);
    said(&["label-errors", "x.npy", "--epochs", "2", "--folds", "3", "-o", "labels"]);
}

#[test]
fn wrong_labels_of_features_are_found() {
    let place = Place::features();
    let (values, mut labels) = rows(&COUNTS, 1);
    let wrong: Vec<usize> = (0..labels.len()).step_by(20).collect();
    wrong.iter().for_each(|row| labels[*row] = (labels[*row] + 1 + *row as i64 % 3) % 4);
    place.write("y.npy", npy("<f4", &format!("({}, {WIDTH})", labels.len()), "False", &floats(&values)));
    place.write("y.labels.npy", npy("<i8", &format!("({},)", labels.len()), "False", &longs(&labels)));
    place.stdout(&["label-errors", "y.npy", "--test-fraction", "0", "--epochs", "10", "--quiet", "-o", "labels"]);
    let list = place.read("labels/label-errors.csv");
    let found = |first: usize| {
        let names = list.lines().skip(1).take(first).map(|line| line.split(',').nth(1).expect("a path").to_owned());
        names.filter(|name| wrong.iter().any(|row| *name == format!("y.npy[{row}]"))).count()
    };
    // half of the labels of the smallest class are wrong, and its right labels are not to be listed before those of others
    let [short, long] = [found(wrong.len()), found(2 * wrong.len())];
    assert!(2 * short >= wrong.len() && 10 * long >= 7 * wrong.len(), "{short} and {long} of {}\n{list}", wrong.len());
    assert!(place.read("labels/label-errors.html").contains("Every row was judged"));
}

#[test]
fn heads_have_fewer_epochs_unless_something_says_how_many() {
    let place = Place::features();
    place.write("own.toml", "epochs = 3\n");
    place.write("data.toml", "[data]\ndataset = \"x.npy\"\n");
    for (args, epochs) in [
        (&["x.npy"][..], 10),
        (&["x.npy", "--epochs", "40"], 40),
        (&["x.npy", "--set", "epochs=7"], 7),
        (&["x.npy", "--config", "own.toml"], 3),
        (&["--config", "data.toml"], 10),
        (&["fashion-mini"], 40),
    ] {
        let config = place.stdout(&[&["train", "--print-config"], args].concat());
        assert!(
            config.lines().any(|line| line.split('#').next().map(str::trim) == Some(&format!("epochs = {epochs}"))),
            "{args:?}: {config}"
        );
        // the comment names the default of this dataset
        let default = if args.contains(&"fashion-mini") { 40 } else { 10 };
        let comment = config.lines().find_map(|line| line.strip_prefix("epochs = ")?.split_once("# default: "));
        let want = (epochs != default).then(|| default.to_string());
        assert_eq!(comment.map(|(_, default)| default.to_owned()), want, "{args:?}: {config}");
    }
}

#[test]
fn all_criteria_are_compared() {
    let place = Place::features();
    place.stdout(&["compare", "x.npy", "--criteria", "all", "--epochs", "1", "--quiet", "-o", "all"]);
    let table: serde_json::Value = serde_json::from_str(&place.read("all/compare.json")).expect("JSON");
    let rows = table["rows"].as_array().expect("rows");
    assert!(rows.len() > 12 && rows[0]["criterion"] == "softmax", "{table}");
    let message = place.refused(&["compare", "x.npy", "--criteria", "all,softmax"]);
    assert!(message.contains("softmax is named twice"), "{message}");
    let message = place.refused(&["compare", "x.npy", "--criteria", "softmaxx"]);
    assert!(message.contains("softmax"), "{message}");
}

#[test]
fn labels_of_minus_one_are_doubted() {
    let place = Place::features();
    let (_, labels) = rows(&COUNTS, 1);
    let shifted: Vec<i64> = labels.iter().map(|label| label - 1).collect();
    let file = |labels: &[i64]| npy("<i8", &format!("({},)", labels.len()), "False", &longs(labels));
    place.write("x.labels.npy", file(&shifted));
    let said = place.stdout(&["inspect", "x.npy"]);
    assert!(said.contains("class `-1`: these labels are probably missing"), "{said}");
    // two classes may well be called -1 and 1
    let two: Vec<i64> = labels.iter().map(|label| if *label == 0 { -1 } else { 1 }).collect();
    place.write("x.labels.npy", file(&two));
    let said = place.stdout(&["inspect", "x.npy"]);
    assert!(!said.contains("missing"), "{said}");
}

#[test]
fn an_unfinished_cross_validation_is_not_reported_fold_by_fold() {
    let place = Place::features();
    let folds = ["compare", "x.npy", "--folds", "3", "--epochs", "2", "--quiet", "-o", "all"];
    place.stdout(&[&folds[..], &["--criteria", "softmax,balanced-softmax"]].concat());
    // as if it had been stopped in the third fold of the second criterion
    std::fs::remove_dir_all(place.path().join("all/balanced-softmax/pooled")).expect("the figures over all images");
    std::fs::remove_file(place.path().join("all/balanced-softmax/r1-f3/result.json")).expect("a result");
    let report = place.run(&["report", "all", "--plain"]);
    let (said, warned) = (text(&report.stdout), text(&report.stderr));
    assert!(said.contains("softmax  ") && !said.contains("balanced-softmax"), "{said}");
    assert!(warned.contains("this cross-validation has not finished (2 of its folds have)"), "{warned}");
    let message = text(&place.run(&["report", "all/balanced-softmax"]).stderr);
    let end = "single folds are not compared; the same command with --output all/balanced-softmax continues it";
    assert!(message.contains(end), "{message}");
    // a fold that is named is shown
    place.stdout(&["report", "all/balanced-softmax/r1-f1"]);
}

#[test]
fn criteria_are_compared_by_cross_validation() {
    let place = Place::features();
    let args = ["compare", "x.npy", "--folds", "3", "--repeats", "3", "--epochs", "4", "--quiet", "-o", "all"];
    let args = [&args[..], &["--criteria", "softmax,seesaw,balanced-softmax"]].concat();
    let said = place.stdout(&args);
    assert!(said.contains("tested in 3 folds") && said.contains("repetitions"), "{said}");
    // every row is tested once per repetition
    for repeat in ["r1", "r3"] {
        let result = place.result(&format!("all/softmax/pooled/{repeat}"));
        let tested: u64 =
            result["last"]["per_class"].as_array().expect("classes").iter().flat_map(|c| c["test"].as_u64()).sum();
        assert_eq!(tested, 322);
    }
    let table: serde_json::Value = serde_json::from_str(&place.read("all/compare.json")).expect("JSON");
    assert_eq!((&table["folds"], &table["repeats"]), (&3.into(), &3.into()));
    let rows = table["rows"].as_array().expect("rows").iter().map(|row| row["criterion"].as_str());
    let order = ["softmax", "seesaw", "balanced-softmax"].map(Some);
    assert!(rows.eq(order), "the criteria are in the order of the option: {table}");
    // nothing is trained again, and folds are not compared as if they were methods
    assert_eq!(place.stdout(&args).lines().next(), said.lines().next());
    for folder in ["all", "all/softmax"] {
        let table: serde_json::Value =
            serde_json::from_str(&place.stdout(&["report", folder, "--format", "json"])).expect("JSON");
        let rows = table[0]["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), if folder == "all" { 3 } else { 1 }, "{table}");
        assert_eq!(rows[0]["seeds"].as_array().map(Vec::len), Some(3), "{table}");
    }
    let message = place.refused(&["compare", "x.npy", "--folds", "3", "--seeds", "2"]);
    assert!(message.contains("--seeds"), "{message}");
}

/// Rows without names are those of the file, whatever split they are in.
#[test]
fn rows_are_named_by_their_place_in_the_file() {
    let place = Place::features();
    let (mut values, mut labels) = rows(&COUNTS, 1);
    let last = labels.len();
    // the last row is the first one again, with another label
    values.extend_from_within(..WIDTH);
    labels.push((labels[0] + 1) % 4);
    place.write("y.npy", npy("<f4", &format!("({}, {WIDTH})", labels.len()), "False", &floats(&values)));
    place.write("y.labels.npy", npy("<i8", &format!("({},)", labels.len()), "False", &longs(&labels)));
    let found = place.stdout(&["inspect", "y.npy"]);
    assert!(found.contains("y.npy[0]") && found.contains(&format!("y.npy[{last}]")), "{found}");
    place.stdout(&["train", "y.npy", "--epochs", "1", "--quiet", "-o", "run"]);
    place.stdout(&["evaluate", "run", "--predictions", "test.csv"]);
    for line in place.read("test.csv").lines().skip(1) {
        let mut fields = line.split(',');
        let row = fields.next().and_then(|name| name.strip_prefix("y.npy[")?.strip_suffix(']')?.parse::<usize>().ok());
        let label: i64 = fields.next().and_then(|label| label.parse().ok()).expect("a label");
        assert_eq!(labels[row.expect("a row")], label, "{line}");
    }
}

#[test]
fn labels_of_features_are_a_column_of_a_list() {
    let place = Place::features();
    let (values, labels) = rows(&COUNTS, 1);
    place.write("y.npy", npy("<f4", &format!("({}, {WIDTH})", labels.len()), "False", &floats(&values)));
    let lines: Vec<String> =
        labels.iter().enumerate().map(|(row, label)| format!("{},{label},p{}", row % 2, row % 40)).collect();
    place.write("y.csv", format!("foo,bar,patient\n{}\n", lines.join("\n")));
    let chosen = ["--labels", "y.csv", "--label-column", "bar"];
    let found = place.stdout(&[&["inspect", "y.npy", "--group-by", "patient"], &chosen[..]].concat());
    assert!(found.contains(&format!("{} rows in 40 groups of up to", labels.len())), "{found}");
    place.stdout(&[&["train", "y.npy", "--epochs", "1", "--quiet", "-o", "run"], &chosen[..]].concat());
    place.stdout(&[&["calibrate", "run", "y.npy"], &chosen[..]].concat());
}

#[test]
fn heads_are_trained_in_bf16() {
    let place = Place::features();
    for model in ["linear", "cosine", "mlp"] {
        let of = |precision: &str| {
            let run = format!("{model}-{precision}");
            let options = ["--model", model, "--precision", precision, "--epochs", "3", "--quiet", "-o", &run];
            place.stdout(&[&["train", "x.npy"], &options[..]].concat());
            let epochs = place.read(&format!("{run}/metrics.jsonl"));
            let last: serde_json::Value = serde_json::from_str(epochs.lines().last().expect("epochs")).expect("JSON");
            last["loss"].as_f64().expect("a loss")
        };
        let [exact, short] = [of("f32"), of("bf16")];
        assert!(exact != short && (exact - short).abs() < 0.02 * exact, "{model}: {exact} {short}");
    }
}

#[test]
fn the_chosen_weight_decay_is_told() {
    let place = Place::features();
    let output = place.run(&["train", "x.npy", "--epochs", "1", "--set", "optimizer.cross_validation=3", "-o", "run"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("chosen by cross-validation among 0.1, 0.03,"), "{said}");
}

#[test]
fn features_are_written_under_their_own_extension() {
    let place = Place::features();
    let message = place.refused(&["embed", "model.onnx", "photos", "-o", "x2.npy"]);
    assert!(message.contains("x2.npy: the features are written as safetensors"), "{message}");
}

#[test]
fn what_cannot_work_is_refused_before_the_first_run() {
    let place = Place::features();
    let lbfgs = ["--criteria", "softmax,ghm", "--set", "optimizer.name=lbfgs", "-o", "all"];
    let message = place.refused(&[&["compare", "x.npy"], &lbfgs[..]].concat());
    assert!(message.contains("the loss of ghm changes from step to step") && !message.contains("[2/2]"), "{message}");
    let message = place.refused(&["train", "x.npy", "--epochs", "1", "--folds", "400", "-o", "folds"]);
    assert!(message.contains("--folds 400: there are only 322 rows"), "{message}");
}
