//! The state machine of classic groups, as scripts: [`script`] says how they read.

mod joining;
mod leaving;
mod restarts;
mod script;
mod statics;
