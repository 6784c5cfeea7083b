//! Positions of a sink that is stopped: looked up in its topics, and set by an operator's word.

use stafett_kafka_client::{Client, ClientError};

use crate::definition::{Begin, Definition, SourceSpec};
use crate::reader;
use crate::runner::RunError;
use crate::target::{Place, Start, Target};
use crate::work::App;

/// Returns each partition of a sink, with the offset at which `begin` lies.
pub async fn begins(
    definition: &Definition,
    client: &Client,
    begin: Begin,
) -> Result<Vec<(Place, Start)>, ClientError> {
    let mut begins = Vec::new();
    for place in places(definition, client).await? {
        let start = first_of(client, &place, begin).await?;
        begins.push((place, start));
    }
    Ok(begins)
}

pub(crate) async fn places(definition: &Definition, client: &Client) -> Result<Vec<Place>, ClientError> {
    let mut places = Vec::new();
    for name in &definition.from {
        for partition in client.topic(name).await?.partitions {
            places.push(Place {
                topic: name.clone(),
                partition: u32::try_from(partition.index).unwrap_or(0),
            });
        }
    }
    Ok(places)
}

/// Returns a place as its broker has it now.
pub(crate) async fn first_of(client: &Client, place: &Place, begin: Begin) -> Result<Start, ClientError> {
    let (start, _) = reader::begin(client, place, begin).await?;
    Ok(start)
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
            let start = first_of(client, place, Begin::Earliest).await?;
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
        for place in places(definition, client).await? {
            let is_lost = lost.iter().any(|topic| topic.name == place.topic);
            let look = || first_of(client, &place, definition.begin);
            pass_gap(target, &place, is_lost, look).await?;
        }
    }
    if let Some(app) = app {
        app.accept_gap().await?;
    }
    Ok(())
}

/// Has a place begin at the first record that is there, if its position is one of an earlier topic, or lies
/// before that record. `is_lost` says that the topic was made again; it counts for a position without an id.
///
/// `look` returns the place as its broker has it. It is asked again once the place is taken over: another
/// writer that knows of a newer topic comes behind that, and then this is `Fenced`.
pub async fn pass_gap<L>(
    target: &mut dyn Target,
    place: &Place,
    is_lost: bool,
    look: impl Fn() -> L,
) -> Result<(), RunError>
where
    L: Future<Output = Result<Start, ClientError>>,
{
    // Without an id, so that the position keeps its own until it is set.
    let opened = target.open(place, look().await?.unnamed()).await?;
    let start = look().await?;
    let is_former = match opened.topic {
        Some(_) => !start.is_of(opened.topic),
        None => is_lost,
    };
    if is_former || opened.next < start.earliest {
        let first = start.with_next(start.earliest);
        target.set_position_since(place, opened.epoch, first).await?;
    } else if opened.topic.is_none() {
        // It gets its id.
        target.open(place, start).await?;
    }
    Ok(())
}
