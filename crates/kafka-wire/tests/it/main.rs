//! The codec as others use it: whole frames, what real clients sent, and how often memory is taken.

mod allocations;
mod captured;
mod frames;
