//! A run on the terminal: a progress line, a line per epoch. It also decides when to save and stops the run after a signal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use equipoise_record::{EpochRecord, GradientNorms, Metrics};
use equipoise_support::Examples;
use equipoise_train::trainer::{Directive, Observer, StepProgress};

use crate::clock::{duration, now};
use crate::output::{percent, printable, warn};
use crate::progress::bar;
use crate::signals::received;

/// Shows a run.
pub(crate) struct RunDisplay {
    /// Precedes every progress line.
    title: String,
    epochs: u64,
    quiet: bool,
    /// Whether epochs are shown as lines.
    epoch_lines: bool,
    terminal: bool,
    save_every: Duration,
    saved: Instant,
    drawn: Instant,
    start: Instant,
    /// Steps of this process.
    steps: u64,
    speed: Speed,
    examples: Examples,
}

/// The speed of training.
struct Speed {
    /// The current epoch: when its first step ended, the number of that step, images since then.
    epoch: Option<(Instant, u64, u64)>,
    /// When training could go on: at the start, or after an evaluation.
    ready: Instant,
    images: u64,
    time: Duration,
    /// Images per second in the last finished epoch.
    last_epoch: f64,
}

impl Speed {
    fn new(start: Instant) -> Self {
        Self { epoch: None, ready: start, images: 0, time: Duration::ZERO, last_epoch: 0.0 }
    }

    /// Counts a step that ends now. Returns the images per second of the epoch so far.
    fn step(&mut self, step: &StepProgress, now: Instant) -> f64 {
        let (start, first, images) = self.epoch.get_or_insert((now, step.step, 0));
        // the first step also waits for its images
        if step.step > *first {
            *images += step.images;
        } else if step.step == step.steps {
            // it is the only one
            (*start, *images) = (self.ready, step.images);
        }
        let time = now - *start;
        let speed = *images as f64 / time.as_secs_f64().max(1e-9);
        if step.step == step.steps {
            self.images += *images;
            self.time += time;
            self.last_epoch = speed;
            (self.epoch, self.ready) = (None, now);
        }
        speed
    }
}

/// How a run is shown.
#[derive(Clone, Copy)]
pub(crate) struct DisplayOptions {
    pub(crate) quiet: bool,
    pub(crate) epoch_lines: bool,
    pub(crate) save_every: Duration,
}

impl DisplayOptions {
    /// One of several runs: no line per epoch, a checkpoint every five minutes.
    pub(crate) fn one_of_several(quiet: bool) -> Self {
        Self { quiet, epoch_lines: false, save_every: Duration::from_secs(300) }
    }
}

impl RunDisplay {
    pub(crate) fn new(title: &str, epochs: u64, options: DisplayOptions) -> Self {
        let start = now();
        let title = if title.is_empty() { String::new() } else { format!("{} ", printable(title)) };
        Self {
            title,
            epochs,
            quiet: options.quiet,
            epoch_lines: options.epoch_lines,
            terminal: io::stderr().is_terminal(),
            save_every: options.save_every,
            saved: start,
            drawn: start,
            start,
            steps: 0,
            speed: Speed::new(start),
            examples: Examples::Images,
        }
    }

    /// Says what the run is trained on.
    pub(super) fn set_examples(&mut self, examples: Examples) {
        self.examples = examples;
    }

    /// Number of epochs of the run.
    pub(super) fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Images per second in the training of the last epoch.
    pub(super) fn epoch_speed(&self) -> f64 {
        self.speed.last_epoch
    }

    /// Images per second in training.
    pub(super) fn images_per_second(&self) -> f64 {
        self.speed.images as f64 / self.speed.time.as_secs_f64().max(1e-9)
    }

    /// Seconds since this process started the run.
    pub(super) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Clears the progress line.
    pub(super) fn clear(&self) {
        if self.terminal && !self.quiet {
            // progress that nobody can read is lost
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }

    fn draw(&mut self, text: &str) {
        let now = now();
        if self.quiet || !self.terminal || now - self.drawn < Duration::from_millis(100) {
            return;
        }
        self.drawn = now;
        let _ = write!(io::stderr(), "\r\x1b[2K{text}");
    }

    fn directive(&mut self) -> Directive {
        if received().is_some() {
            self.clear();
            return Directive::Stop;
        }
        let now = now();
        if now - self.saved >= self.save_every {
            self.saved = now;
            return Directive::Save;
        }
        Directive::Continue
    }
}

impl Observer for RunDisplay {
    fn step(&mut self, step: &StepProgress) -> Directive {
        let speed = self.speed.step(step, now());
        self.steps += 1;
        let (done, all) = ((step.epoch - 1) * step.steps + step.step, self.epochs * step.steps);
        let left = self.seconds() / self.steps as f64 * all.saturating_sub(done) as f64;
        let text = format!(
            "{}epoch {}/{} {} loss {:.3}, {speed:.0} {}/s, {} left",
            self.title,
            step.epoch,
            self.epochs,
            bar(24, step.step, step.steps),
            step.loss,
            self.examples.many(),
            duration(left)
        );
        self.draw(&text);
        self.directive()
    }

    fn evaluating(&mut self, done: usize, total: usize) -> Directive {
        let text = format!("{}evaluating: {done} of {total} {}", self.title, self.examples.many());
        self.draw(&text);
        self.speed.ready = now();
        if received().is_some() { Directive::Stop } else { Directive::Continue }
    }

    fn epoch(&mut self, epoch: &EpochRecord, _: &GradientNorms) {
        self.clear();
        self.saved = now();
        self.speed.ready = self.saved;
        if self.quiet || !self.epoch_lines {
            return;
        }
        let test = epoch.test.as_ref().map_or_else(String::new, |metrics| format!("  {}", accuracies(metrics)));
        let val = epoch.val.as_ref().and_then(|metrics| metrics.balanced);
        let val = val.map_or_else(String::new, |accuracy| format!("  validation (balanced) {accuracy:>5.1}"));
        let width = self.epochs.to_string().len();
        let (number, epochs, loss) = (epoch.epoch, self.epochs, epoch.loss);
        let _ = writeln!(io::stderr(), "epoch {number:>width$}/{epochs}  loss {loss:.3}{val}{test}");
    }

    fn warn(&mut self, text: &str) {
        self.clear();
        let title = self.title.trim_end();
        warn(&if title.is_empty() { text.to_owned() } else { format!("{title}: {text}") });
    }
}

/// Accuracies by group and overall.
fn accuracies(metrics: &Metrics) -> String {
    let group = |name: &str, accuracy| format!("{} {:>5}", printable(name), percent(accuracy));
    let groups = metrics.several_groups().iter().map(|one| group(&one.name, one.accuracy));
    groups.chain([group("overall", metrics.top1)]).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(step: u64, steps: u64) -> StepProgress {
        StepProgress { epoch: 1, step, steps, images: 10, loss: 1.0 }
    }

    /// The first step of an epoch counts only if there is no other.
    #[test]
    fn speed_of_epochs() {
        let start = now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut speed = Speed::new(start);
        speed.step(&progress(1, 1), at(5));
        assert_eq!((speed.last_epoch, speed.images), (2.0, 10));
        // an evaluation until 9
        speed.ready = at(9);
        speed.step(&progress(1, 1), at(10));
        assert_eq!((speed.last_epoch, speed.images, speed.time), (10.0, 20, Duration::from_secs(6)));
        for (step, end) in [(1, 50), (2, 51), (3, 52)] {
            speed.step(&progress(step, 3), at(end));
        }
        assert_eq!((speed.last_epoch, speed.images, speed.time), (10.0, 40, Duration::from_secs(8)));
        // a run that is resumed before the last step of an epoch
        let mut speed = Speed::new(start);
        speed.step(&progress(3, 3), at(2));
        assert_eq!(speed.last_epoch, 5.0);
    }
}
