//! The program `diorite`.
fn main() {}
