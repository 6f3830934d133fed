//! What rank 0 tells the other processes between runs.

use equipoise_train::run::processes::Task;
use equipoise_train::workers::WorkersError;

use crate::comm::{Comm, MpiResult};
use crate::workers::unreachable;

/// What the others are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Take part in a task.
    Start(Task),
    /// Train the run that was built.
    Train,
    /// Leave.
    End,
}

/// All kinds, in the order of their numbers in a message.
const KINDS: [Kind; 6] = [
    Kind::End,
    Kind::Train,
    Kind::Start(Task::Build),
    Kind::Start(Task::Evaluate),
    Kind::Start(Task::Predict),
    Kind::Start(Task::Command),
];

/// The way from rank 0 to the others.
#[derive(Clone, Copy)]
pub(crate) struct Orders {
    comm: Comm,
}

impl Orders {
    pub(crate) fn new(comm: Comm) -> Self {
        Self { comm }
    }

    /// Tells the others what to do. Only rank 0 does.
    pub(crate) fn send(&self, kind: Kind, text: &[u8]) -> Result<(), WorkersError> {
        let number = KINDS.iter().position(|other| *other == kind).unwrap_or(0);
        let mut message: Vec<u8> = [number as u8].into_iter().chain(text.iter().copied()).collect();
        self.comm.broadcast(&mut message, false).map_err(unreachable)
    }

    /// Waits for what rank 0 says.
    pub(crate) fn receive(&self) -> MpiResult<(Kind, Vec<u8>)> {
        let mut message = Vec::new();
        self.comm.broadcast(&mut message, true)?;
        let kind = message.first().and_then(|number| KINDS.get(usize::from(*number)).copied());
        Ok((kind.unwrap_or(Kind::End), message.split_off(message.len().min(1))))
    }
}
