//! Trace of events: a checksum that two runs of a seed agree in, and text for readers.

/// Notes of a run.
#[derive(Debug)]
pub struct Trace {
    sum: u64,
    is_shown: bool,
    pub notes: u64,
}

impl Trace {
    pub fn new(is_shown: bool) -> Self {
        Self {
            sum: 0xcbf2_9ce4_8422_2325,
            is_shown,
            notes: 0,
        }
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        let text = text();
        for byte in text.as_bytes() {
            self.sum = (self.sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.notes += 1;
        if self.is_shown {
            #[expect(clippy::print_stdout, reason = "it was asked for")]
            {
                println!("{text}");
            }
        }
    }

    /// Returns the checksum, equal for equal runs.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}
