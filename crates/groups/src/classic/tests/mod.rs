//! The state machine of classic groups, tested with scripts: [`script`] describes their language.

mod joining;
mod leaving;
mod restarts;
mod script;
mod statics;
