//! Power-cut tests: the examination itself, and a zoo of classic mistakes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod cases;
mod speed;
mod zoo;
