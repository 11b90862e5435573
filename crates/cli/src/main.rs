//! The program `diorite`. Its code is a library: cargo compiles a library in parallel with its dependencies, but a program only after them.

use std::process::ExitCode;

fn main() -> ExitCode {
    diorite_cli::main()
}
