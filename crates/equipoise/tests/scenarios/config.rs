//! `--print-config` shows what `train` would do, and refuses what it would refuse.

use super::{Place, write_tree};

#[test]
fn every_setting_is_shown_and_the_text_is_a_configuration() {
    let place = Place::new();
    let text = place.stdout(&["train", "--epochs", "7", "--print-config"]);
    let settings = place.stdout(&["settings"]);
    for name in settings.lines().filter(|line| !line.starts_with(' ') && *line != "criterion.preset") {
        let word = name.rsplit('.').next().unwrap_or_default();
        let shown = |line: &str| {
            let line = line.trim_start_matches("# ");
            line.starts_with(&format!("{word} = "))
                || line.contains(&format!("{word} is not set: "))
                || line == format!("[{name}]")
        };
        assert!(text.lines().any(shown), "{name} is not in\n{text}");
    }
    assert!(text.contains("epochs = 7 # default: 40"), "{text}");
    assert!(text.contains("batch_size = 128\n"), "{text}");
    place.write("c.toml", &text);
    assert_eq!(place.stdout(&["train", "--config", "c.toml", "--print-config"]), text);
}

#[test]
fn what_train_refuses_is_refused() {
    let place = Place::new();
    write_tree(&place, "one", &["a"]);
    write_tree(&place, "tree", &["a", "b"]);
    place.write("full/file", "x");
    for (args, part) in [
        (&["--set", "select_best=val"][..], "there is no validation split"),
        (&["--set", "patience=3"], "patience"),
        (&["no-such-data"], "no-such-data"),
        (&["cifar10"], "cifar10"),
        (&["one"], "class"),
        (&["tree", "--val-fraction", "0.01"], "data.val_fraction"),
        (&["--weights", "nowhere.safetensors"], "nowhere.safetensors"),
        (&["--output", "full"], "full already exists"),
        (&["--criterion", "cwap", "--set", "criterion.params.bins=0"], "bins"),
        (&["--set", "data.subset_file=nowhere.txt"], "nowhere.txt"),
        (&["tree", "--model", "resnet18", "--set", "augment.crop_padding=2"], "augment.crop_padding"),
    ] {
        let train = place.refused(&[&["train"], args].concat());
        let print = place.refused(&[&["train", "--print-config"], args].concat());
        assert!(print.contains(part), "{args:?}: {print}");
        assert!(train.contains(part), "{args:?}: {train}");
    }
}

#[test]
fn unknown_settings_get_the_nearest_name_at_every_level() {
    let place = Place::new();
    for (setting, near) in [
        ("optimizer.lr=1", "optimizer.learning_rate"),
        ("lr=1", "optimizer.learning_rate"),
        ("schedule.name=cosine", "optimizer.schedule.name"),
        ("schedule=cosine", "optimizer.schedule"),
        ("optimizer.scheduler=cosine", "optimizer.schedule.name"),
        ("optimizer.schedule.warmup=1", "optimizer.schedule.warmup_epochs"),
        ("augment.colour_jitter=[1,1,1,0]", "augment.color_jitter"),
        ("color_jitter=[1,1,1,0]", "augment.color_jitter"),
        ("augmentation.flip=false", "augment.flip"),
        ("criterion.gamma=1", "criterion.params.gamma"),
        ("data.size=3", "data.image_size"),
        ("epoch=3", "epochs"),
    ] {
        let message = place.refused(&["train", "--set", setting]);
        let name = setting.split('=').next().unwrap_or_default();
        let want = format!("unknown setting '{name}'; did you mean '{near}'?");
        assert!(message.contains(&want), "{setting}: {message}");
    }
    let message = place.refused(&["train", "--criterion", "focal", "--set", "criterion.params.gama=1"]);
    assert!(message.contains("params.gama: unknown parameter; did you mean 'gamma'?"), "{message}");
    let message = place.refused(&["train", "--set", "augment.color_jitter.hue=1"]);
    assert!(
        message.contains("augment.color_jitter") && message.contains("[brightness, contrast, saturation, hue]"),
        "{message}"
    );
}

/// Nothing wins silently: an option and a setting that mean the same contradict each other.
#[test]
fn an_option_and_its_setting_contradict_each_other() {
    let place = Place::new();
    for (option, setting) in [
        (&["fashion-mini"][..], "data.dataset=cifar10"),
        (&["--epochs", "3"], "epochs=5"),
        (&["--criterion", "cwap"], "criterion.method=softmax"),
        (&["--model", "resnet8"], "model.name=resnet20"),
        (&["--lr", "0.1"], "optimizer.learning_rate=0.2"),
        (&["--val", "0.1"], "data.val_fraction=0.2"),
    ] {
        let said = place.refused(&[&["train", "--print-config", "--set", setting], option].concat());
        let name = match option[0] {
            "fashion-mini" => "DATA",
            "--criterion" => "--criterion or --criteria",
            name => name,
        };
        assert!(
            said.contains(&format!("--set {setting} and {name} set the same thing; leave one of them out")),
            "{said}"
        );
    }
}
