//! fetch_sessions
