//! Tests of `diorite-load`.

mod common;
mod damaged;
mod formats;
mod images;
mod names;
