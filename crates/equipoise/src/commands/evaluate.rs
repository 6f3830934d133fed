//! `equipoise evaluate`: metrics of a trained run.

use std::io::Write;
use std::path::PathBuf;

use equipoise_data::groups::Rule;
use equipoise_nn::network::Head;
use equipoise_nn::{Engine, Kind};
use equipoise_record::Metrics;
use equipoise_train::checkpoint::Checkpoint;
use equipoise_train::evaluate::{LogitAdjustment, evaluate};
use serde_json::json;

use super::data::RootArgs;
use crate::runs::{checkpoint, chosen, engine, percent, pool, prepare, train_failure, trained};
use crate::{Failure, printable};

#[derive(clap::Args)]
#[command(after_long_help = "\
The best checkpoint is used if the run has one, else the newest. The set is the run's own unless another is named, which must
have the same classes. Two changes can be made after training: --tau-norm scales the rows of a linear head by their length to the
power -tau (Kang et al., ICLR 2020), --logit-adjust subtracts tau times the log of a class's share of the training images
(Menon et al., ICLR 2021).

Examples:
  equipoise evaluate runs/fashion-mini-cwap-resnet32-s0
  equipoise evaluate runs/cifar10-if100-softmax-resnet32-s0 --logit-adjust 1 --json")]
pub(crate) struct Args {
    /// A run's folder, or a checkpoint
    run: PathBuf,
    /// A set's name or a path, if not the run's own
    data: Option<String>,
    /// Post-hoc logit adjustment with this tau [default: the run's, which is none unless set]
    #[arg(long, value_name = "TAU")]
    logit_adjust: Option<f64>,
    /// Normalisation of the head's weights with this tau
    #[arg(long, value_name = "TAU", default_value_t = 0.0)]
    tau_norm: f64,
    /// How classes are grouped: rank:K, mass:K or threshold [default: the run's]
    #[arg(long, value_name = "RULE")]
    groups: Option<Rule>,
    /// Threads; all cores if left out
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    root: RootArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    for (name, tau) in [("--logit-adjust", args.logit_adjust.unwrap_or(0.0)), ("--tau-norm", args.tau_norm)] {
        if !(0.0..=100.0).contains(&tau) {
            return Err(Failure::Usage(format!("{name} {tau}: must be in 0..=100")));
        }
    }
    let Checkpoint { header, mut parameters, statistics, .. } = checkpoint(&args.run)?;
    let pool = pool(args.threads)?;
    let mut settings = header.settings.clone();
    let tau = args.logit_adjust.unwrap_or(settings.logit_adjust);
    let own = args.data.is_none();
    if let Some(data) = &args.data {
        settings.data.set.clone_from(data);
        (settings.data.imbalance, settings.data.subset, settings.data.val) = (None, None, 0.0);
    }
    if let Some(rule) = args.groups {
        settings.groups = rule.to_string();
    }
    let data = prepare(&settings, Some(&header.normalize), &args.root, &pool)?;
    if own && data.fingerprint != header.fingerprint {
        let what = "its images have changed since the run: name the set to evaluate on, if that is what you want";
        return Err(Failure::Usage(format!("{}: {what}", data.name)));
    }
    if args.tau_norm > 0.0 && header.network.head != Head::Linear {
        return Err(Failure::Usage("--tau-norm: a cosine head has no lengths to normalise".to_owned()));
    }
    if data.classes != header.classes {
        let what = format!(
            "{}: its classes are not the run's ({} and {})",
            data.name,
            data.classes.len(),
            header.classes.len()
        );
        return Err(Failure::Usage(what));
    }
    let loader = data.test.loader.shape();
    let network = header.network.clone();
    if loader != (network.channels, network.size[0], network.size[1]) {
        let what =
            format!("{}: its images are {loader:?}, the run's {:?}", data.name, (network.channels, network.size));
        return Err(Failure::Usage(what));
    }
    let batch = settings.batch.min(data.test.labels.len());
    let mut engine = engine(network.clone(), batch, 0, &pool)?;
    if args.tau_norm > 0.0 {
        let head = format!("{}.weight", network.head_name());
        for (tensor, values) in
            network.parameters().iter().zip(&mut parameters).filter(|(tensor, _)| tensor.name == head)
        {
            for row in values.chunks_exact_mut(tensor.shape[1]) {
                let length = row.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>().sqrt().max(1e-12);
                let scale = length.powf(-args.tau_norm) as f32;
                row.iter_mut().for_each(|w| *w *= scale);
            }
        }
    }
    let put = |error: equipoise_nn::NnError| train_failure(error.into());
    engine.set_tensors(Kind::Parameters, &parameters).map_err(put)?;
    engine.set_tensors(Kind::Statistics, &statistics).map_err(put)?;
    let adjust = LogitAdjustment::from_counts(&header.counts, tau);
    let tally = evaluate(&mut engine, &data.test, batch, &pool, &adjust, &mut |_| true).map_err(train_failure)?;
    let Some(tally) = tally else { return Ok(()) };
    let groups = settings.rule().map_err(train_failure)?.groups(&header.counts);
    let metrics = tally.metrics(&header.counts, &groups, &data.classes);
    let confusion: Vec<[u64; 3]> =
        tally.confusion().iter().map(|((label, said), n)| [u64::from(*label), u64::from(*said), *n]).collect();
    if args.json {
        let line = json!({
            "run": args.run.display().to_string(), "dataset": data.name, "epoch": header.position.epoch, "chosen": chosen(&header), "own": own,
            "logit_adjust": tau, "tau_norm": args.tau_norm, "metrics": metrics, "confusion": confusion,
        });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    writeln!(out, "{}: {} test images, {}", printable(&data.name), data.test.labels.len(), trained(&header))?;
    if tau > 0.0 {
        writeln!(out, "logits adjusted, tau {tau}")?;
    }
    table(&metrics, out)
}

/// Figures for a person.
pub(crate) fn table(metrics: &Metrics, out: &mut impl Write) -> Result<(), Failure> {
    const SHOWN: usize = 40;
    let width = metrics.per_class.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).clamp(5, 30);
    writeln!(out, "\n{:<width$} {:>7} {:>7} {:>9}", "class", "train", "test", "accuracy")?;
    let mut classes: Vec<_> = metrics.per_class.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.train));
    for (rank, class) in classes.iter().enumerate() {
        if classes.len() > SHOWN && (SHOWN / 2..classes.len() - SHOWN / 2).contains(&rank) {
            if rank == SHOWN / 2 {
                writeln!(out, "... {} classes between (--json lists all) ...", classes.len() - SHOWN)?;
            }
            continue;
        }
        let name: String = printable(&class.name).chars().take(width).collect();
        let accuracy = (class.test > 0).then(|| 100.0 * class.hits as f64 / class.test as f64);
        writeln!(out, "{name:<width$} {:>7} {:>7} {:>9}", class.train, class.test, percent(accuracy))?;
    }
    writeln!(out)?;
    let groups = metrics.groups.iter().map(|group| (group.name.as_str(), group.accuracy));
    let rest = [
        ("overall", metrics.top1),
        ("top 5", metrics.top5),
        ("balanced", metrics.balanced),
        ("macro F1", metrics.macro_f1),
        ("calibration error", metrics.calibration),
    ];
    for (name, value) in groups.chain(rest) {
        writeln!(out, "{name:<20}{:>6}", percent(value))?;
    }
    if metrics.unusable > 0 {
        writeln!(out, "{} images have logits that are not finite: they count as misses", metrics.unusable)?;
    }
    let loss = metrics.loss.map_or_else(|| "n/a".to_owned(), |loss| format!("{loss:.3}"));
    writeln!(out, "{:<20}{loss:>6}", "cross-entropy")?;
    Ok(())
}
