//! A way to PostgreSQL that a test can slow down: a socket that passes bytes on after a pause.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Name of PostgreSQL's socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// The way. Its threads end with the connections.
pub(crate) struct SlowWay {
    folder: PathBuf,
    pause_ms: Arc<AtomicU64>,
}

impl SlowWay {
    /// Opens a socket in `folder` that leads to the one in `to`.
    pub(crate) fn open(folder: &Path, to: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
        let pause_ms = Arc::new(AtomicU64::new(0));
        let (pause, to) = (Arc::clone(&pause_ms), to.join(SOCKET));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(near), Ok(far)) = (stream, UnixStream::connect(&to)) else {
                    return;
                };
                pass(
                    near.try_clone().unwrap(),
                    far.try_clone().unwrap(),
                    Arc::clone(&pause),
                );
                pass(far, near, Arc::clone(&pause));
            }
        });
        Self {
            folder: folder.to_owned(),
            pause_ms,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets the pause before each piece of bytes.
    pub(crate) fn set_pause(&self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap();
        self.pause_ms.store(ms, Ordering::Relaxed);
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream, pause_ms: Arc<AtomicU64>) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            thread::sleep(Duration::from_millis(pause_ms.load(Ordering::Relaxed)));
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
    });
}
