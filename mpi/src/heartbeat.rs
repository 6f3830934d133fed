//! Signs of life between rank 0 and every other process, beside MPI: a machine that is cut off says nothing, and MPI waits for it
//! for minutes.
//!
//! Every other process keeps a connection to rank 0, over which both sides send a byte every half second. A process that hears
//! nothing for some seconds says so and ends; `mpirun` then ends all others. The checkpoint is good at any time.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::comm::Comm;

/// Time between two signs of life.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a process bears silence.
#[derive(Clone, Copy)]
struct Patience {
    /// Silence that is reported.
    reported: Duration,
    /// Silence after which the other side counts as lost.
    lost: Duration,
}
/// Rank 0 names the silent rank at once: with keepalives, `mpirun` notices a lost machine after some 5 s and ends all processes without
/// naming a rank. It does not end before, since `mpirun` would then wait half a minute for the lost machine.
const OF_RANK_0: Patience = Patience { reported: Duration::from_secs(3), lost: Duration::from_secs(6) };
/// The others say nothing before `mpirun`'s daemon on their machine has had the time to notice that it is cut off: a message that the
/// daemon cannot pass on would keep its connection from being probed, and the daemon would stay.
const OF_OTHERS: Patience = Patience { reported: Duration::from_secs(8), lost: Duration::from_secs(8) };
/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Whether the process is about to end as it should.
static ENDING: AtomicBool = AtomicBool::new(false);

/// A process at the other end of a connection.
#[derive(Clone)]
struct Other {
    rank: usize,
    node: String,
}

/// Starts the signs of life of this process. All processes call this; `nodes` are their machines, by rank. Says which processes
/// cannot be watched.
pub(crate) fn start(comm: &Comm, nodes: &[String]) -> Result<Option<String>, String> {
    let other = |rank: usize| Other { rank, node: nodes[rank].clone() };
    let token = RandomState::new().build_hasher().finish();
    let listener = if comm.rank == 0 { TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).ok() } else { None };
    let port = listener.as_ref().and_then(|listener| listener.local_addr().ok()).map_or(0, |address| address.port());
    let addresses: Vec<String> = own_addresses().iter().map(|ip| SocketAddr::new(*ip, port).to_string()).collect();
    let mut message = format!("{token} {}", addresses.join(" ")).into_bytes();
    comm.broadcast(&mut message, false)?;
    let message = String::from_utf8_lossy(&message).into_owned();
    let mut words = message.split(' ');
    let token: u64 = words.next().and_then(|token| token.parse().ok()).unwrap_or(0);
    if let Some(listener) = listener {
        let others: Vec<Other> = (0..comm.size).map(other).collect();
        thread::spawn(move || accept(&listener, token, &others));
    }
    let connected = comm.rank == 0 || connect(words, token, comm.rank, &other(0), &other(comm.rank));
    let mut all = vec![0; comm.size];
    comm.gather(&[u8::from(connected)], &mut all)?;
    let lost: Vec<String> = (0..comm.size).filter(|rank| all[*rank] == 0).map(|rank| other(rank).to_string()).collect();
    Ok((!lost.is_empty()).then(|| lost.join(", ")))
}

/// Tells that the process ends as it should.
pub(crate) fn end() {
    ENDING.store(true, Ordering::SeqCst);
}

impl std::fmt::Display for Other {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} on {}", self.rank, self.node)
    }
}

/// The addresses at which others may reach this machine; that of the machine itself comes last.
fn own_addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is written by `getifaddrs`, walked to its end and freed once. An address of the family AF_INET is a
    // `sockaddr_in`.
    unsafe {
        if libc::getifaddrs(&raw mut list) == 0 {
            let mut entry = list;
            while let Some(interface) = entry.as_ref() {
                if let Some(address) = interface.ifa_addr.as_ref().filter(|a| i32::from(a.sa_family) == libc::AF_INET) {
                    let address = std::ptr::from_ref(address).cast::<libc::sockaddr_in>().read_unaligned();
                    found.push(IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))));
                }
                entry = interface.ifa_next;
            }
            libc::freeifaddrs(list);
        }
    }
    found.sort_by_key(IpAddr::is_loopback);
    found
}

/// Waits for the connections of all others.
fn accept(listener: &TcpListener, token: u64, others: &[Other]) {
    for stream in listener.incoming().flatten() {
        let mut stream = stream;
        let mut hello = [0; 16];
        let read = stream.set_read_timeout(Some(CONNECT)).and_then(|()| stream.read_exact(&mut hello));
        let [theirs, rank] = [0, 8].map(|at| u64::from_le_bytes(hello[at..at + 8].try_into().unwrap_or_default()));
        let other = others.get(rank as usize).filter(|_| read.is_ok() && theirs == token);
        if let Some(other) = other.cloned() {
            // the answer says that this is the right place
            if stream.write_all(&token.to_le_bytes()).is_ok() {
                thread::spawn(move || watch(stream, &other, "rank 0", OF_RANK_0));
            }
        }
    }
}

/// Connects to rank 0 at one of these addresses.
fn connect<'a>(addresses: impl Iterator<Item = &'a str>, token: u64, rank: usize, first: &Other, own: &Other) -> bool {
    for address in addresses.filter_map(|address| address.parse().ok()) {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, CONNECT) else { continue };
        let hello: Vec<u8> = [token, rank as u64].iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut answer = [0; 8];
        let greeted = stream
            .set_read_timeout(Some(CONNECT))
            .and_then(|()| stream.write_all(&hello))
            .and_then(|()| stream.read_exact(&mut answer));
        if greeted.is_ok() && u64::from_le_bytes(answer) == token {
            let (first, own) = (first.clone(), own.to_string());
            thread::spawn(move || watch(stream, &first, &own, OF_OTHERS));
            return true;
        }
    }
    false
}

/// The clock, which decides when another process counts as lost, and nothing in a result.
#[expect(clippy::disallowed_methods, reason = "how long another process is silent is what is looked at")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sends signs of life and listens for those of the other side, until it is lost.
fn watch(mut stream: TcpStream, other: &Other, own: &str, patience: Patience) {
    let _ = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
    let (mut heard, mut is_reported) = (now(), false);
    loop {
        // a full buffer means that the other side does not listen, which is found out below
        let _ = stream.write(&[1]);
        let signs = read_signs(&mut stream);
        if ENDING.load(Ordering::SeqCst) {
            return;
        }
        if signs.is_heard {
            if is_reported {
                eprintln!("equipoise: {own}: {other} is back after {} s", heard.elapsed().as_secs());
            }
            (heard, is_reported) = (now(), false);
        }
        let silence = heard.elapsed();
        if silence > patience.reported && !is_reported {
            eprintln!("equipoise: {own}: no sign of life from {other} for {} s", silence.as_secs());
            is_reported = true;
        }
        // `mpirun` knows about processes that have died, and says so; this is for the case that it does not
        if silence > patience.lost || (signs.is_closed && silence > patience.reported) {
            eprintln!(
                "equipoise: {own}: {other} is lost; the job ends here. `train --resume RUN` goes on from the last checkpoint; \
                 other commands go on, or begin again, when they are started again"
            );
            // SAFETY: ends the process at once; the main thread waits for the lost one and would never clean up.
            unsafe { libc::_exit(1) };
        }
        thread::sleep(INTERVAL);
    }
}

/// What has arrived on a connection.
struct Signs {
    is_heard: bool,
    is_closed: bool,
}

/// Reads what has arrived, without waiting.
fn read_signs(stream: &mut TcpStream) -> Signs {
    let mut signs = Signs { is_heard: false, is_closed: false };
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => signs.is_closed = true,
            Ok(_) => {
                signs.is_heard = true;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => signs.is_closed = error.kind() != ErrorKind::WouldBlock,
        }
        return signs;
    }
}
