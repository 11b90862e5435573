//! Caches of any size over a trace: the kernel's lists ([`TwoLists`]), and the library's own replacement
//! ([`diorite::front_end::CacheModel`]).

mod curve;
mod kernel;

pub use curve::{CurvePoint, hit_curve, working_set_bytes};
pub use kernel::TwoLists;
