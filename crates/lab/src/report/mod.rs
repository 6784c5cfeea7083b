//! The report: one HTML file that needs nothing else, with CSV and JSON beside it.

mod chart;
mod numbers;
