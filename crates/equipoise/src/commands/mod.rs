//! One file per command: flags as typed, and `run`.

pub(crate) mod bench;
pub(crate) mod criteria;
pub(crate) mod data;
pub(crate) mod inspect;
pub(crate) mod loss;
