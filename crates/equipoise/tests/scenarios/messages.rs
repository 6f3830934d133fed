//! Messages in the user's words: names of classes, no types of the language, and what to do.

use super::{Place, text};

#[test]
fn wrong_values_are_told_without_types() {
    let place = Place::new();
    for (setting, want) in [
        ("epochs=many", "setting 'epochs' is \"many\"; it must be an integer, at least 1"),
        ("epochs=-1", "setting 'epochs' is -1; it must be an integer, at least 1"),
        ("epochs=2.5", "setting 'epochs' is 2.5; it must be an integer, at least 1"),
        (
            "optimizer.learning_rate=fast",
            "setting 'optimizer.learning_rate' is \"fast\"; it must be a number, more than 0",
        ),
        ("augment.flip=1", "setting 'augment.flip' is 1; it must be true or false"),
        ("select_best=first", "setting 'select_best' is \"first\"; it must be auto, last, val or test"),
        ("optimizer.schedule={ name = \"cosine\", warmup_epochs = \"x\" }", "expected a number"),
        ("criterion.params.bins=x", "params.bins: invalid type: string \"x\", expected a whole number"),
        ("criterion.drw=3", "criterion.drw"),
    ] {
        let message = place.refused(&["train", "--set", setting]);
        assert!(message.contains(want), "{setting}: {message}");
    }
    let case = "{\"method\": \"focal\", \"counts\": [9, \"x\"], \"steps\": []}";
    place.write("case.json", case);
    let message = place.refused(&["loss", "case.json"]);
    assert!(message.contains("counts[1]: invalid type: string \"x\", expected a whole number"), "{message}");
}

#[test]
fn classes_have_their_names() {
    let place = Place::new();
    let said = place.train("run", &["--quiet"]);
    assert!(said.contains("class 'ankle boot' has no training images"), "{said}");
}

#[test]
fn a_run_that_diverges_says_what_to_try() {
    let place = Place::new();
    let diverge = |more: &[&str]| {
        let args = ["train", "--model", "resnet8", "--epochs", "2", "--lr", "1e30", "--quiet", "--threads", "2"];
        let out = place.run(&[&args[..], more].concat());
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    let message = diverge(&["--output", "a"]);
    assert!(message.contains("the run diverged in epoch 1, step "), "{message}");
    assert!(message.contains("--lr 1000000000000000"), "{message}");
    assert!(message.contains("or clip gradients, --set optimizer.clip_grad_norm=2"), "{message}");
    assert!(!message.contains("logits["), "{message}");
    let message = diverge(&["--output", "b", "--set", "optimizer.clip_grad_norm=1e30"]);
    assert!(!message.contains("clip gradients"), "{message}");
}
