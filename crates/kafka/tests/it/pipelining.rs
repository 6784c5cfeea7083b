//! pipelining
