#!/usr/bin/env bash
# Calls the compiler so that no path of the machine that builds gets into a program: panics and debug
# information name sources of dependencies as `registry/CRATE/src/...`, our own as in this repository.
# Cargo's `trim-paths` does this, but is not stable, and `build.rustflags` cannot name the user's folder.
# RUSTC_WRAPPER in the environment, such as sccache, takes the place of this script: the program then
# differs in these paths only. (It takes bash: other shells drop variables such as CARGO_BIN_EXE_a-b.)
root=${0%/.cargo/*}
home=${CARGO_HOME:-$HOME/.cargo}
for index in "$home"/registry/src/*/; do
    set -- "$@" --remap-path-prefix "${index%/}=registry"
done
exec "$@" --remap-path-prefix "$root=."
