//! The binary `equipoise`.

use std::process::ExitCode;

fn main() -> ExitCode {
    equipoise::main()
}
