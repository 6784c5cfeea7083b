//! Lets the functions of `src/host.rs` stand before those of the C library also for what looks them up while
//! running.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for symbol in ["clock_gettime", "getrandom", "getsockname", "sched_getaffinity"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
