//! Methods that several criteria share. They are not criteria of their own.

pub(crate) mod biased;
pub(crate) mod weighted;
