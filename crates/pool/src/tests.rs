use super::*;

#[test]
fn every_task_runs_once_whatever_the_threads() {
    for threads in [1, 2, 3, 8] {
        let spinning = Pool::new(threads).expect("threads");
        let sleeping = Pool::without_spinning(threads).expect("threads");
        for (pool, tasks) in [&spinning, &sleeping].into_iter().flat_map(|pool| [0, 1, 2, 7, 1000].map(|n| (pool, n))) {
            assert_eq!(pool.threads(), threads);
            let mut items = vec![0u32; tasks];
            pool.each(&mut items, |task, item| *item += 1 + task as u32);
            assert!(items.iter().enumerate().all(|(i, x)| *x == 1 + i as u32), "{threads} threads, {tasks} tasks");
        }
    }
}

/// A thread takes the tasks of each part in order, whatever other threads take of it.
#[test]
fn every_thread_goes_through_each_part_in_order() {
    const TASKS: usize = 30;
    for threads in [1, 3] {
        let pool = Pool::new(threads).expect("threads");
        for backwards in [false, true] {
            let order = Mutex::new(Vec::new());
            pool.sweep(TASKS, backwards, |task| lock(&order).push((std::thread::current().id(), task)));
            let order = order.into_inner().expect("no panic");
            let mut tasks: Vec<usize> = order.iter().map(|(_, task)| *task).collect();
            for (thread, _) in &order {
                for part in 0..threads {
                    let own = order.iter().filter(|(by, task)| by == thread && task * threads / TASKS == part);
                    let own: Vec<usize> = own.map(|(_, task)| *task).collect();
                    let sorted =
                        if backwards { own.is_sorted_by(|a, b| a > b) } else { own.is_sorted_by(|a, b| a < b) };
                    assert!(sorted, "{threads} threads, backwards {backwards}, part {part}: {own:?}");
                }
            }
            tasks.sort_unstable();
            assert_eq!(tasks, Vec::from_iter(0..TASKS));
        }
    }
}

/// One thread alone goes through all tasks in order.
#[test]
fn a_single_thread_goes_up_or_down() {
    for (backwards, want) in [(false, [0, 1, 2, 3, 4]), (true, [4, 3, 2, 1, 0])] {
        let order = Mutex::new(Vec::new());
        Pool::single().sweep(5, backwards, |task| lock(&order).push(task));
        assert_eq!(order.into_inner().expect("no panic"), want);
    }
}

#[test]
fn many_short_loops() {
    // an interpreter is slow
    const LOOPS: usize = if cfg!(miri) { 100 } else { 100_000 };
    let pool = Pool::new(3).expect("threads");
    let sum = AtomicUsize::new(0);
    for _ in 0..LOOPS {
        pool.run(4, |task| {
            sum.fetch_add(task, Ordering::Relaxed);
        });
    }
    assert_eq!(sum.load(Ordering::Relaxed), 6 * LOOPS);
}

#[test]
fn threads_that_went_to_sleep_wake_up_again() {
    let pool = Pool::new(2).expect("threads");
    for _ in 0..20 {
        while pool.threads.as_ref().is_some_and(|t| t.shared.sleeping.load(Ordering::SeqCst) == 0) {
            std::thread::yield_now();
        }
        // two tasks that wait for each other: the sleeping thread has to wake up
        let met = AtomicUsize::new(0);
        pool.run(2, |_| {
            met.fetch_add(1, Ordering::SeqCst);
            while met.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
        });
    }
}

#[test]
fn a_loop_inside_a_loop_and_a_second_caller_do_their_own_work() {
    let pool = Pool::new(2).expect("threads");
    let sum = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..100 {
                    pool.run(4, |_| {
                        pool.run(5, |task| {
                            sum.fetch_add(task, Ordering::Relaxed);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(sum.load(Ordering::Relaxed), 2 * 100 * 4 * 10);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(2).expect("threads");
    for bad in 0..8 {
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(8, |task| assert!(task != bad, "task {task}"))));
        let message = *caught.expect_err("a panic").downcast::<String>().expect("a message");
        assert_eq!(message, format!("task {bad}"));
        pool.run(8, |_| {});
    }
}
