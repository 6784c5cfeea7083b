//! Tests over a journal in memory.
