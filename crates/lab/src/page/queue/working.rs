//! The run that is next in the queue: its folder, its program, and its end.

use std::ffi::OsString;
use std::path::{Path as FilePath, PathBuf};
use std::process::Stdio;
use std::{fs, io};

use stafett_http::{Code, Problem};
use tokio::process::Command;

use super::{LOOKS_EVERY, OUTPUT, Started, WAITING_MAX, Waiting};
use crate::page::notes::Notes;
use crate::page::{Lab, checked_name};
use crate::run::{live, now_ms};

/// Begins runs, one after the other.
pub(in super::super) async fn run(lab: Lab) {
    loop {
        if !lab.jobs.is_busy()
            && lab.under_way().await.is_none()
            && let Some(next) = lab.take_next()
        {
            lab.run_now(&next).await;
            *lab.queue.started.lock() = None;
            continue;
        }
        let wait = tokio::time::sleep(LOOKS_EVERY);
        if lab.queue.waiting().is_empty() {
            lab.queue.changed.notified().await;
        } else {
            wait.await;
        }
    }
}

impl Lab {
    pub(in super::super) fn run_folder(&self, id: &str) -> PathBuf {
        self.settings.runs.join(id)
    }

    /// Returns the folder of a run that exists.
    pub(in super::super) fn known_run(&self, id: &str) -> Result<PathBuf, Problem> {
        let folder = self.run_folder(checked_name(id)?);
        if folder.is_dir() {
            return Ok(folder);
        }
        Err(Problem::new(Code::NoSuchRun, format!("there is no run {id:?}")))
    }

    /// Returns an id that no run has: two that are asked for in the same second get a number.
    pub(super) fn free_id(&self, wanted: &str) -> String {
        let mut ids = (1_u32..).map(|number| match number {
            1 => wanted.to_owned(),
            _ => format!("{wanted}-{number}"),
        });
        ids.find(|id| !self.run_folder(id).exists())
            .unwrap_or_else(|| wanted.to_owned())
    }

    pub(super) fn put_last(&self, item: Waiting) -> Result<Waiting, Problem> {
        self.queue.change(|waiting| {
            if waiting.len() >= WAITING_MAX {
                let why = format!("{WAITING_MAX} runs wait already");
                return Err(Problem::new(Code::Overloaded, why));
            }
            if waiting.iter().any(|it| it.id == item.id) {
                return Err(Problem::new(Code::InUse, "the run waits already"));
            }
            waiting.push(item.clone());
            Ok(item)
        })
    }

    /// Returns the run that a program runs now.
    pub(in super::super) async fn under_way(&self) -> Option<String> {
        for id in self.run_ids() {
            let folder = self.run_folder(&id);
            if folder.join(live::CONTROL).exists() && live::is_alive(&folder).await {
                return Some(id);
            }
        }
        None
    }

    /// Takes the first run that may begin. It is at no time neither waiting nor started.
    fn take_next(&self) -> Option<Waiting> {
        let now = now_ms();
        let has_ended = |id: &String| {
            let waits = self.queue.waiting().iter().any(|it| it.id == *id);
            !waits && !self.queue.is_started(id)
        };
        let ready = |item: &Waiting| {
            item.not_before.is_none_or(|time| time <= now) && item.after.as_ref().is_none_or(has_ended)
        };
        let next = self.queue.waiting().into_iter().find(ready)?;
        *self.queue.started.lock() = Some(Started {
            live_bytes: live::bytes(&self.run_folder(&next.id)),
            id: next.id.clone(),
        });
        if self.queue.drop_waiting(&next.id).is_ok_and(|it| it) {
            return Some(next);
        }
        *self.queue.started.lock() = None;
        None
    }

    /// Starts the program of a run, and waits for its end.
    async fn run_now(&self, item: &Waiting) {
        let folder = self.run_folder(&item.id);
        let ended = self.program(item, &folder).await;
        let reason = match ended {
            Ok(None) => None,
            Ok(Some(text)) => Some(text),
            Err(error) => Some(format!("the program cannot be started: {error}")),
        };
        self.gather_logs(&item.arguments, &folder).await;
        let mut notes = Notes::read(&folder);
        notes.refused = reason;
        // Without space the reason is in the log of the program alone.
        let _ = notes.write(&folder);
    }

    /// Returns the last line of the program's output if it failed.
    pub(super) async fn program(&self, item: &Waiting, folder: &FilePath) -> io::Result<Option<String>> {
        fs::create_dir_all(folder)?;
        let output = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join(OUTPUT))?;
        let begun = output.metadata()?.len();
        let mut out = OsString::from("--out=");
        out.push(folder);
        let mut command = Command::new(&self.settings.exe);
        command.arg("run").args(&item.arguments).arg(out);
        if let Some(secret) = &self.settings.secret_file {
            command.arg("--secret-file").arg(secret);
        }
        // A group of its own: Ctrl-C for the page is not one for the run.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let status = command.spawn()?.wait().await?;
        if status.success() {
            return Ok(None);
        }
        let said = fs::read(folder.join(OUTPUT)).unwrap_or_default();
        let said = said
            .get(usize::try_from(begun).unwrap_or(0)..)
            .unwrap_or_default();
        let text = String::from_utf8_lossy(said);
        let last = text.trim().lines().last().unwrap_or_default();
        Ok(Some(format!("{last} ({status})")))
    }
}
