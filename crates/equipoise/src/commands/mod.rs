//! A module per command: its options, and `run`. Commands import nothing from each other.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod criteria;
pub(crate) mod data;
pub(crate) mod embed;
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod inspect;
pub(crate) mod label_errors;
pub(crate) mod loss;
pub(crate) mod lr_range;
pub(crate) mod predict;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod settings;
pub(crate) mod train;
