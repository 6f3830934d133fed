//! Ctrl-C and SIGTERM: at once while nothing can be lost, at the next step while a run is under way.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// The signal that came, or 0.
static CAME: AtomicI32 = AtomicI32::new(0);
/// How many runs ask for it.
static AWAITED: AtomicUsize = AtomicUsize::new(0);

#[cfg(unix)]
extern "C" fn handle(signal: libc::c_int) {
    // the second one means it
    if CAME.swap(signal, Ordering::SeqCst) != 0 || AWAITED.load(Ordering::SeqCst) == 0 {
        // SAFETY: one of the few functions that a handler may call.
        unsafe { libc::_exit(128 + signal) };
    }
    // a step that takes longer than anybody waits: what was saved last is good, and a resumed run ends alike
    let wait = libc::timeval { tv_sec: 1, tv_usec: 700_000 };
    let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: never, it_value: wait };
    // SAFETY: a system call with a good pointer.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

#[cfg(unix)]
extern "C" fn too_long(_: libc::c_int) {
    const SAID: &[u8] =
        b"\nequipoise: stopped within a long step: the last checkpoint is kept, and the run can be taken up there\n";
    // SAFETY: functions that a handler may call, and good memory.
    unsafe {
        libc::write(2, SAID.as_ptr().cast(), SAID.len());
        libc::_exit(128 + CAME.load(Ordering::SeqCst));
    }
}

/// From now on signals end the program with their exit code, and during a [`Guard`] wait for it.
pub(crate) fn install() {
    #[cfg(unix)]
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler uses atomics and `_exit` only.
        unsafe { libc::signal(signal, handle as *const () as libc::sighandler_t) };
    }
    #[cfg(unix)]
    // SAFETY: as above.
    unsafe {
        libc::signal(libc::SIGALRM, too_long as *const () as libc::sighandler_t)
    };
    // a file that may not grow is an error to be reported, not the end
    #[cfg(unix)]
    // SAFETY: to be ignored needs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN)
    };
}

/// While it lives, signals are noted instead of ending the program.
pub(crate) struct Guard;

impl Guard {
    pub(crate) fn new() -> Self {
        AWAITED.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

/// The signal that came.
pub(crate) fn came() -> Option<i32> {
    Some(CAME.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

impl Drop for Guard {
    fn drop(&mut self) {
        AWAITED.fetch_sub(1, Ordering::SeqCst);
    }
}
