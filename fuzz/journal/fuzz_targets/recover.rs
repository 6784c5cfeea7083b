//! A stopped journal with damaged files. It opens or says why not, and whatever it gives out is what was
//! stored there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_fuzz_journal::{Image, exercise};

fuzz_target!(|data: &[u8]| {
    let Some((choice, edits)) = data.split_first() else {
        return;
    };
    let image = Image::choose(*choice);
    let disk = image.damaged(edits, false);
    exercise(image, &disk, choice & 0x80 != 0, true);
});
