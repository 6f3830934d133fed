//! Ctrl-C, SIGTERM and SIGHUP (a terminal that is closed): they end the program at once, or after the next step while a run is being trained.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use crate::output::one_line;

/// The signal that was received, or 0.
static RECEIVED: AtomicI32 = AtomicI32::new(0);
/// Number of runs that are being trained.
static GUARDS: AtomicUsize = AtomicUsize::new(0);
/// What is printed if a step takes too long to wait for. A handler must not allocate, so the text is made before.
static LAST_WORDS: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());
/// What is printed if a signal ends the program at once.
static INTERRUPTED: AtomicPtr<String> = AtomicPtr::new(std::ptr::null_mut());

#[cfg(unix)]
extern "C" fn handle(signal: libc::c_int) {
    // a second signal: the user insists
    if RECEIVED.swap(signal, Ordering::SeqCst) != 0 {
        // SAFETY: `_exit` is async-signal-safe.
        unsafe { libc::_exit(128 + signal) };
    }
    if GUARDS.load(Ordering::SeqCst) == 0 {
        leave(&INTERRUPTED);
    }
    // do not wait for a long step: the last checkpoint is good, and a resumed run ends with the same result
    set_timer(libc::timeval { tv_sec: 1, tv_usec: 700_000 });
}

/// Calls [`give_up`] after this time; a time of 0 calls it off. Async-signal-safe.
#[cfg(unix)]
fn set_timer(wait: libc::timeval) {
    let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: wait };
    // SAFETY: a plain system call; `timer` lives until it returns.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

#[cfg(unix)]
extern "C" fn give_up(_: libc::c_int) {
    leave(&LAST_WORDS);
}

/// Prints a text, if there is one, and ends the program with the code of the signal. Async-signal-safe.
#[cfg(unix)]
fn leave(words: &AtomicPtr<String>) -> ! {
    let message = words.load(Ordering::SeqCst);
    // SAFETY: `write` and `_exit` are async-signal-safe; `message` is null or was leaked where it was made, and never changes.
    unsafe {
        if let Some(message) = message.as_ref() {
            libc::write(2, message.as_ptr().cast(), message.len());
        }
        libc::_exit(128 + RECEIVED.load(Ordering::SeqCst));
    }
}

/// Installs the handlers. Signals then end the program with their exit code; while a [`Guard`] exists they are only recorded.
pub(crate) fn install() {
    #[cfg(unix)]
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler uses only atomics, `setitimer`, `write` and `_exit`.
        let before = unsafe { libc::signal(signal, handle as *const () as libc::sighandler_t) };
        // `nohup` has asked for that
        if signal == libc::SIGHUP && before == libc::SIG_IGN {
            // SAFETY: ignoring a signal needs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    #[cfg(unix)]
    // SAFETY: the handler calls only `write` and `_exit`, which a handler may call, and reads atomics.
    unsafe {
        libc::signal(libc::SIGALRM, give_up as *const () as libc::sighandler_t)
    };
    // a file that may not grow is an error to report
    #[cfg(unix)]
    // SAFETY: ignoring a signal needs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN)
    };
}

/// Sets what is printed from now on if a signal ends the program: that it was interrupted, and what was written by then.
pub(crate) fn when_interrupted(text: &str) {
    // in place of progress
    let clear = if stderr().is_terminal() { "\r\x1b[2K" } else { "" };
    let text = format!("{clear}{}\n", one_line(&format!("equipoise: {text}")));
    // a few hundred bytes, some times per command
    INTERRUPTED.store(Box::into_raw(Box::new(text)), Ordering::SeqCst);
}

/// While it exists, signals are recorded instead of ending the program.
pub(crate) struct Guard;

impl Guard {
    /// `resume` is the command that continues the run, if this process is the one to name it.
    pub(crate) fn new(resume: Option<&str>) -> Self {
        if let Some(resume) = resume {
            let text = one_line(&format!(
                "equipoise: stopped during a long step, without waiting for its end; the run goes on from its last checkpoint, or from \
                 its start if there is none yet. To continue: {resume}"
            ));
            // a few hundred bytes per run of this process
            LAST_WORDS.store(Box::into_raw(Box::new(format!("\n{text}\n"))), Ordering::SeqCst);
        }
        GUARDS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

/// After a signal, what the program still does is short and is waited for. Another signal ends it at once.
pub(crate) fn wait_for_the_end() {
    #[cfg(unix)]
    set_timer(libc::timeval { tv_sec: 0, tv_usec: 0 });
}

/// The signal that was received.
pub(crate) fn received() -> Option<i32> {
    Some(RECEIVED.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

impl Drop for Guard {
    fn drop(&mut self) {
        if GUARDS.fetch_sub(1, Ordering::SeqCst) == 1 && received().is_some() {
            // the step ended in time: what comes now, such as the end of Python, may take longer and loses nothing
            #[cfg(unix)]
            set_timer(libc::timeval { tv_sec: 0, tv_usec: 0 });
        }
    }
}
