//! The files of the performance log: `trace-TIME-NUMBER.ndjson`, begun anew when one has an eighth of the
//! bytes that all may have.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::TraceSettings;
use super::line::{Line, put_text, put_time};

const PREFIX: &str = "trace-";
const SUFFIX: &str = ".ndjson";
const FILES: u64 = 8;

#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    head: Vec<(String, String)>,
    bytes_max: u64,
    file: BufWriter<File>,
    bytes: u64,
    number: u64,
    text: String,
}

impl Files {
    pub(super) fn open(settings: &TraceSettings) -> io::Result<Self> {
        fs::create_dir_all(&settings.dir)?;
        let (file, bytes) = begin(&settings.dir, 0, &settings.head)?;
        Ok(Self {
            dir: settings.dir.clone(),
            head: settings.head.clone(),
            bytes_max: settings.bytes_max,
            file,
            bytes,
            number: 0,
            text: String::new(),
        })
    }

    pub(super) fn write(&mut self, line: &Line) -> io::Result<()> {
        self.text.clear();
        line.put(&mut self.text);
        if self.bytes + self.text.len() as u64 > self.bytes_max / FILES {
            self.file.flush()?;
            self.number += 1;
            (self.file, self.bytes) = begin(&self.dir, self.number, &self.head)?;
            self.remove_oldest()?;
        }
        self.file.write_all(self.text.as_bytes())?;
        self.bytes += self.text.len() as u64;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Removes the oldest files, so that with the one that was begun there are never too many bytes.
    fn remove_oldest(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                files.push((name, entry.path(), entry.metadata()?.len()));
            }
        }
        files.sort();
        let mut room = self.bytes_max - self.bytes_max / FILES;
        // The last one was just begun.
        for (_, path, bytes) in files.iter().rev().skip(1) {
            if let Some(left) = room.checked_sub(*bytes) {
                room = left;
            } else {
                room = 0;
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Begins a file with the settings. Returns it, and the bytes in it.
fn begin(
    dir: &std::path::Path,
    number: u64,
    head: &[(String, String)],
) -> io::Result<(BufWriter<File>, u64)> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Names are in the order of time, also over restarts.
    let name = format!("{PREFIX}{:013}-{number:06}{SUFFIX}", since.as_millis());
    let mut line = String::from("{\"t\":\"");
    put_time(SystemTime::now(), &mut line);
    line.push_str("\",\"settings\":{");
    for (place, (key, value)) in head.iter().enumerate() {
        put_text(if place == 0 { "" } else { "," }, key, &mut line);
        line.push(':');
        line.push_str(value);
    }
    line.push_str("}}\n");
    let mut file = BufWriter::new(File::create_new(dir.join(name))?);
    file.write_all(line.as_bytes())?;
    file.flush()?;
    Ok((file, line.len() as u64))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_files_go_and_other_files_stay() {
        let dir = std::env::temp_dir().join(format!("stafett-trace-files-{}", std::process::id()));
        let settings = TraceSettings {
            dir: dir.clone(),
            share: 1.0,
            slow: Duration::ZERO,
            bytes_max: 16 << 10,
            head: Vec::new(),
        };
        let mut files = Files::open(&settings).unwrap();
        fs::write(dir.join("mine.ndjson"), "x").unwrap();
        for number in 0..1000 {
            let line = Line {
                request: number,
                ..Line::of("request")
            };
            files.write(&line).unwrap();
        }
        files.flush().unwrap();
        let mut names = Vec::new();
        let mut bytes = 0;
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            names.push(entry.file_name().into_string().unwrap());
            bytes += entry.metadata().unwrap().len();
        }
        names.sort();
        assert!(bytes <= settings.bytes_max, "{bytes}");
        assert!(names.contains(&"mine.ndjson".to_owned()));
        let last = fs::read_to_string(dir.join(&names[names.len() - 1])).unwrap();
        assert!(last.ends_with("\"request\":\"3e7\"}\n"), "{last}");
        fs::remove_dir_all(dir).unwrap();
    }
}
