//! What a person wants to know about a dataset: its problems, its imbalance, and groups of classes by size.

mod advice;
pub mod broken_files;
pub mod contact_sheet;
mod findings;
pub mod groups;
pub mod image_groups;
pub mod image_side;
pub mod inspect;
mod near_duplicates;
pub mod same_files;
pub mod strips;
