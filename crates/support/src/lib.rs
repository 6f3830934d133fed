//! Small pieces that several crates share, each in a file of its own.

mod causes;
mod examples;
mod lock;
mod nearest;
mod number;
mod position;
mod protobuf;

pub use causes::with_causes;
pub use examples::Examples;
pub use lock::{FolderLock, LockError, LockOwner, is_held};
pub use nearest::nearest;
pub use number::short_number;
pub use position::without_position;
pub use protobuf::Message;
