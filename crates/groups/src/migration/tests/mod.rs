//! Groups that change their protocol, without a registry.

mod classic_members;
mod conversion;
