//! Reports of made-up results: what stands in them, and how a browser shows them.
#![cfg(test)]

mod experiments;
mod fixture;

#[test]
fn look() {
    let out = std::path::PathBuf::from(std::env::var("LOOK").unwrap());
    let folder = out.join("runs");
    let _ = std::fs::remove_dir_all(&folder);
    fixture::write(&folder.join("batch"), "batch", experiments::BATCH, 1);
    fixture::write(&folder.join("peak"), "peak", experiments::PEAK, 2);
    fixture::write(&folder.join("factors"), "factors", experiments::FACTORS, 3);
    fixture::write(
        &folder.join("unreplicated"),
        "unreplicated",
        &experiments::unreplicated(),
        4,
    );
    stafett_lab::report::report(&folder, &out).unwrap();
    fixture::write(&out.join("later/batch"), "batch", experiments::BATCH, 9);
    stafett_lab::report::compare(&[folder.join("batch"), out.join("later/batch")], &out).unwrap();
}
