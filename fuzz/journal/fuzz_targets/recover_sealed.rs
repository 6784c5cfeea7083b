//! A stopped journal with changed files whose checksums were corrected. What it gives out
//! may be anything, but it neither panics nor hangs, and its memory is bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_fuzz_journal::{Image, exercise};

fuzz_target!(|data: &[u8]| {
    let Some((choice, edits)) = data.split_first() else {
        return;
    };
    let image = Image::choose(*choice);
    let disk = image.damaged(edits, true);
    exercise(image, &disk, choice & 0x80 != 0, false);
});
