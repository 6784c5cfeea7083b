//! Work that takes milliseconds of a processor, on a thread that gives way to others: logins by the thousand
//! leave the processors to clients that have logged in.

use std::io;
use std::thread;

/// Nice value of the threads. The system gives them about a tenth of a busy processor.
const NICE: i32 = 10;

/// Does work on a thread of low priority, and waits for it.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let working = thread::Builder::new()
            .name("password".to_owned())
            .spawn_scoped(scope, || {
                // A refusal leaves the priority as it is. Linux has one for each thread.
                #[cfg(target_os = "linux")]
                drop(rustix::process::setpriority_process(None, NICE));
                work()
            })?;
        working
            .join()
            .map_err(|_| io::Error::other("the thread has panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn work_gives_way_and_its_caller_does_not() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        assert_eq!(run(priority).unwrap(), before.max(NICE));
        assert_eq!(priority(), before);
    }
}
