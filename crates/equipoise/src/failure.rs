//! Why a command did not succeed, and its exit code.

use std::fmt;
use std::io;

use equipoise_criterion::{BatchError, ConfigError};
use equipoise_data::DataError;
use equipoise_embed::EmbedError;
use equipoise_nn::NnError;
use equipoise_record::FolderError;
use equipoise_report::run::ReportError;
use equipoise_train::TrainError;

/// Why a command did not succeed.
pub(crate) enum Failure {
    /// The command line or an input is wrong: exit code 2.
    Usage(String),
    /// Something else went wrong: exit code 1.
    Failed(anyhow::Error),
    /// A signal stopped the command: exit code 128 plus the number of the signal. The text says how to continue.
    Interrupted(i32, String),
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// Adds what the failure is about.
    pub(crate) fn about(self, what: &str) -> Self {
        match self {
            Self::Usage(message) => Self::Usage(format!("{what}: {message}")),
            Self::Failed(error) => Self::Failed(error.context(what.to_owned())),
            Self::Interrupted(signal, message) => Self::Interrupted(signal, format!("{what}: {message}")),
        }
    }

    /// Whether the training has diverged, which says nothing about other runs.
    pub(crate) fn is_divergence(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        matches!(error.downcast_ref::<TrainError>(), Some(TrainError::Diverged { .. }))
    }

    /// Whether another process works in the run folder.
    pub(crate) fn is_of_a_folder_in_use(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        error.chain().any(|cause| matches!(cause.downcast_ref::<FolderError>(), Some(FolderError::Locked { .. })))
    }

    /// Whether the reader of our output has gone, which is no failure.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether a worker failed in a way that the others know nothing of, so that nobody else reports it.
    pub(crate) fn is_of_one_worker(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        !matches!(error.downcast_ref::<TrainError>(), Some(TrainError::Worker { .. } | TrainError::Workers(_)))
    }

    /// Whether a file of this machine could not be read or written, such as on a full disk, and nothing says yet whose it was.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        self.is_of_one_worker() && error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted(signal, _) => 128 + *signal as u8,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Interrupted(_, message) => f.write_str(message),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

/// A wrong input, with its causes.
fn usage(error: impl Into<anyhow::Error>) -> Failure {
    Failure::Usage(format!("{:#}", error.into()))
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Data(error) => error.into(),
            TrainError::Folder(error) => error.into(),
            TrainError::Diverged { .. } | TrainError::Worker { .. } | TrainError::Workers(_) => {
                Self::Failed(error.into())
            }
            TrainError::Nn(error) => error.into(),
            error => usage(error),
        }
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Locked { .. } | FolderError::Write { .. } | FolderError::Read { .. } => {
                Self::Failed(error.into())
            }
            error => usage(error),
        }
    }
}

impl From<DataError> for Failure {
    /// Most errors are about the input; some are about the system or the network.
    fn from(error: DataError) -> Self {
        use io::ErrorKind::{InvalidData, NotADirectory, NotFound, PermissionDenied, UnexpectedEof};
        match &error {
            // the input is missing, protected or truncated
            DataError::Read { source, .. }
                if matches!(
                    source.kind(),
                    NotFound | PermissionDenied | NotADirectory | InvalidData | UnexpectedEof
                ) =>
            {
                usage(error)
            }
            DataError::Read { .. }
            | DataError::Write { .. }
            | DataError::Busy { .. }
            | DataError::Connection { .. }
            | DataError::Status { .. }
            | DataError::TransferFailed { .. }
            | DataError::AnnouncedSize { .. }
            | DataError::TooManyBytes { .. }
            | DataError::Checksum { .. } => Self::Failed(error.into()),
            _ => Self::Usage(error.to_string()),
        }
    }
}

impl From<EmbedError> for Failure {
    fn from(error: EmbedError) -> Self {
        match error {
            EmbedError::Data(error) => error.into(),
            EmbedError::File { .. } => Self::Failed(error.into()),
            error => usage(error),
        }
    }
}

impl From<NnError> for Failure {
    fn from(error: NnError) -> Self {
        match error {
            NnError::Device { .. } => Self::Failed(error.into()),
            error => usage(error),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        usage(error)
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        usage(error)
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}
