//! `equipoise lr-range`: which learning rates work.

use std::io::Write;
use std::path::PathBuf;

use equipoise_criterion::Id;
use equipoise_report::page::rate_range_page;
use equipoise_train::run::build;
use equipoise_train::settings::{OptimizerKind, Settings};
use equipoise_train::trainer::{RangeOutcome, RangePoint, RateRange};
use serde_json::json;

use crate::clock::{duration, timed};
use crate::failure::Failure;
use crate::options::{Environment, SettingArgs};
use crate::output::{open_in_browser, write_file};

/// Rows of the printed table.
const ROWS: usize = 12;

#[derive(clap::Args)]
#[command(after_long_help = "\
The learning rate grows from step to step (Smith, WACV 2017). Where the loss is smallest it is already too large to train with; a tenth of \
that rate is a good start. Nothing is kept of the training; `train --lr RATE` starts from the beginning.

Examples:
  equipoise lr-range path/to/images --model resnet18 --batch-size 32
  equipoise lr-range cifar10 --imbalance 100 --set optimizer.name=adamw --from 1e-6 --to 0.1")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
    /// Criterion to train with; `equipoise criteria` lists them [default: balanced-softmax]
    #[arg(long, value_name = "ID")]
    criterion: Option<Id>,
    /// Learning rate of the first step
    #[arg(long, value_name = "RATE", default_value_t = 1e-4)]
    from: f64,
    /// Learning rate of the last step
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    to: f64,
    /// Number of steps
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    steps: u64,
    /// Page with the plot
    #[arg(short, long, value_name = "FILE", default_value = "lr-range.html")]
    output: PathBuf,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What a test shows, and what to do.
fn sentence(outcome: RangeOutcome) -> String {
    match outcome {
        RangeOutcome::Smallest(rate) => {
            format!("The loss is smallest at {rate:.2e}; a tenth of it is a good start: --lr {:.1e}", rate / 10.0)
        }
        RangeOutcome::TooFewSteps => "Too few steps to tell: take more of them, with --steps".to_owned(),
        RangeOutcome::NeverFell => "The loss never fell: try smaller learning rates, with --from".to_owned(),
        RangeOutcome::StillFalling => "The loss still fell in the last step: try larger rates, with --to".to_owned(),
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let Args { from, to, steps, .. } = *args;
    if !(from > 0.0 && to > from && to.is_finite()) {
        return Err(Failure::usage(format!("--from {from} --to {to}: must be more than 0, and --to the larger")));
    }
    args.settings.refuse_rate_and_epochs("lr-range")?;
    let mut settings = args.settings.settings(Settings::default(), args.criterion)?;
    if settings.optimizer.name == OptimizerKind::Lbfgs {
        return Err(Failure::usage("lr-range: lbfgs has no learning rate; `train` needs none"));
    }
    // the test is as long as --steps says, however few steps an epoch has
    settings.epochs = settings.epochs.max(steps);
    args.settings.note_data(&settings)?;
    let environment = Environment::new(args.settings.threads, &args.settings.root)?;
    let trainer = build::trainer(settings, None, &environment.context_of_one_process())?;
    let (data, settings) = (trainer.data(), trainer.settings());
    let (method, batch_size) = (settings.criterion.method.id(), settings.batch_size);
    let about = format!("{}, {}, {method}, batch size {batch_size}.", data.name, settings.architecture());
    let (points, time) = timed(|| trainer.range_test(&RateRange { from, to, steps }));
    let points = points?;
    let outcome = RangeOutcome::of(&points);
    let suggested = outcome.suggested_rate();
    let line: Vec<(f64, f64)> = points.iter().map(|point| (point.learning_rate, point.smoothed)).collect();
    write_file(&args.output, rate_range_page(&about, &line, suggested).as_bytes())?;
    if args.open {
        open_in_browser(&args.output)?;
    }
    if args.json {
        let point = |p: &RangePoint| json!({"lr": p.learning_rate, "loss": p.loss, "smoothed": p.smoothed});
        let points: Vec<_> = points.iter().map(point).collect();
        return Ok(writeln!(out, "{}", json!({"suggested": suggested, "points": points}))?);
    }
    writeln!(out, "{about}\n\nlearning rate   loss, smoothed")?;
    let best = points.iter().enumerate().min_by(|(_, a), (_, b)| a.smoothed.total_cmp(&b.smoothed));
    let best = best.map(|(number, _)| number).filter(|_| suggested.is_some());
    let every = points.len().div_ceil(ROWS).max(1);
    for (number, point) in points.iter().enumerate() {
        let (is_best, is_last) = (best == Some(number), number + 1 == points.len());
        if number % every == 0 || is_best || is_last {
            let remark = if is_best { "  smallest" } else { "" };
            writeln!(out, "{:<15.2e} {:.3}{remark}", point.learning_rate, point.smoothed)?;
        }
    }
    writeln!(out, "\n{}", sentence(outcome))?;
    let (number, page) = (points.len() as u64, args.output.display());
    let early = match number < steps {
        true => format!(" of {steps}, because the loss exploded,"),
        false => String::new(),
    };
    writeln!(out, "{number} steps{early} in {}; the plot is in {page}", duration(time.as_secs_f64()))?;
    Ok(())
}
