//! Types of settings, and errors of values. The texts are those that Kafka's tools show.

use stafett_model::Durability;

use super::list;
use super::share::Reset;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigType {
    Boolean,
    Integer {
        min: i32,
        max: i32,
    },
    Long {
        min: i64,
    },
    /// Number from 0 to 1.
    Ratio,
    OneOf(&'static [&'static str]),
    /// List of some of these; of any elements if empty.
    SomeOf(&'static [&'static str]),
    /// `*`, or a list of `PARTITION:BROKER`.
    Replicas,
    Durability,
    /// `earliest`, `latest`, or `by_duration:` and an ISO 8601 duration.
    ShareReset,
    Text,
}

/// Reason why a value is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadValue {
    #[error("Not a number of type {0}")]
    NotANumber(&'static str),
    #[error("Expected value to be either true or false")]
    NotABoolean,
    #[error("Value must be at least {0}")]
    TooSmall(i64),
    #[error("Value must be no more than {0}")]
    TooLarge(i64),
    #[error("String must be one of: {}", .0.join(", "))]
    NotOneOf(&'static [&'static str]),
    #[error("Expected *, or partitions and brokers as in 0:1,1:1")]
    NotReplicas,
    #[error("Expected memory, os, interval:RECORDS,MILLISECONDS or sync")]
    NotADurability,
    #[error("Expected earliest, latest, or by_duration: and a duration as in PT1H30M")]
    NotAReset,
}

impl ConfigType {
    /// Integer type with a minimum only.
    pub(super) const fn int(min: i32) -> Self {
        Self::Integer { min, max: i32::MAX }
    }

    /// Returns the protocol's number of the type (`ConfigDef.Type` as `DescribeConfigs` numbers them).
    pub(crate) fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::OneOf(_) | Self::Durability | Self::ShareReset | Self::Text => 2,
            Self::Integer { .. } => 3,
            Self::Long { .. } => 5,
            Self::Ratio => 6,
            Self::SomeOf(_) | Self::Replicas => 7,
        }
    }

    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::SomeOf(_) | Self::Replicas)
    }

    pub(super) fn check(self, value: &str) -> Result<(), BadValue> {
        match self {
            Self::Boolean => {
                let is_one = ["true", "false"]
                    .iter()
                    .any(|text| value.eq_ignore_ascii_case(text));
                if is_one {
                    Ok(())
                } else {
                    Err(BadValue::NotABoolean)
                }
            }
            Self::Integer { min, max } => {
                let number: i32 = value.parse().map_err(|_| BadValue::NotANumber("INT"))?;
                between(number.into(), min.into(), max.into())
            }
            Self::Long { min } => {
                let number: i64 = value.parse().map_err(|_| BadValue::NotANumber("LONG"))?;
                between(number, min, i64::MAX)
            }
            Self::Ratio => {
                let number: f64 = value.parse().map_err(|_| BadValue::NotANumber("DOUBLE"))?;
                if number > 1.0 {
                    Err(BadValue::TooLarge(1))
                } else if number >= 0.0 {
                    Ok(())
                } else {
                    Err(BadValue::TooSmall(0))
                }
            }
            Self::OneOf(texts) if texts.contains(&value) => Ok(()),
            Self::SomeOf([]) | Self::Text => Ok(()),
            Self::SomeOf(texts) if list(value).all(|text| texts.contains(&text)) => Ok(()),
            Self::OneOf(texts) | Self::SomeOf(texts) => Err(BadValue::NotOneOf(texts)),
            Self::Replicas if value == "*" || list(value).all(is_replica) => Ok(()),
            Self::Replicas => Err(BadValue::NotReplicas),
            Self::Durability if value.parse::<Durability>().is_ok() => Ok(()),
            Self::Durability => Err(BadValue::NotADurability),
            Self::ShareReset if Reset::read(value).is_some() => Ok(()),
            Self::ShareReset => Err(BadValue::NotAReset),
        }
    }
}

fn between(number: i64, min: i64, max: i64) -> Result<(), BadValue> {
    if number < min {
        Err(BadValue::TooSmall(min))
    } else if number > max {
        Err(BadValue::TooLarge(max))
    } else {
        Ok(())
    }
}

fn is_replica(text: &str) -> bool {
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    text.split_once(':')
        .is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
}
