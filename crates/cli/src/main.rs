//! The `catchment` command.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    catchment_cli::main()
}
