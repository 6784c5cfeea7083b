//! The threads of this process, read from `/proc` (proc(5), specific to Linux).

use std::fs;
use std::io;
use std::path::Path;

use stafett_admin::node::Thread;

/// Describes all threads, in the order of their ids.
pub(crate) fn all() -> io::Result<Vec<Thread>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        let id = path
            .file_name()
            .and_then(|name| name.to_str()?.parse::<u32>().ok());
        // A thread may have ended meanwhile.
        if let (Some(id), Some(thread)) = (id, read(&path)) {
            found.push((id, thread));
        }
    }
    found.sort_unstable_by_key(|(id, _)| *id);
    Ok(found.into_iter().map(|(_, thread)| thread).collect())
}

fn read(path: &Path) -> Option<Thread> {
    let stat = fs::read_to_string(path.join("stat")).ok()?;
    let mut thread = of_stat(&stat)?;
    let waits_in = fs::read_to_string(path.join("wchan")).ok();
    // "0" stands for a thread that does not wait, or for a kernel that does not tell.
    thread.waits_in = waits_in.filter(|name| !name.is_empty() && name != "0");
    Some(thread)
}

/// Parses a file `stat`. The name is in parentheses, and may itself have parentheses and spaces.
fn of_stat(stat: &str) -> Option<Thread> {
    let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(begin + 1..end)?.to_owned();
    let fields: Vec<&str> = stat.get(end + 1..)?.split_whitespace().collect();
    // Behind the name: the state, and as 12th and 13th field user and system time.
    let ticks = |place: usize| fields.get(place)?.parse::<u64>().ok();
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    Some(Thread {
        name,
        state: (*fields.first()?).to_owned(),
        cpu_s: (ticks(11)? + ticks(12)?) as f64 / ticks_per_second as f64,
        waits_in: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_whatever_its_name() {
        let per_second = rustix::param::clock_ticks_per_second();
        let stat = format!(
            "7 (a) b (c) D 1 2 3 4 5 6 7 8 9 10 {per_second} {} 0 0",
            per_second * 2
        );
        let thread = of_stat(&stat).unwrap();
        assert_eq!((&*thread.name, &*thread.state), ("a) b (c", "D"));
        assert!((thread.cpu_s - 3.0).abs() < 1e-9);
        assert!(of_stat("7 (a").is_none() && of_stat("").is_none() && of_stat("7 (a) S 1").is_none());
    }

    #[test]
    fn this_thread_is_among_them() {
        let named = std::thread::Builder::new().name("looked-for".to_owned());
        let found = named.spawn(|| all().unwrap()).unwrap().join().unwrap();
        assert!(found.iter().any(|thread| thread.name == "looked-for"));
    }
}
