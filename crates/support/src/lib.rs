//! Small pieces that several crates share, each in a file of its own.

mod causes;
mod lock;
mod nearest;

pub use causes::with_causes;
pub use lock::{FolderLock, LockError};
pub use nearest::nearest;
