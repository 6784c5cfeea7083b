//! Keyed state as it may lie in a journal: the broker refuses to start on it, or starts, stops and starts
//! again.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;

use stafett_broker::{Broker, BrokerSettings, StartError};
use stafett_fuzz_state::rows;
use stafett_journal::{Append, Frame, Journal, LogSpec, MemoryJournal};

/// Logs that exist: state names them by number.
const LOGS: u32 = 32;

fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let journal = Arc::new(MemoryJournal::new());
        let first = journal.allocate(LOGS);
        let logs = Frame::CreateLogs {
            first,
            count: LOGS,
            spec: LogSpec::default(),
        };
        let frames = std::iter::once(logs)
            .chain(rows(data).into_iter().map(Frame::State))
            .collect();
        journal
            .append(vec![Append {
                frames,
                ..Append::default()
            }])
            .await;
        let journal = Arc::new(journal.reopen());
        if start(&journal).await.is_ok() {
            let again = start(&Arc::new(journal.reopen())).await;
            assert!(again.is_ok(), "it started once: {again:?}");
        }
    });
});

async fn start(journal: &Arc<MemoryJournal>) -> Result<(), StartError> {
    let broker = Arc::new(Broker::start(journal.clone(), BrokerSettings::default()).await?);
    let _ = broker.open_live_logs().await;
    broker.stop().await;
    Ok(())
}
