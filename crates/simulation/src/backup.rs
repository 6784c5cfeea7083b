//! A backup of the running journal, and a start on it.
//!
//! With the backup goes the clients' knowledge at that moment. A start on the backup takes both back: data
//! acknowledged before is there, data under way may be there, and later data is not.

use crate::amqp::Amqp;
use crate::kafka::Kafka;
use crate::live::Live;
use crate::loss::Loss;
use crate::mail::Mail;
use crate::server::Server;
use crate::steps::End;
use crate::world::{Broken, Death, Finding, World};

/// End of the program that a restored backup is like: everything written is there.
pub const LIKE: Death = Death::Killed;

/// The clients' knowledge at the time of a backup, without their connections.
#[derive(Debug, Clone)]
pub struct Backup {
    kafka: Kafka,
    amqp: Amqp,
    live: Live,
    mail: Mail,
    wall_offset_ms: i64,
    /// True if the next start is on it.
    is_next: bool,
}

impl World {
    /// Makes a backup, unless files were lost: their remains are not the clients' knowledge.
    pub fn back_up(&mut self, server: &Server) -> Result<(), Finding> {
        if self.has_lost {
            return Ok(());
        }
        let target = self.disk().begin_backup();
        let made = server.journal.backup_into(&target);
        self.trace.note(|| format!("a backup is made: {made:?}"));
        match made {
            Ok(_) => {}
            Err(_) if self.may_refuse || self.has_failed() => return Ok(()),
            Err(error) => return Err(Finding(format!("there is no backup: {error}"))),
        }
        self.disk().end_backup();
        let now_ms = self.now_ms();
        let mut backup = Backup {
            kafka: self.kafka.clone(),
            amqp: self.amqp.clone(),
            live: self.live.clone(),
            mail: self.mail.as_left(),
            wall_offset_ms: self.wall_offset_ms(),
            is_next: false,
        };
        backup.kafka.on_end();
        backup.amqp.on_end(now_ms);
        let uncertain = backup.amqp.on_death(LIKE, now_ms);
        backup.kafka.ledger.doubt_messages(uncertain);
        backup.live.on_end(Some(LIKE), false);
        backup.mail.on_end(Some(LIKE), false, now_ms);
        self.backup = Some(backup);
        Ok(())
    }

    /// Ends the program, which then starts on the last backup. Without one, it is made.
    pub async fn start_on_backup(&mut self, server: &mut Server, end: End) -> Result<(), Broken> {
        let Some(backup) = &mut self.backup else {
            return Ok(self.back_up(server)?);
        };
        backup.is_next = true;
        Err(self.end(server, end).await)
    }

    /// Puts the last backup in the place of the journal while no program runs, if the next start is on it.
    pub fn restore(&mut self) -> Result<bool, Finding> {
        let Some(backup) = self.backup.as_mut().filter(|backup| backup.is_next) else {
            return Ok(false);
        };
        backup.is_next = false;
        let backup = backup.clone();
        let restored = self.disk().restore();
        let report = restored.map_err(|error| Finding(format!("a backup cannot be restored: {error}")))?;
        if !report.is_sound() {
            return Err(Finding(format!("a restored backup is damaged:\n{report}")));
        }
        self.trace.note(|| "the backup is restored".to_owned());
        (self.kafka, self.amqp, self.live) = (backup.kafka, backup.amqp, backup.live);
        self.mail = backup.mail;
        if backup.wall_offset_ms != self.wall_offset_ms() {
            self.amqp.copies.on_clock_set();
        }
        (self.has_lost, self.lost) = (false, None);
        // Files are made anew.
        self.end_full();
        Ok(true)
    }

    /// Handles a loss: a damaged file may be one of the backup, too.
    pub fn on_loss_beside_backup(&mut self, loss: Loss) {
        if matches!(loss, Loss::Bit(_) | Loss::Group(_) | Loss::Settlement(_)) {
            self.backup = None;
        }
    }
}
