//! `equipoise` under `mpirun`: the same commands, and the same results bit for bit, whatever the number of processes.
//!
//! Rank 0 runs the command, writes and prints; the others compute their share of every run that it trains or evaluates (`orders`). `workers`
//! is what the trainer needs of the others, `peers` what the engine needs, `comm` the calls of MPI behind both.

mod comm;
mod heartbeat;
mod orders;
mod peers;
mod workers;

use std::process::ExitCode;
use std::time::Duration;

use equipoise::cluster::{Following, lead};
use equipoise_train::run::processes::{Connection, Processes, Task};
use equipoise_train::workers::WorkersError;
use mpi::Threading;

use crate::comm::{Comm, MpiResult};
use crate::orders::{Kind, Orders};
use crate::peers::MpiPeers;
use crate::workers::MpiWorkers;

/// The communicators of a process.
struct Communicators {
    orders: Orders,
    /// Where all processes meet before they end.
    end: Comm,
    workers: Comm,
    peers: [Comm; 3],
    /// The machine that the process runs on.
    node: String,
    /// Processes on this machine.
    on_node: usize,
}

impl Communicators {
    fn new() -> MpiResult<Self> {
        let (workers, node) = (Comm::new()?, mpi::environment::processor_name().unwrap_or_default());
        let nodes = workers.exchange(node.as_bytes())?;
        let names: Vec<String> = nodes.iter().map(|node| String::from_utf8_lossy(node).into_owned()).collect();
        if workers.size > 1
            && let Some(unwatched) = heartbeat::start(&workers, &names)?
            && workers.rank == 0
        {
            eprintln!(
                "equipoise: warning: no connection beside MPI with {unwatched}; if it is cut off, this is noticed late"
            );
        }
        Ok(Self {
            orders: Orders::new(Comm::new()?),
            end: Comm::new()?,
            workers,
            peers: [Comm::new()?, Comm::new()?, Comm::new()?],
            on_node: nodes.iter().filter(|other| **other == node.as_bytes()).count(),
            node,
        })
    }

    fn connection(&self) -> Connection {
        Connection {
            workers: Box::new(MpiWorkers::new(self.workers, self.orders, &self.node)),
            peers: Box::new(MpiPeers::new(self.peers)),
        }
    }
}

impl Processes for Communicators {
    fn size(&self) -> usize {
        self.workers.size
    }

    fn start(&self, task: Task, order: &[u8]) -> Result<Connection, WorkersError> {
        self.orders.send(Kind::Start(task), order)?;
        Ok(self.connection())
    }
}

/// Time in which all processes meet before they end.
const MEETING: Duration = Duration::from_secs(5);

/// Threads of each of some processes on one machine.
fn threads(processes: usize) -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / processes.max(1)).max(1))
}

fn main() -> ExitCode {
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Serialized) else {
        eprintln!("equipoise: MPI cannot be started");
        return ExitCode::FAILURE;
    };
    let communicators = match Communicators::new() {
        Ok(communicators) => communicators,
        Err(what) => {
            eprintln!("equipoise: the processes cannot be connected: {what}");
            return ExitCode::FAILURE;
        }
    };
    let code = match (communicators.workers.rank, communicators.workers.size) {
        (_, 1) => equipoise::main(),
        (0, _) => {
            let (orders, end, threads) = (communicators.orders, communicators.end, threads(communicators.on_node));
            let code = lead(Box::new(communicators), threads);
            // the others are waiting for orders, unless this process failed alone
            if orders.send(Kind::End, &[]).is_err() || !end.meet(MEETING) {
                end.abort(1);
            }
            code
        }
        _ => follow(&communicators),
    };
    heartbeat::end();
    drop(universe);
    code
}

/// What all processes but rank 0 do.
fn follow(communicators: &Communicators) -> ExitCode {
    let mut following = Following::new();
    let (rank, threads) = (communicators.workers.rank, threads(communicators.on_node));
    loop {
        let order = communicators.orders.receive();
        let is_fine = match order {
            Ok((Kind::Start(task), order)) => following.start(task, &order, communicators.connection(), threads, rank),
            Ok((Kind::Train, _)) => following.train(rank),
            Ok((Kind::End, _)) => {
                communicators.end.meet(MEETING);
                return ExitCode::SUCCESS;
            }
            Err(what) => {
                eprintln!("equipoise: rank {rank} cannot reach rank 0: {what}");
                false
            }
        };
        if !is_fine {
            communicators.workers.abort(1);
        }
    }
}
