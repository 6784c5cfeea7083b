//! Positions of a sink that is stopped: looked up in its topics, and set by an operator's word.

use stafett_kafka_client::{Client, ClientError};

use crate::definition::{Begin, Definition, SourceSpec};
use crate::reader;
use crate::runner::RunError;
use crate::target::{Place, Start, Target, TargetError};
use crate::work::App;

/// Returns each partition of a sink, with the offset at which `begin` lies.
pub async fn begins(
    definition: &Definition,
    client: &Client,
    begin: Begin,
) -> Result<Vec<(Place, Start)>, ClientError> {
    let mut places = Vec::new();
    for name in &definition.from {
        for partition in client.topic(name).await?.partitions {
            let place = Place {
                topic: name.clone(),
                partition: u32::try_from(partition.index).unwrap_or(0),
            };
            let (start, _) = reader::begin(client, &place, begin).await?;
            places.push((place, start));
        }
    }
    Ok(places)
}

/// Returns a position of a sink, with the topic that has it now.
pub async fn position(
    definition: &Definition,
    client: &Client,
    place: &Place,
    next: u64,
) -> Result<Start, ClientError> {
    match definition.source {
        SourceSpec::Queue(_) => Ok(Start::at(next)),
        SourceSpec::Own | SourceSpec::Broker(_) => {
            let (start, _) = reader::begin(client, place, Begin::Earliest).await?;
            Ok(start.with_next(next))
        }
    }
}

/// Has a sink go on behind all that is gone: at the first records of topics that were made again, and of
/// partitions from which retention has removed records that were not written.
///
/// The target comes first, and the app afterwards: until then the sink stays stopped, and this can be
/// repeated.
pub async fn accept_gap(
    definition: &Definition,
    client: &Client,
    target: &mut dyn Target,
    mut app: Option<&mut App>,
) -> Result<(), RunError> {
    let lost = match &mut app {
        Some(app) => app.look().await?.lost,
        None => Vec::new(),
    };
    if !definition.keeps_positions_in_app() {
        for (place, start) in begins(definition, client, definition.begin).await? {
            let is_lost = lost.iter().any(|topic| topic.name == place.topic);
            let has_gap = match target.open(&place, start).await {
                Ok(opened) => opened.next < start.earliest,
                Err(TargetError::MadeAgain(_)) => true,
                Err(why) => return Err(why.into()),
            };
            if is_lost || has_gap {
                let start = start.with_next(start.earliest);
                target.set_position(&place, start).await?;
            }
        }
    }
    if let Some(app) = app {
        app.accept_gap().await?;
    }
    Ok(())
}
