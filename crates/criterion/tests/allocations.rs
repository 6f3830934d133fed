//! A warm step allocates nothing.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use equipoise_criterion::*;

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_step_allocates_nothing() {
    for threads in [1, 2] {
        let pool = Pool::new(threads).expect("threads");
        // a thread allocates when it starts, which may be late: all of them meet here
        let met = Barrier::new(threads);
        pool.run(threads, |_| {
            met.wait();
        });
        for (name, config) in configs() {
            let mut workspace = Workspace::with_pool(pool.clone());
            let mut criterion = config.init(&counts(400)).expect("valid");
            let batches: Vec<Owned> = (0..4).map(|seed| Owned::new(seed, 96, 400, 5.0)).collect();
            let (mut grad, mut weights, mut norms) = (vec![0.0; 96 * 400], vec![0.0; 96], vec![0.0; 96]);
            let mut epoch = |criterion: &mut Criterion, workspace: &mut Workspace| {
                for owned in &batches {
                    for batch in [owned.batch(), owned.mixed()] {
                        let mut out = Output::new(&mut grad, &mut weights);
                        criterion.train(&batch, out, workspace).expect("a good batch");
                        out = Output::new(&mut grad, &mut weights);
                        out.gradient_norms = Some(&mut norms);
                        criterion.train(&batch, out, workspace).expect("a good batch");
                    }
                }
            };
            epoch(&mut criterion, &mut workspace);
            epoch(&mut criterion, &mut workspace);
            let before = ALLOCATIONS.load(Ordering::SeqCst);
            epoch(&mut criterion, &mut workspace);
            let made = ALLOCATIONS.load(Ordering::SeqCst) - before;
            assert_eq!(made, 0, "{name}, {threads} threads: {made} allocations in 16 warm steps");
        }
    }
}
