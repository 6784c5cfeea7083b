//! Exports the functions of `src/host.rs`, so that they replace those of the C library for lookups at run
//! time, too.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for symbol in ["clock_gettime", "getrandom", "getsockname", "sched_getaffinity"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
