//! The program `diorite`. Its code is a library, which cargo compiles beside the crates below it; a program waits for them.

use std::process::ExitCode;

fn main() -> ExitCode {
    diorite_cli::main()
}
