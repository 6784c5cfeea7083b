//! Handling of whole batches: the crate's own, those of other producers, and broken ones.

#[cfg(test)]
mod captured;
#[cfg(test)]
mod fan_out;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod kafka_answers;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod times;
#[cfg(test)]
mod validate;
