//! Events of a worker, as they are shown.

use schemars::JsonSchema;
use serde::Serialize;
use stafett_apps::machine::{Event, EventKind};
use stafett_apps::{App, Claim, Session};

use super::shape::{ShownOffsets, by_topic};
use crate::content::Text;

/// Something that a worker has to know.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppEvent")]
pub(crate) struct EventShown {
    pub(crate) number: u64,
    /// `claimed`, `prepare` (the task is about to come), `revoke` (commit, and release it in time), or `lost`.
    pub(crate) event: &'static str,
    pub(crate) task: String,
    pub(crate) epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Worker that had the task before.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(flatten)]
    position: Option<PositionShown>,
}

/// Position and state of a claimed task.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppPosition")]
struct PositionShown {
    partition: u32,
    next: ShownOffsets,
    safe: ShownOffsets,
    /// Finished keys with the offsets of their last records.
    done: Vec<(Text, ShownOffsets)>,
    seq: u64,
    time: Option<i64>,
    entries: usize,
    bytes: u64,
}

impl EventShown {
    pub(crate) async fn of(app: &App, session: Session<'_>, event: Event) -> Self {
        if let EventKind::Claimed { task, .. } = &event.kind {
            app.read_in(*task).await;
        }
        let shown = |event: &'static str, task: stafett_apps::TaskId, epoch| Self {
            number: 0,
            event,
            task: task.to_string(),
            epoch,
            reason: None,
            from: None,
            deadline_ms: None,
            position: None,
        };
        let shown = match event.kind {
            EventKind::Claimed {
                task,
                epoch,
                reason,
                from,
            } => Self {
                reason: Some(reason.word()),
                from: from.map(|from| from.to_string()),
                position: PositionShown::of(app, session, Claim { task, epoch }),
                ..shown("claimed", task, epoch)
            },
            EventKind::Prepare { task, epoch, from } => Self {
                from: Some(from.to_string()),
                ..shown("prepare", task, epoch)
            },
            EventKind::Revoke {
                task,
                epoch,
                deadline_ms,
            } => Self {
                deadline_ms: Some(deadline_ms),
                ..shown("revoke", task, epoch)
            },
            EventKind::Lost { task, epoch, reason } => Self {
                reason: Some(reason),
                ..shown("lost", task, epoch)
            },
        };
        Self {
            number: event.number,
            ..shown
        }
    }
}

impl PositionShown {
    /// `None` if the worker does not have the task any more.
    fn of(app: &App, session: Session<'_>, claim: Claim) -> Option<Self> {
        let view = app.claim_view(session, claim)?;
        let stored = app.stored();
        let definition = &stored.definition;
        let last = |behind: &[u64]| {
            let names = definition.topics.iter().zip(behind);
            let last = names.filter_map(|(name, behind)| Some((name.to_string(), behind.checked_sub(1)?)));
            last.collect()
        };
        Some(Self {
            partition: claim.task.partition,
            next: by_topic(definition, &view.position.next),
            safe: by_topic(definition, &view.position.safe),
            done: view
                .done
                .iter()
                .map(|(key, behind)| (Text::of(key), last(behind)))
                .collect(),
            seq: view.position.seq,
            time: Some(view.position.time).filter(|time| *time > i64::MIN),
            entries: view.totals.entries,
            bytes: view.totals.bytes,
        })
    }
}
