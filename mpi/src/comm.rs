//! A communicator with the few operations that the program needs, each of which may fail.
//!
//! Data only travels here; nothing is added by MPI, whose sums have no fixed order.

use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of_val;
use std::time::Duration;

use mpi::ffi;

use crate::heartbeat::now;

/// What MPI says about an operation that failed.
pub(crate) type MpiResult<T> = Result<T, String>;

/// A communicator of all processes. Its operations are called by one thread at a time.
#[derive(Clone, Copy)]
pub(crate) struct Comm {
    handle: ffi::MPI_Comm,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

// SAFETY: a handle is plain data, and MPI is started for calls from any thread, one at a time (see `main`). The callers' `&mut`
// or their order keep to that.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// Values that travel as bytes.
pub(crate) trait Plain: Copy + Default {}
impl Plain for u8 {}
impl Plain for u64 {}
impl Plain for f32 {}
impl Plain for f64 {}

/// Maps the code that MPI returns.
fn check(code: c_int) -> MpiResult<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let (mut text, mut length) = ([0 as c_char; 1024], 0);
    // SAFETY: the buffer is larger than MPI's longest text, and `length` lives until the call returns.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut length) };
    let bytes = text.iter().take(length.max(0) as usize).map(|c| *c as u8).collect::<Vec<u8>>();
    Err(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of bytes of values, as MPI counts.
fn bytes<T>(values: &[T]) -> MpiResult<c_int> {
    c_int::try_from(size_of_val(values)).map_err(|_| format!("a message of {} bytes", size_of_val(values)))
}

impl Comm {
    /// A communicator of its own, whose operations never meet those of others. All processes call this.
    pub(crate) fn new() -> MpiResult<Self> {
        let mut comm = Self { handle: null(), rank: 0, size: 0 };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI has been started; all pointers live until the calls return.
        unsafe {
            check(ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &raw mut comm.handle))?;
            check(ffi::MPI_Comm_set_errhandler(comm.handle, ffi::RSMPI_ERRORS_RETURN))?;
            check(ffi::MPI_Comm_rank(comm.handle, &raw mut rank))?;
            check(ffi::MPI_Comm_size(comm.handle, &raw mut size))?;
        }
        Ok(Self { rank: rank as usize, size: size as usize, ..comm })
    }

    /// Puts the values of all processes into `all`, by rank; every process has as many.
    pub(crate) fn gather<T: Plain>(&self, own: &[T], all: &mut [T]) -> MpiResult<()> {
        assert_eq!(all.len(), own.len() * self.size, "a list for every process");
        let (count, from, to) = (bytes(own)?, own.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: `own` has `count` bytes and `all` as many for every process, of plain values.
        check(unsafe {
            ffi::MPI_Allgather(from, count, ffi::RSMPI_UINT8_T, to, count, ffi::RSMPI_UINT8_T, self.handle)
        })
    }

    /// Puts the values of all processes into `all`, by rank; `lengths` has their numbers.
    pub(crate) fn gather_lists<T: Plain>(&self, own: &[T], lengths: &[usize], all: &mut Vec<T>) -> MpiResult<()> {
        assert_eq!((lengths.len(), lengths[self.rank]), (self.size, own.len()), "the length of every list");
        all.clear();
        all.resize(lengths.iter().sum(), T::default());
        // MPI refuses to gather nothing
        if bytes(all)? == 0 {
            return Ok(());
        }
        let counts: Vec<c_int> = lengths.iter().map(|length| (length * size_of::<T>()) as c_int).collect();
        let starts: Vec<c_int> =
            counts.iter().scan(0, |end, count| Some(std::mem::replace(end, *end + count))).collect();
        let (count, from, to) = (bytes(own)?, own.as_ptr().cast(), all.as_mut_ptr().cast());
        let (counts, starts, byte) = (counts.as_ptr(), starts.as_ptr(), byte());
        // SAFETY: `own` has `count` bytes; `all` has room for `counts` bytes at `starts`, for every process.
        check(unsafe { ffi::MPI_Allgatherv(from, count, byte, to, counts, starts, byte, self.handle) })
    }

    /// The messages of all processes, by rank.
    pub(crate) fn exchange(&self, own: &[u8]) -> MpiResult<Vec<Vec<u8>>> {
        let mut lengths = vec![0; self.size];
        self.gather(&[own.len() as u64], &mut lengths)?;
        let lengths: Vec<usize> = lengths.into_iter().map(|length| length as usize).collect();
        let mut all = Vec::new();
        self.gather_lists(own, &lengths, &mut all)?;
        let mut rest = &all[..];
        Ok(lengths.iter().map(|length| rest.split_off(..*length).unwrap_or_default().to_vec()).collect())
    }

    /// Replaces a message by that of rank 0. Processes that wait for it sleep meanwhile if they are `patient`: a process that
    /// waits in MPI keeps a core busy.
    pub(crate) fn broadcast(&self, message: &mut Vec<u8>, patient: bool) -> MpiResult<()> {
        let mut length = [message.len() as u64];
        let bytes = as_bytes(&mut length);
        self.broadcast_into(bytes, patient)?;
        message.resize(length[0] as usize, 0);
        // as many as MPI can count
        message.chunks_mut(1 << 30).try_for_each(|part| self.broadcast_into(part, false))
    }

    fn broadcast_into(&self, values: &mut [u8], patient: bool) -> MpiResult<()> {
        let count = bytes(values)?;
        let mut request = Request::new();
        // SAFETY: `values` has `count` bytes and lives until the request is complete, which is waited for here.
        check(unsafe {
            ffi::MPI_Ibcast(values.as_mut_ptr().cast(), count, byte(), 0, self.handle, &raw mut request.handle)
        })?;
        while patient && !request.test()? {
            std::thread::sleep(Duration::from_millis(1));
        }
        request.wait()
    }

    /// Begins to send values to another process, after all that were sent to it before.
    ///
    /// # Safety
    /// They stay where they are, and nobody changes them, until the request is complete.
    pub(crate) unsafe fn start_send(&self, values: &[f32], to: usize) -> MpiResult<Request> {
        let (from, count, mut request) = (values.as_ptr().cast::<c_void>(), bytes(values)?, Request::new());
        // SAFETY: by the contract, there are `count` bytes for as long as the request runs.
        check(unsafe { ffi::MPI_Isend(from, count, byte(), to as c_int, 0, self.handle, &raw mut request.handle) })?;
        Ok(request)
    }

    /// Begins to receive the next values of another process.
    ///
    /// # Safety
    /// They stay where they are, and nobody uses them, until the request is complete.
    pub(crate) unsafe fn start_receive(&self, values: &mut [f32], from: usize) -> MpiResult<Request> {
        let (to, count, mut request) = (values.as_mut_ptr().cast::<c_void>(), bytes(values)?, Request::new());
        // SAFETY: by the contract, there is room for `count` bytes for as long as the request runs.
        check(unsafe { ffi::MPI_Irecv(to, count, byte(), from as c_int, 0, self.handle, &raw mut request.handle) })?;
        Ok(request)
    }

    /// Waits for all processes to come by, or for some time; true if they did.
    pub(crate) fn meet(&self, within: Duration) -> bool {
        let (mut request, start) = (Request::new(), now());
        // SAFETY: the request lives until it is complete, or the process ends.
        let started = check(unsafe { ffi::MPI_Ibarrier(self.handle, &raw mut request.handle) });
        while started.is_ok() && start.elapsed() < within {
            match request.test() {
                Ok(false) => std::thread::sleep(Duration::from_millis(1)),
                Ok(true) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Ends all processes at once.
    pub(crate) fn abort(&self, code: u8) -> ! {
        // SAFETY: MPI has been started.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, c_int::from(code)) };
        std::process::exit(code.into())
    }
}

fn byte() -> ffi::MPI_Datatype {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_UINT8_T }
}

fn null() -> ffi::MPI_Comm {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_COMM_NULL }
}

fn as_bytes(values: &mut [u64; 1]) -> &mut [u8] {
    // SAFETY: a number is eight initialized bytes, of any value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), 8) }
}

/// An operation that goes on while the process computes. It makes progress in calls of MPI.
pub(crate) struct Request {
    handle: ffi::MPI_Request,
}

// SAFETY: a handle is plain data; see `Comm`.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}

impl Request {
    fn new() -> Self {
        // SAFETY: a constant of the library.
        Self { handle: unsafe { ffi::RSMPI_REQUEST_NULL } }
    }

    /// Whether it is complete.
    pub(crate) fn test(&mut self) -> MpiResult<bool> {
        let mut done = 0;
        // SAFETY: the handle is that of a request, or null after it was complete; both pointers live until the call returns.
        check(unsafe { ffi::MPI_Test(&raw mut self.handle, &raw mut done, ffi::RSMPI_STATUS_IGNORE) })?;
        Ok(done != 0)
    }

    /// Waits until it is complete.
    pub(crate) fn wait(&mut self) -> MpiResult<()> {
        // SAFETY: as in `test`.
        check(unsafe { ffi::MPI_Wait(&raw mut self.handle, ffi::RSMPI_STATUS_IGNORE) })
    }
}
