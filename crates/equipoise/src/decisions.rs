//! Options that turn logits into decisions: calibration, target prior, prediction sets, rejection.

use std::path::{Path, PathBuf};

use equipoise_data::describe::groups::ClassGroup;
use equipoise_decide::rejection::Rejection;
use equipoise_decide::sets::{Guarantee, fewest_images};
use equipoise_decide::temperature::{FEWEST_IMAGES, RANGE};
use equipoise_record::{Calibration, TemperatureFit};
use equipoise_support::Examples;
use equipoise_train::checkpoint::CheckpointHeader;
use equipoise_train::decision::DecisionOptions;
use equipoise_train::prior::TargetPrior;
use equipoise_train::run::calibration::read_calibration;
use equipoise_train::run::files::read_text;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{counted, warn};
use crate::progress::Console;

/// Probabilities: how they are calibrated, and for which shares of the classes.
#[derive(clap::Args, Clone)]
pub(crate) struct ProbabilityArgs {
    /// Shares of the classes where the network is used: train, uniform, or a CSV or JSON file with a share or count for every class
    /// [default: what the criterion has learned]
    #[arg(long, value_name = "train|uniform|FILE")]
    pub(crate) prior: Option<String>,
    /// Leave probabilities as the network has them, even if the run is calibrated
    #[arg(long)]
    pub(crate) uncalibrated: bool,
}

/// Decisions that need a calibration.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct CautionArgs {
    /// Prediction sets: all classes that an image may well belong to. ALPHA is the share of images whose set may miss their class
    #[arg(long, value_name = "ALPHA")]
    pub(crate) sets: Option<f64>,
    /// Reject images that are probably none of the classes. RATE is the share of right answers that may be lost, in frequent and in rare
    /// classes alike
    #[arg(long, value_name = "RATE")]
    pub(crate) reject: Option<f64>,
}

impl ProbabilityArgs {
    /// What the options ask for. Weights that are changed after training, by `tau_norm`, have no calibration.
    pub(crate) fn decision(
        &self,
        run: &Path,
        header: &CheckpointHeader,
        caution: Option<CautionArgs>,
        tau_norm: f64,
    ) -> Result<DecisionOptions, Failure> {
        let calibration = match self.uncalibrated || tau_norm > 0.0 {
            true => None,
            false => read_calibration(run, header, &Console::default())?,
        };
        let examples = Examples::of_features(header.network.is_on_features());
        calibration.iter().for_each(|calibration| warn_of_bound(calibration, examples));
        let prior = self.prior.as_deref().map(|prior| target_prior(prior, header)).transpose()?;
        let (sets, reject) = caution.map_or((None, None), |caution| (caution.sets, caution.reject));
        if (self.uncalibrated || tau_norm > 0.0) && (sets.is_some() || reject.is_some()) {
            let option = if self.uncalibrated { "--uncalibrated" } else { "--tau-norm" };
            return Err(Failure::usage(format!("--sets and --reject need the calibration, which {option} leaves out")));
        }
        Ok(DecisionOptions { calibration, prior: prior.unwrap_or_default(), sets, reject })
    }
}

/// Warns of a target prior for logits whose own prior is not known exactly.
pub(crate) fn warn_of_rough_prior(header: &CheckpointHeader, prior: &TargetPrior, is_exact: bool) {
    if *prior != TargetPrior::Assumed && !is_exact {
        let method = header.settings.criterion.method.id();
        warn(&format!(
            "the prior that logits of {method} assume is known only roughly, so those for another prior are rough too; softmax, \
             balanced-softmax and logit-adjusted are exact"
        ));
    }
}

/// What a calibration makes of probabilities, in a sentence.
pub(crate) fn calibration_sentence(calibration: &Calibration, examples: Examples) -> String {
    let Calibration { source, temperature, .. } = calibration;
    let images = calibration.images.labels.len();
    match calibration.is_fitted() {
        true => format!("probabilities calibrated on {source}: temperature {temperature:.3}"),
        false => format!(
            "probabilities are not calibrated: a temperature takes at least {FEWEST_IMAGES} {}, and the calibration has {images} ({source})",
            examples.many()
        ),
    }
}

/// Warns of a temperature that is the smallest or largest that is considered.
pub(crate) fn warn_of_bound(calibration: &Calibration, examples: Examples) {
    if calibration.fit == TemperatureFit::AtBound {
        let (temperature, [least, most]) = (calibration.temperature, RANGE);
        warn(&examples.say(&format!(
            "the temperature, {temperature}, is at an end of its range ({least} to {most}), and probabilities remain badly calibrated: the run may \
             have too few epochs, or the calibration images may be unlike its training images"
        )));
    }
}

/// The promises of prediction sets, in a sentence.
pub(crate) fn promise(alpha: f64, guarantees: &[Guarantee], examples: Examples) -> String {
    examples.say(&promise_for_images(alpha, guarantees))
}

fn promise_for_images(alpha: f64, guarantees: &[Guarantee]) -> String {
    let (percent, least) = (100.0 * (1.0 - alpha), fewest_images(alpha));
    let with = |guarantee: Guarantee| guarantees.iter().filter(|own| **own == guarantee).count();
    let [own, pooled, all] = [Guarantee::Class, Guarantee::Pooled, Guarantee::All].map(with);
    let sets = format!("sets hold the true class in at least {percent:.0} %");
    if all == guarantees.len() {
        return format!(
            "{sets} of all images with the class shares of the calibration images; no class has the {least} calibration images that a promise \
             for a single class takes"
        );
    }
    let mut text = match own {
        0 => format!("{sets} of the images of all classes together"),
        own if own == guarantees.len() => format!("{sets} of the images of every class"),
        1 => format!("{sets} of the images of 1 class"),
        own => format!("{sets} of the images of each of {own} classes"),
    };
    let too_few = |number: usize| format!("{} with fewer than {least} calibration images", counted(number, "class"));
    if pooled > 0 {
        text += &format!("; for {} this holds only on average over these classes", too_few(pooled));
    }
    if all > 0 {
        text += &format!("; for {} it holds only on average over the images of all classes", too_few(all));
    }
    text
}

/// The promises of a rejection, in a sentence.
pub(crate) fn rejection_promise(rate: f64, rejection: &Rejection, groups: &[ClassGroup], examples: Examples) -> String {
    let (percent, least) = (100.0 * rate, fewest_images(rate));
    let named = |sparse: bool| {
        let groups = groups.iter().zip(rejection.sparse());
        let groups = groups.filter(|(group, is_sparse)| **is_sparse == sparse && !group.classes.is_empty());
        groups.map(|(group, _)| group.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (told, untold) = (named(false), named(true));
    let promise = format!("at most {percent:.0} % of the right answers are rejected");
    let none = examples.say(&format!(
        "too few calibration images are classified correctly (fewer than {least}): only images that score below all of them are rejected"
    ));
    match (told.is_empty(), untold.is_empty()) {
        (_, true) => format!("{promise}, in every group of classes"),
        (true, false) => format!("of every group of classes, {none}"),
        (false, false) => format!("{promise} in {told}; of {untold}, {none}"),
    }
}

fn target_prior(text: &str, header: &CheckpointHeader) -> Result<TargetPrior, Failure> {
    match text {
        "train" => Ok(TargetPrior::Train),
        "uniform" => Ok(TargetPrior::Uniform),
        path => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                return Err(Failure::usage(format!(
                    "--prior {text}: must be train, uniform or a file with a share for every class"
                )));
            }
            let shares = shares(&read_text(&path)?, &header.classes);
            shares.map(TargetPrior::Shares).map_err(|what| Failure::usage(format!("--prior {text}: {what}")))
        }
    }
}

/// The number of every class in a file: a JSON object, or CSV with a class and a number per line.
fn shares(text: &str, classes: &[String]) -> Result<Vec<f64>, String> {
    let pairs = match text.trim_start().starts_with('{') {
        true => from_json(text)?,
        false => from_csv(text)?,
    };
    let mut shares = vec![None; classes.len()];
    for (class, number) in pairs {
        let index = classes.iter().position(|known| *known == class);
        let index = index.ok_or_else(|| {
            let known: Vec<&str> = classes.iter().map(String::as_str).take(5).collect();
            let more = if classes.len() > known.len() { ", ..." } else { "" };
            format!("'{class}' is not a class of the run ({}{more})", known.join(", "))
        })?;
        if !(number > 0.0 && number.is_finite()) {
            return Err(format!("the share of '{class}' is {number}, and must be more than 0"));
        }
        if shares[index].replace(number).is_some() {
            return Err(format!("class '{class}' is there twice"));
        }
    }
    let missing = shares.iter().position(Option::is_none);
    match missing {
        Some(class) => Err(format!("class '{}' has no share", classes[class])),
        None => Ok(shares.into_iter().flatten().collect()),
    }
}

fn from_json(text: &str) -> Result<Vec<(String, f64)>, String> {
    let object: serde_json::Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("not a JSON object of classes and numbers: {error}"))?;
    let number = |(class, value): (String, Value)| match value.as_f64() {
        Some(number) => Ok((class, number)),
        None => Err(format!("the share of '{class}' is {value}, not a number")),
    };
    object.into_iter().map(number).collect()
}

fn from_csv(text: &str) -> Result<Vec<(String, f64)>, String> {
    let mut pairs = Vec::new();
    for (line, content) in text.lines().enumerate().filter(|(_, content)| !content.trim().is_empty()) {
        let (class, number) = content
            .rsplit_once([',', ';', '\t'])
            .ok_or_else(|| format!("line {}: must be a class, a comma and a number", line + 1))?;
        let class = class.trim();
        let class = class
            .strip_prefix('"')
            .and_then(|class| class.strip_suffix('"'))
            .map_or(class.to_owned(), |class| class.replace("\"\"", "\""));
        match number.trim().parse::<f64>() {
            Ok(number) => pairs.push((class, number)),
            // a header
            Err(_) if line == 0 => {}
            Err(_) => return Err(format!("line {}: '{}' is not a number", line + 1, number.trim())),
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_name_the_images_that_they_are_about() {
        use Guarantee::{All, Class, Pooled};
        assert_eq!(
            promise(0.1, &[Class; 3], Examples::Images),
            "sets hold the true class in at least 90 % of the images of every class"
        );
        assert_eq!(
            promise(0.1, &[Class, Pooled, Pooled], Examples::Images),
            "sets hold the true class in at least 90 % of the images of 1 class; for 2 classes with fewer than 9 calibration images \
             this holds only on average over these classes"
        );
        assert_eq!(
            promise(0.2, &[Class, Class, All], Examples::Images),
            "sets hold the true class in at least 80 % of the images of each of 2 classes; for 1 class with fewer than 4 calibration images it \
             holds only on average over the images of all classes"
        );
        assert_eq!(
            promise(0.2, &[Pooled; 2], Examples::Images),
            "sets hold the true class in at least 80 % of the images of all classes together; for 2 classes with fewer than 4 calibration \
             images this holds only on average over these classes"
        );
        assert_eq!(
            promise(0.5, &[All; 2], Examples::Images),
            "sets hold the true class in at least 50 % of all images with the class shares of the calibration images; no class has the 1 \
             calibration images that a promise for a single class takes"
        );
    }

    #[test]
    fn shares_of_files() {
        let classes = ["cat", "a, b"].map(str::to_owned);
        let read = |text: &str| shares(text, &classes);
        assert_eq!(read("class,share\ncat,0.25\n\"a, b\",0.75\n"), Ok(vec![0.25, 0.75]));
        assert_eq!(read("a, b;3\n\ncat;1"), Ok(vec![1.0, 3.0]));
        assert_eq!(read(" {\"a, b\": 3, \"cat\": 1}"), Ok(vec![1.0, 3.0]));
        let refused = [
            ("cat,1", "class 'a, b' has no share"),
            ("cat,1\ncat,2", "class 'cat' is there twice"),
            ("dog,1", "'dog' is not a class of the run (cat, a, b)"),
            ("cat,0", "the share of 'cat' is 0, and must be more than 0"),
            ("cat,1\na, b,many", "line 2: 'many' is not a number"),
            ("cat", "line 1: must be a class, a comma and a number"),
            ("{\"cat\": \"x\"}", "the share of 'cat' is \"x\", not a number"),
        ];
        for (text, want) in refused {
            assert_eq!(read(text), Err(want.to_owned()), "{text}");
        }
        assert!(read("{").is_err_and(|what| what.starts_with("not a JSON object of classes and numbers")));
    }
}
