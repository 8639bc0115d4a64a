//! The `stoker` command; all of it is in the library, which the Python package calls too.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(stoker_cli::main(std::env::args_os()))
}
