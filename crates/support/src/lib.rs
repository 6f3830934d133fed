//! Small pieces that several crates share, each in a file of its own.

mod causes;
mod lock;
mod nearest;
mod protobuf;

pub use causes::with_causes;
pub use lock::{FolderLock, LockError};
pub use nearest::nearest;
pub use protobuf::Message;
