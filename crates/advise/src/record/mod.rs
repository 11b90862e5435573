//! Recording: by the preloaded library ([`library`]), or by `strace` ([`strace`]).

mod builder;
pub mod library;
pub mod strace;

pub use builder::Run;
