//! The examples in Java, as their READMEs run them, while the broker and they themselves are killed.

mod program;
mod streams;
