//! list_offsets
