//! The arithmetic under the criteria: lanes, the softmax and the sigmoid row kernels, and the loop over rows.

pub(crate) mod lanes;
pub(crate) mod rows;
pub(crate) mod shape;
pub(crate) mod sigmoid;
pub(crate) mod softmax;
