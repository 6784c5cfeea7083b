//! Objects in a bucket of an S3-compatible store.

use std::fmt;
use std::time::Duration;

use stafett_model::Lock;
use stafett_objects::RemoteError;
use stafett_objects::bucket::{Bucket, BucketSpec};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{Objects, ObjectsError};

/// Time for one request. A slower put is given up, and the bytes are put under another name.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most connections that are kept open without a request.
const IDLE_MAX: usize = 16;

/// Objects in a bucket. Each request under way has a connection of its own.
pub struct BucketObjects {
    spec: BucketSpec,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    idle: Lock<Vec<Bucket>>,
}

impl BucketObjects {
    /// Nothing is connected yet.
    pub fn new(spec: BucketSpec) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("cluster-objects")
            .enable_all()
            .build()?;
        Ok(Self {
            spec,
            runtime: Some(runtime),
            idle: Lock::default(),
        })
    }

    /// Does `work` on a connection.
    fn call<R: Send>(
        &self,
        work: impl AsyncFnOnce(&mut Bucket) -> Result<R, RemoteError> + Send,
    ) -> Result<R, ObjectsError> {
        if Handle::try_current().is_err() {
            return self.block_on(work);
        }
        // A thread of a runtime must not run another one.
        std::thread::scope(|scope| {
            let done = scope.spawn(|| self.block_on(work)).join();
            done.unwrap_or_else(|_| Err(ObjectsError::Refused("the call panicked".to_owned())))
        })
    }

    fn block_on<R>(
        &self,
        work: impl AsyncFnOnce(&mut Bucket) -> Result<R, RemoteError>,
    ) -> Result<R, ObjectsError> {
        let Some(runtime) = &self.runtime else {
            return Err(ObjectsError::Refused("the store was closed".to_owned()));
        };
        let idle = self.idle.lock().pop();
        let mut bucket = idle.unwrap_or_else(|| Bucket::with_patience(&self.spec, PATIENCE));
        let result = runtime
            .handle()
            .block_on(work(&mut bucket))
            .map_err(|error| match error {
                RemoteError::Retry(text) => ObjectsError::Unreachable(text),
                RemoteError::Stop(text) => ObjectsError::Refused(text),
            });
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(bucket);
        }
        result
    }
}

impl Objects for BucketObjects {
    fn prepare(&self) -> Result<(), ObjectsError> {
        if self.call(async |bucket: &mut Bucket| bucket.is_there().await)? {
            return Ok(());
        }
        Err(ObjectsError::Refused(format!(
            "there is no bucket {}",
            self.spec.bucket
        )))
    }

    fn put(&self, name: &str, body: &[u8]) -> Result<(), ObjectsError> {
        self.call(async |bucket: &mut Bucket| bucket.put(name, body).await)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        self.call(async |bucket: &mut Bucket| bucket.read(name).await)
    }

    fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        self.call(async |bucket: &mut Bucket| bucket.delete(name).await)
    }

    fn list(&self, behind: &str) -> Result<Vec<(String, u64)>, ObjectsError> {
        let prefix = &self.spec.prefix;
        let behind = (!behind.is_empty()).then(|| format!("{prefix}{behind}"));
        let page =
            self.call(async |bucket: &mut Bucket| bucket.list(prefix, behind.as_deref(), false, None).await)?;
        let objects = page.objects.into_iter();
        Ok(objects
            .filter_map(|(key, bytes)| Some((key.strip_prefix(prefix)?.to_owned(), bytes)))
            .collect())
    }
}

impl Drop for BucketObjects {
    fn drop(&mut self) {
        self.idle.get_mut().clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for BucketObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BucketObjects({})", self.spec.bucket)
    }
}
