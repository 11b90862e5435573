//! An open volume: paths, names, nodes, the mapping of files, and its threads.
//!
//! Where it sits: at the top, above the handles and contents of its files.

pub(crate) mod create;
pub(crate) mod ext_map;
pub(crate) mod filesystem;
mod names;
pub(crate) mod node;
pub(crate) mod nodes;
mod open;
pub(crate) mod read_dir;
pub(crate) mod removals;
pub(crate) mod resolve;
pub(crate) mod service;
pub(crate) mod status;
pub(crate) mod volume_target;
pub(crate) mod walk;
pub(crate) mod what_is_on;
mod whole_files;
