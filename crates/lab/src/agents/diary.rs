//! What agents say for people, in a file for each of them beside the logs of the system.

use std::fs::{File, create_dir_all};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::AgentAddress;

/// A file grows no further, whatever an agent says.
const BYTES_MAX: usize = 1 << 20;

/// The files of all agents.
#[derive(Debug)]
pub(super) struct Diary {
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Page {
    path: PathBuf,
    /// Made with the first line.
    file: Option<File>,
    left: usize,
}

impl Diary {
    /// In a folder; nothing is kept without one.
    pub(super) fn new(logs: Option<&Path>, agents: &[AgentAddress]) -> Self {
        let page = |agent: &AgentAddress| {
            Some(Page {
                path: logs?.join(format!("agent-{}.log", agent.name)),
                file: None,
                left: BYTES_MAX,
            })
        };
        Self {
            pages: agents.iter().filter_map(page).collect(),
        }
    }

    /// Adds lines to what the agent at `place` said. A log that cannot be written is no reason not to
    /// measure.
    pub(super) fn write(&mut self, place: usize, lines: &[String]) {
        if let Some(page) = self.pages.get_mut(place) {
            for line in lines {
                page.write(line);
            }
        }
    }
}

impl Page {
    fn write(&mut self, line: &str) {
        let printable = line
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char });
        let mut text: String = printable.chain(['\n']).collect();
        if text.len() > self.left {
            if self.left == 0 {
                return;
            }
            "(it said more)\n".clone_into(&mut text);
            self.left = 0;
        }
        if self.file.is_none() {
            let parent = self.path.parent().map_or(Ok(()), create_dir_all);
            // A point that is run again is told anew.
            self.file = parent.and_then(|()| File::create(&self.path)).ok();
        }
        if let Some(file) = &mut self.file
            && file.write_all(text.as_bytes()).is_ok()
        {
            self.left = self.left.saturating_sub(text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_has_a_file_of_bounded_size() {
        let folder = tempfile::tempdir().unwrap();
        let agents = AgentAddress::parse_all(&["a=h:1", "h:2", "h:3"].map(str::to_owned)).unwrap();
        let logs = folder.path().join("logs/0001");
        let mut diary = Diary::new(Some(&logs), &agents);
        diary.write(0, &["it begins\u{1b}[31m\nor does it".to_owned()]);
        diary.write(1, &vec!["x".repeat(1000); 3000]);
        diary.write(9, &["nobody".to_owned()]);
        let read = |name: &str| std::fs::read_to_string(logs.join(name)).unwrap();
        assert_eq!(read("agent-a.log"), "it begins [31m or does it\n");
        let long = read("agent-2.log");
        assert!(
            long.len() <= BYTES_MAX + 20 && long.ends_with("x\n(it said more)\n"),
            "{}",
            long.len()
        );
        assert!(!logs.join("agent-3.log").exists(), "it said nothing");
        Diary::new(None, &agents).write(0, &["nowhere".to_owned()]);
    }
}
