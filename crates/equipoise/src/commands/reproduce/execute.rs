//! Executes the runs of tables, several at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use equipoise_support::Examples;

use super::{Args, Job};
use crate::clock::duration;
use crate::cluster::{introduce, processes};
use crate::failure::Failure;
use crate::live_report::LiveFolder;
use crate::options::{Environment, pool};
use crate::output::{counted, note, percent, warn};
use crate::training::{DisplayOptions, RunDisplay, execute_or_read, read_result};

/// Executes the runs that have no result. A run that fails is reported and does not stop the others; returns the number of failures.
/// Runs that another process works on are left to it.
pub(super) fn execute(args: &Args, jobs: &mut [&mut Job<'_>]) -> Result<usize, Failure> {
    if args.jobs > 1 && processes().is_some() {
        return Err(Failure::usage("--jobs: the processes under mpirun compute one run at a time"));
    }
    let total = jobs.len();
    let threads = (args.threads.pool()?.threads() / usize::from(args.jobs)).max(1);
    if !args.quiet && jobs.iter().any(|job| job.result.is_none()) {
        introduce(threads, Examples::Images);
    }
    let queue = Mutex::new(jobs.iter_mut().enumerate());
    let (failed, elsewhere) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || -> Result<(), Failure> {
        let environment = Environment::with_pool(pool(threads)?, &args.root);
        loop {
            let next = queue.lock().map_or(None, |mut queue| queue.next());
            let Some((number, job)) = next else { return Ok(()) };
            match execute_one(args, number, total, job, &environment) {
                Ok(()) => {}
                Err(stopped @ Failure::Interrupted(..)) => return Err(stopped),
                Err(failure) if failure.is_of_a_folder_in_use() => {
                    note(&format!("{failure}; left to it"));
                    elsewhere.fetch_add(1, Ordering::Relaxed);
                }
                Err(failure) => {
                    warn(&failure.to_string());
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..args.jobs).map(|_| scope.spawn(worker)).collect();
        let own = worker();
        // all of them end, whatever the first one returns
        let ends =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(own).chain(ends.collect::<Vec<_>>()).collect::<Result<(), Failure>>()
    })?;
    if elsewhere.into_inner() > 0 {
        for job in jobs.iter_mut().filter(|job| job.result.is_none()) {
            // the other process may have finished it
            job.result = read_result(&job.run.folder, &job.run.settings).ok();
        }
        let missing = jobs.iter().filter(|job| job.result.is_none()).count();
        let missing = missing.saturating_sub(failed.load(Ordering::Relaxed));
        if missing > 0 {
            let verb = if missing == 1 { "is" } else { "are" };
            let runs = counted(missing, "run");
            note(&format!(
                "{runs} {verb} not finished in other processes yet; the same command shows all of them then"
            ));
        }
    }
    Ok(failed.into_inner())
}

fn execute_one(
    args: &Args,
    number: usize,
    total: usize,
    job: &mut Job<'_>,
    environment: &Environment,
) -> Result<(), Failure> {
    if job.result.is_some() {
        return Ok(());
    }
    let run = &job.run;
    let title = format!("[{}/{total}] {} {} seed {}", number + 1, run.cell.name, run.method.name, run.settings.seed);
    let options = DisplayOptions::one_of_several(args.quiet || args.jobs > 1);
    let mut display = RunDisplay::new(&title, run.settings.epochs, options);
    let (context, resume) = (environment.context(), "the same command");
    let result = execute_or_read(&run.settings, &run.folder, &context, &mut display, LiveFolder::Nowhere, resume)
        .map_err(|failure| failure.about(&title))?;
    if !args.quiet {
        let overall = percent(result.last.as_ref().and_then(|epoch| epoch.metrics.top1));
        let val = result.last.as_ref().and_then(|epoch| epoch.val_balanced);
        let val = val.map_or_else(String::new, |val| format!("validation {val:.1}, "));
        note(&format!("{title}: {val}overall {overall} in {}", duration(result.seconds)));
    }
    job.result = Some(result);
    Ok(())
}
