use equipoise_data::batch::random_ops::{ColorJitter, RandAugment};
use toml::{Table, Value};

use super::*;

/// The error that a configuration gives, or `fine`.
fn verdict(text: &str) -> String {
    match Settings::from_toml(text, &Settings::default()).and_then(|settings| settings.check()) {
        Ok(()) => "fine".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn settings_survive_a_round_trip() {
    let mut settings = Settings::default();
    let read = |settings: &Settings| {
        let text = settings.to_toml().expect("TOML");
        Settings::from_toml(&text, &Settings::default()).expect("its own text")
    };
    assert_eq!(read(&settings), settings);
    settings.data.imbalance = Some(100.0);
    settings.augment.randaugment = RandAugment::new(2, 9).ok();
    settings.augment.color_jitter = ColorJitter::new(0.4, 0.4, 0.4, 0.1).ok();
    settings.optimizer.schedule = Some(Schedule::Cosine { warmup_epochs: Some(1.0), floor: 0.1 });
    settings.model.weights = Some("a \"path\"".to_owned());
    for id in Id::ALL {
        for preset in Preset::ALL {
            settings.criterion = Config::from(id.preset(preset));
            assert_eq!(read(&settings), settings, "{id}");
        }
    }
}

/// `--print-config` names every setting, and its text is a configuration.
#[test]
fn commented_text_names_every_setting() {
    let settings = Settings::default();
    let text = settings.to_commented_toml().expect("TOML");
    for key in KEYS.iter().filter(|key| key.name != "criterion.preset") {
        let name = key.name.rsplit('.').next().unwrap_or_default();
        assert!(
            text.contains(&format!("{name} = "))
                || text.contains(&format!("{name} is not set: "))
                || text.contains(&format!("{name}]")),
            "{name}: {text}"
        );
    }
    assert!(
        text.contains("dataset = \"fashion-mini\"\n") && text.contains("\n# imbalance is not set: the whole dataset\n"),
        "{text}"
    );
    assert_eq!(Settings::from_toml(&text, &Settings::default()).expect("its own text"), settings);
}

#[test]
fn unknown_settings_are_refused_with_the_nearest() {
    for (text, want) in [
        ("epoch = 3", "unknown setting 'epoch'; did you mean 'epochs'?"),
        ("[data]\nimbalanse = 3.0", "unknown setting 'data.imbalanse'; did you mean 'data.imbalance'?"),
        (
            "[optimizer]\nlerning_rate = 1.0",
            "unknown setting 'optimizer.lerning_rate'; did you mean 'optimizer.learning_rate'?",
        ),
        ("lerning_rate = 1.0", "unknown setting 'lerning_rate'; did you mean 'optimizer.learning_rate'?"),
        ("[optimizer]\nrate = 1.0", "unknown setting 'optimizer.rate'; did you mean 'optimizer.learning_rate'?"),
        ("batch = 3", "unknown setting 'batch'; did you mean 'batch_size'?"),
        (
            "[optimizer.schedule]\nname = \"cosine\"\nwarmup = 3",
            "unknown setting 'optimizer.schedule.warmup'; did you mean 'optimizer.schedule.warmup_epochs'?",
        ),
        ("[optimizer]\nlr = 1.0", "unknown setting 'optimizer.lr'; did you mean 'optimizer.learning_rate'?"),
        ("[schedule]\nname = \"x\"", "unknown setting 'schedule.name'; did you mean 'optimizer.schedule.name'?"),
        ("schedule = \"cosine\"", "unknown setting 'schedule'; did you mean 'optimizer.schedule'?"),
        ("color_jitter = 1", "unknown setting 'color_jitter'; did you mean 'augment.color_jitter'?"),
        (
            "[augment]\ncolour_jitter = 1",
            "unknown setting 'augment.colour_jitter'; did you mean 'augment.color_jitter'?",
        ),
        ("[augmnt]\nflip = true", "unknown setting 'augmnt.flip'; did you mean 'augment.flip'?"),
        ("[criterion]\ngamma = 1", "unknown setting 'criterion.gamma'; did you mean 'criterion.params.gamma'?"),
        ("xyzzy = 3", "unknown setting 'xyzzy'"),
        ("data = 3", "setting 'data': this is a section; its settings are written data.NAME = VALUE"),
    ] {
        assert_eq!(verdict(text), want);
    }
    assert!(verdict("[criterion]\nmethod = \"sesaw\"").contains("sesaw"));
    let gama = verdict("[criterion]\nmethod = \"focal\"\nparams = { gama = 1.0 }");
    assert_eq!(gama, "setting 'criterion': params.gama: unknown parameter; did you mean 'gamma'?");
}

#[test]
fn values_that_cannot_be_used_are_refused() {
    for (text, want) in [
        ("epochs = 0", "setting 'epochs' is 0; it must be at least 1"),
        ("seed = 9223372036854775808", "the configuration is not valid TOML: "),
        ("a b", "the configuration is not valid TOML: "),
        ("epochs = \"x\"", "setting 'epochs' is \"x\"; it must be an integer, at least 1"),
        ("epochs = -1", "setting 'epochs' is -1; it must be an integer, at least 1"),
        ("batch_size = 0", "setting 'batch_size' is 0; it must be from 1 to 65536"),
        ("evaluate_every = 0", "setting 'evaluate_every' is 0; it must be at least 1"),
        ("logit_adjustment = -1.0", "setting 'logit_adjustment' is -1; it must be from 0 to 100"),
        ("patience = 3\nselect_best = \"last\"", "setting 'patience' is 3; it must be 0 unless"),
        ("select_best = \"first\"", "setting 'select_best' is \"first\"; it must be auto, last, val or test"),
        ("precision = \"f16\"", "setting 'precision' is \"f16\"; it must be f32, bf16 or bf16-amx"),
        ("groups = \"x\"", "setting 'groups': "),
        ("[data]\nimbalance = 0.5", "setting 'data.imbalance' is 0.5; it must be finite and at least 1"),
        ("[data]\nimbalance = 2.0\nsubset_file = \"a\"", "setting 'data.subset_file': a run has either"),
        ("[data]\nprofile = \"linear\"", "setting 'data.profile' is \"linear\"; it must be exp or step"),
        ("[data]\ntest_fraction = 1.0", "setting 'data.test_fraction' is 1; it must be "),
        ("[data]\nval_fraction = 1.0", "setting 'data.val_fraction' is 1; it must be at least 0 and less than 1"),
        (
            "[data]\nval_per_class = 5\nimbalance = 10.0\nfolds = 5\nfold = 1",
            "setting 'data.val_per_class' is 5; it must be 0 beside 'data.folds'",
        ),
        ("[data]\nval_per_class = 5", "setting 'data.val_per_class' is 5; it must be 0 without 'data.imbalance'"),
        (
            "[data]\nval_per_class = 5\nimbalance = 10.0\nval_fraction = 0.1",
            "setting 'data.val_per_class' is 5; it must be 0 beside 'data.val_fraction'",
        ),
        ("[data]\nval_at_least = 5", "setting 'data.val_at_least' is 5; it must be 0 unless 'data.val_fraction'"),
        ("[data]\nimage_size = 100000", "setting 'data.image_size' is 100000; it must be 0, or from 8 to 65536"),
        ("[data]\nsampler = \"x\"", "setting 'data.sampler' is \"x\"; it must be uniform, class-balanced"),
        ("[model]\nname = \"resnet9\"", "setting 'model.name': unknown model 'resnet9'"),
        ("[model]\nhead = \"round\"", "setting 'model.head' is \"round\"; it must be linear, cosine or lws"),
        ("[model]\nhead_scale = 0.0", "setting 'model.head_scale' is 0; it must be finite and more than 0"),
        ("[model]\nhead = \"lws\"", "setting 'model.head': lws only scales a trained head: it needs 'model.weights'"),
        (
            "[model]\nlearn_head_scale = true",
            "setting 'model.learn_head_scale' is true; it must be false unless 'model.head' is cosine",
        ),
        ("[criterion]\nmethod = \"focal\"\nparams = { gamma = -1.0 }", "focal: gamma is -1"),
        (
            "[criterion.drw]\nstart_epoch = 99",
            "setting 'criterion.drw.start_epoch' is 99; it must be less than the number",
        ),
        ("[optimizer]\nlearning_rate = 1e300", "setting 'optimizer.learning_rate' is 1"),
        ("[optimizer]\nlearning_rate = -1.0", "setting 'optimizer.learning_rate' is -1; it must be finite and more"),
        (
            "[optimizer]\nbackbone_factor = 0.0",
            "setting 'optimizer.backbone_factor' is 0; it must be finite and more than 0",
        ),
        ("[optimizer]\nmomentum = 1", "setting 'optimizer.momentum' is 1; it must be at least 0 and less than 1"),
        ("[optimizer]\nweight_decay = inf", "setting 'optimizer.weight_decay' is inf; it must be finite"),
        (
            "[optimizer]\nclip_grad_norm = 1e-60",
            "setting 'optimizer.clip_grad_norm' is 1e-60; it must be 0 or a number that 32 bits can hold",
        ),
        ("[optimizer]\nema_decay = 0.9999999999", "setting 'optimizer.ema_decay' is 0.9999999999; it must be less"),
        ("[optimizer]\nname = \"adam\"", "setting 'optimizer.name' is \"adam\"; it must be sgd, adamw or lbfgs"),
        (
            "[optimizer]\nnesterov = true\nmomentum = 0.0",
            "setting 'optimizer.nesterov' is true; it must be false without the momentum of `sgd`",
        ),
        ("[optimizer]\nnesterov = true\nname = \"adamw\"", "setting 'optimizer.nesterov' is true; it must be false"),
        ("[optimizer]\nbetas = [0.9, 1.0]", "setting 'optimizer.betas' is 1; it must be at least 0 and less than 1"),
        ("[optimizer]\nepsilon = 0.0", "setting 'optimizer.epsilon' is 0; it must be finite and more than 0"),
        ("[optimizer.sam]\nrho = 0.0", "setting 'optimizer.sam.rho' is 0; it must be finite and more than 0"),
        (
            "[optimizer.sam]\nrho = 0.1\nstart = 1.0",
            "setting 'optimizer.sam.start' is 1; it must be at least 0 and less",
        ),
        ("[optimizer.sam]\nstart = 0.5", "setting 'optimizer.sam': 'rho' is missing"),
        ("[optimizer]\nema_epochs = -1.0", "setting 'optimizer.ema_epochs' is -1; it must be finite and at least 0"),
        (
            "[optimizer]\nema_epochs = 20.0\nema_decay = 0.99",
            "setting 'optimizer.ema_epochs': a run has either 'optimizer.ema_epochs' or 'optimizer.ema_decay'; set the other to 0",
        ),
        ("[optimizer]\nema_bn_images = 100", "setting 'optimizer.ema_bn_images' is 100; it must be 0 unless"),
        (
            "[optimizer]\nema_epochs = 20.0\nema_bn_images = 100\n[model]\nfreeze_backbone = true",
            "setting 'optimizer.ema_bn_images' is 100; it must be 0 with 'model.freeze_backbone'",
        ),
        (
            "[optimizer]\nema_epochs = 20.0\nema_bn_images = 100\n[model]\nweights = \"w\"\nfreeze_batch_norm = true",
            "setting 'optimizer.ema_bn_images' is 100; it must be 0 with 'model.freeze_batch_norm'",
        ),
        (
            "[optimizer]\nlayer_decay = 1.5",
            "setting 'optimizer.layer_decay' is 1.5; it must be more than 0 and at most 1",
        ),
        ("[model]\nfreeze_epochs = 3", "setting 'model.freeze_epochs' is 3; it must be 0 without 'model.weights'"),
        (
            "epochs = 3\n[model]\nweights = \"w\"\nfreeze_epochs = 3",
            "setting 'model.freeze_epochs' is 3; it must be less than the number of epochs",
        ),
        (
            "[model]\nweights = \"w\"\nfreeze_epochs = 3\nfreeze_backbone = true",
            "setting 'model.freeze_epochs' is 3; it must be 0 with 'model.freeze_backbone'",
        ),
        (
            "[model]\nfreeze_backbone = true",
            "setting 'model.freeze_backbone': without weights to start from, the backbone would stay random; add --weights",
        ),
        ("[data]\nimage_size = 7", "setting 'data.image_size' is 7; it must be 0, or from 8 to 65536"),
        ("[optimizer]\nlearning_rate = 1e300", "setting 'optimizer.learning_rate' is 1e300; it must be finite"),
        ("[optimizer.sam]\nroh = 0.1", "unknown setting 'optimizer.sam.roh'; did you mean 'optimizer.sam.rho'?"),
        (
            "[optimizer]\nlabel_smoothing = 0.1",
            "unknown setting 'optimizer.label_smoothing'; did you mean 'criterion.params.smoothing'?",
        ),
        (
            "[criterion]\nmethod = \"softmax\"\nparams = { label_smoothing = 0.1 }",
            "setting 'criterion': params.label_smoothing: unknown parameter; did you mean 'smoothing'?",
        ),
        (
            "[criterion]\nmethod = \"softmax\"\nparams = { xyz = 0.1 }",
            "setting 'criterion': params.xyz: unknown parameter; the only parameter of softmax is smoothing",
        ),
        (
            "[optimizer.schedule]\nmilestones = [3]",
            "setting 'optimizer.schedule': name the schedule as well, such as --set optimizer.schedule.name=cosine",
        ),
        (
            "[optimizer.schedule]\nname = \"multi-step\"\nmilestones = [3]",
            "setting 'optimizer.schedule': 'milestones' is a list of { epoch, factor }",
        ),
        (
            "[optimizer.schedule]\nname = \"cosine\"\nmilestones = []",
            "setting 'optimizer.schedule': unknown name 'milestones' (known: warmup_epochs and floor)",
        ),
        (
            "[optimizer.schedule]\nname = \"multi-step\"\nmilestones = [{ epoch = 3, factr = 0.1 }]",
            "setting 'optimizer.schedule': unknown name 'factr'; did you mean 'factor'? (known: epoch and factor)",
        ),
        (
            "[model]\nfreeze_batch_norm = true",
            "setting 'model.freeze_batch_norm' is true; it must be false without 'model.weights'",
        ),
        (
            "[optimizer.schedule]\nname = \"cosine\"\nfloor = 1.0",
            "setting 'optimizer.schedule': floor is 1; it must be at least 0 and less than 1",
        ),
        ("[optimizer.schedule]\nname = \"linear\"", "setting 'optimizer.schedule"),
        (
            "[optimizer.schedule]\nname = \"multi-step\"\nmilestones = [{ epoch = 99, factor = 0.1 }]",
            "setting 'optimizer.schedule': milestones[0].epoch is 99",
        ),
        ("[augment]\ncutout = 2000", "setting 'augment.cutout' is 2000; it must be at most 1024"),
        ("[augment]\nrandaugment = [0, 9]", "setting 'augment.randaugment': randaugment.ops = 0"),
        (
            "[augment]\nrandaugment = [2, \"hard\"]",
            "setting 'augment.randaugment[1]': invalid value: string \"hard\", expected a magnitude",
        ),
        (
            "[augment]\npolicy = \"autoaugment\"",
            "setting 'augment.policy' is \"autoaugment\"; it must be trivialaugment or",
        ),
        (
            "[augment]\npolicy = \"trivialaugment\"\nrandaugment = [2, 9]",
            "setting 'augment.policy': a run has either 'augment.policy' or 'augment.randaugment'",
        ),
        ("[augment]\ncolor_jitter = [0.4, 0.4, 0.4, 0.75]", "setting 'augment.color_jitter': color_jitter.hue = 0.75"),
        ("[augment]\ncutmix = 1.5", "setting 'augment.cutmix' is 1.5; it must be more than 0 and at most 1"),
        (
            "epochs = 3\n[optimizer.sam]\nrho = 0.1\nstart = 0.9",
            "setting 'optimizer.sam.start' is 0.9; it must be smaller, so that at least one of the 3 epochs has SAM",
        ),
        ("[augment]\ncmo = 0.0", "setting 'augment.cmo' is 0; it must be more than 0 and at most 1"),
        (
            "[augment]\ncmo = 0.5\nmixup_alpha = 0.2",
            "setting 'augment.cmo': images are already mixed by 'augment.mixup_alpha'",
        ),
        ("[augment]\ncmo = 0.5\ncutmix = 0.5", "setting 'augment.cmo': images are already mixed by 'augment.cutmix'"),
        (
            "[augment]\nrandaugment = [2, \"difficulty\"]\nmixup_alpha = 0.2",
            "setting 'augment.randaugment': the magnitude 'difficulty' counts only images that are not mixed",
        ),
        ("[augment]\nrandaugment = [2, \"difficulty\"]\ncmo = 1.0", "setting 'augment.randaugment': the magnitude"),
        ("[augment]\nrandaugment = [2, \"difficulty\"]\ncmo = 0.5", "fine"),
        (
            "[criterion]\nmethod = \"cwap\"\n[augment]\nmixup_alpha = 0.2",
            "setting 'criterion.method': the histograms of cwap count only images that are not mixed",
        ),
        ("[criterion]\nmethod = \"cwap\"\n[augment]\ncutmix = 0.5", "fine"),
        (
            "epochs = 40\n[criterion]\nmethod = \"cwap\"\nparams = { intra_start = 40 }",
            "setting 'criterion.params.intra_start' is 40; it must be 0, or less than the number of epochs",
        ),
        (
            "[model]\nhead = \"lws\"\nweights = \"run\"\nfreeze_backbone = true\nreset_head = true",
            "setting 'model.head': lws scales a trained head, and a new one is random",
        ),
        ("epochs = 6\n[augment]\ncmo = 0.5", "setting 'epochs' is 6; it must be at least 7 with 'augment.cmo'"),
        ("[augment]\nmixup_alpha = -1.0", "setting 'augment.mixup_alpha' is -1; it must be finite and at least 0"),
    ] {
        assert!(verdict(text).starts_with(want), "{text}: {}", verdict(text));
    }
}

/// A run whose backbone was frozen at first, or whose weight decay was chosen by folds, has a second stage too.
#[test]
fn second_stages_are_runs() {
    let change = |key: &str, value: &str| Settings::default().with_value(key, value).expect("valid");
    let mut tuned = change("model.freeze_epochs", "3");
    tuned.model.weights = Some("weights.safetensors".to_owned());
    tuned.check().expect("valid");
    let second = tuned.retrain_head("run");
    second.check().expect("valid");
    assert!(second.model.freeze_backbone && second.model.freeze_epochs == 0);
    let mut folds = change("data.val_fraction", "0.1");
    folds.optimizer.cross_validation = 5;
    assert_eq!(folds.refit().expect("it held images out").optimizer.cross_validation, 0);
}

/// Whatever is accepted can be read back.
#[test]
fn integers_beyond_toml_are_refused() {
    let mut settings = Settings { epochs: u64::MAX, ..Settings::default() };
    let error = settings.check().expect_err("too large").to_string();
    assert!(error.starts_with("setting 'epochs' is 18446744073709551615"), "{error}");
    settings.epochs = i64::MAX as u64;
    settings.check().expect("the largest");
    let text = settings.to_toml().expect("TOML");
    assert_eq!(Settings::from_toml(&text, &Settings::default()).expect("its own text"), settings);
}

#[test]
fn options_change_single_settings() {
    let base = Settings::default();
    let set = |key: &str, value: &str| base.with_value(key, value);
    assert_eq!(set("epochs", "7").expect("valid").epochs, 7);
    assert_eq!(set("data.dataset", "cifar10").expect("text without quotes").data.dataset, "cifar10");
    assert_eq!(set("model.name", "resnet50").expect("known").model.name, Some(Architecture::ResNet50));
    let schedule = |name: &str| set("optimizer.schedule", name).expect("known").optimizer.schedule;
    assert_eq!(schedule("cosine"), Some(Schedule::Cosine { warmup_epochs: None, floor: 0.0 }));
    assert_eq!(schedule("constant"), Some(Schedule::Constant {}));
    assert_eq!(schedule("paper"), None);
    let cosine = set("optimizer.schedule.name", "cosine").expect("known");
    assert_eq!(cosine.optimizer.schedule, schedule("cosine"));
    assert_eq!(cosine.with_value("optimizer.schedule.name", "paper").expect("known"), base);
    let more = set("augment.randaugment", "[2, 9]").expect("valid");
    assert_eq!(more.augment.randaugment, RandAugment::new(2, 9).ok());
    assert_eq!(more.with_value("augment.randaugment", "none").expect("valid"), base);
    for (key, value) in [("", "1"), ("a..b", "1"), ("epochs.x", "1"), ("epochs", "x")] {
        assert!(set(key, value).is_err(), "{key}");
    }
}

/// Naming a criterion means its recommended parameters, however it is named.
#[test]
fn a_criterion_has_one_default() {
    let base = Settings::default();
    for id in Id::ALL {
        let want = Config::from(id.preset(Preset::Recommended));
        let text = format!("[criterion]\nmethod = \"{id}\"");
        assert_eq!(Settings::from_toml(&text, &base).expect("known").criterion, want);
        assert_eq!(base.with_value("criterion.method", id.name()).expect("known").criterion, want);
    }
    let base = base.with_value("criterion.method", "cwap").expect("known");
    let reference = base.with_value("criterion.preset", "reference").expect("known");
    assert_eq!(reference.criterion, Config::from(Id::Cwap.preset(Preset::Reference)));
    // parameters stay unless the method or the preset changes
    let bins = base.with_value("criterion.params.bins", "7").expect("valid");
    assert_ne!(bins, base);
    assert_eq!(bins.with_value("epochs", "7").expect("valid").criterion, bins.criterion);
    let focal = bins.with_value("criterion.method", "focal").expect("valid");
    assert_eq!(focal.criterion, Config::from(Id::Focal.preset(Preset::Recommended)));
}

/// The dotted names of a table's leaves.
fn names(table: &Table, section: &str) -> Vec<String> {
    let of = |(name, value): (&String, &Value)| match value {
        Value::Table(table) if section != "criterion." => names(table, &format!("{section}{name}.")),
        _ => vec![format!("{section}{name}")],
    };
    table.iter().flat_map(of).collect()
}

/// The table of settings is complete: what has a default is in it, in this order, and everything else in it can be set.
#[test]
fn every_setting_is_described() {
    let defaults = Settings::default().table().expect("a table");
    let required: Vec<&str> = KEYS.iter().filter(|key| key.unset.is_none()).map(|key| key.name).collect();
    let mut with_default = names(&defaults, "");
    assert_eq!(with_default.len(), required.len());
    with_default.sort_by_key(|name| required.iter().position(|known| known == name));
    assert_eq!(with_default, required);
    let examples = [
        ("data.imbalance", "10"),
        ("data.subset_file", "subset.txt"),
        ("data.path_column", "file"),
        ("data.label_column", "kind"),
        ("data.labels", "labels.csv"),
        ("data.test_data", "test"),
        ("data.val_data", "val"),
        ("data.group_by", "patient"),
        ("model.name", "resnet20"),
        ("model.head_scale", "3"),
        ("model.head", "cosine"),
        ("model.weights", "weights.safetensors"),
        ("criterion.preset", "paper"),
        ("criterion.drw", "{ start_epoch = 3, beta = 0.9, reduction = \"batch\" }"),
        ("optimizer.learning_rate", "0.3"),
        ("optimizer.schedule.floor", "{ name = \"cosine\", floor = 0.1 }"),
        ("optimizer.sam", "{ rho = 0.1, start = 0.5 }"),
        (
            "optimizer.schedule",
            "{ name = \"multi-step\", warmup_epochs = 2, milestones = [{ epoch = 9, factor = 0.1 }] }",
        ),
        ("augment.randaugment", "[2, 9]"),
        ("augment.policy", "trivialaugment"),
        ("augment.color_jitter", "[0.4, 0.4, 0.4, 0.1]"),
        ("augment.cutmix", "0.5"),
        ("augment.cmo", "0.5"),
    ];
    for key in KEYS.iter().filter(|key| key.unset.is_some()) {
        let example = examples.iter().find(|(name, _)| key.name.starts_with(name));
        let (name, value) = example.unwrap_or_else(|| panic!("an example of {}", key.name));
        let name = name.strip_suffix(".floor").unwrap_or(name);
        // a criterion whose presets differ
        let base = Settings::default().with_value("criterion.method", "cwap").expect("known");
        let changed = base.with_value(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_ne!(changed, base, "{name}");
        let shown = changed.table().expect("a table");
        let found = key.name == "criterion.preset"
            || key.name.split('.').try_fold(&Value::Table(shown), |value, name| value.get(name)).is_some();
        assert!(found, "{} is not a setting", key.name);
    }
    let table = Settings::describe();
    assert_eq!(table.lines().count(), KEYS.len() + 2);
    assert!(table.contains("| `optimizer.learning_rate` | number, more than 0 | 0.1; 0.01 for `linear` and `mlp` on features | Learning rate"), "{table}");
    assert!(KEYS.iter().all(|key| !key.about.contains('|') && !key.values.contains('|')));
}

#[test]
fn an_ema_in_epochs_forgets_by_e_in_that_time() {
    let decay = |ema_epochs: f64, ema_decay: f64, steps: u64| {
        OptimizerSettings { ema_epochs, ema_decay, ..OptimizerSettings::default() }.ema_decay_per_step(steps)
    };
    assert!((decay(20.0, 0.0, 97).powi(20 * 97) - (-1.0f64).exp()).abs() < 1e-12);
    // 20 epochs of CIFAR-10-LT at imbalance factor 100
    assert!((decay(20.0, 0.0, 97) - 0.9995).abs() < 2e-5);
    assert_eq!(decay(0.0, 0.998, 97), 0.998);
    assert!((decay(1e9, 0.0, 1 << 40) as f32) < 1.0);
}

#[test]
fn cmo_is_laid_out_for_the_epochs_of_a_run() {
    let mut settings = Settings::default();
    settings.optimizer.schedule = Some(Schedule::Constant {});
    assert_eq!(settings.check_epochs_can_change(), Ok(()));
    settings.augment.cutmix = Some(0.5);
    assert_eq!(settings.check_epochs_can_change(), Ok(()));
    (settings.augment.cutmix, settings.augment.cmo) = (None, Some(0.5));
    assert!(settings.check_epochs_can_change().is_err_and(|what| what.starts_with("CMO")));
}

#[test]
fn settings_of_a_loop_of_its_own_are_known_by_their_criterion() {
    let ours = RecordedSettings::new("criterion.method = \"seesaw\"");
    assert!(ours.resolved.expect("all settings").contains("batch_size"));
    let foreign = "command = \"python loop.py\"\nmodel.name = \"vit\"\ncriterion.method = \"seesaw\"";
    let foreign = RecordedSettings::new(foreign);
    assert_eq!((foreign.resolved, foreign.criterion_label), (None, ours.criterion_label));
    assert_eq!(RecordedSettings::new("criterion.method = \"mine\"\nloop = 1"), RecordedSettings::default());
    assert_eq!(RecordedSettings::new("not TOML"), RecordedSettings::default());
}
