//! Manifests and files of a sink in a bucket: manifests are put only if absent.

use hyper::StatusCode;
use stafett_objects::bucket::{self, BucketSpec, refused};

use super::manifest::{self, Bounds};
use crate::target::{Place, TargetError};

/// A bucket, and a folder in it.
pub(crate) struct Bucket {
    objects: bucket::Bucket,
    /// True once the store is known to refuse a second object of one name.
    is_checked: bool,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.objects.fmt(f)
    }
}

impl Bucket {
    pub(super) fn new(spec: &BucketSpec) -> Self {
        Self {
            objects: bucket::Bucket::new(spec),
            is_checked: false,
        }
    }

    /// Says if the bucket is missing. It is never made: its settings are its owner's.
    pub(super) async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        let name = &self.objects.spec().bucket.clone();
        match self.objects.is_there().await? {
            true => Ok(Vec::new()),
            false if make => Err(TargetError::Stop(format!("there is no bucket {name}"))),
            false => Ok(vec![format!("the bucket {name}")]),
        }
    }

    /// Makes sure that the store refuses a second object of one name: else two writers could both commit.
    pub(super) async fn check(&mut self, writer: &str) -> Result<(), TargetError> {
        if self.is_checked {
            return Ok(());
        }
        let path = format!("manifest/check-{writer}");
        let first = self.objects.put_new(&path, b"1").await?;
        let second = self.objects.put_new(&path, b"2").await?;
        // A store that keeps it does no harm.
        let _ = self.objects.delete(&path).await;
        if second.status.is_success() {
            let why = "the store puts an object that is there already (If-None-Match is not heeded): \
                       two writers of a partition could not be told apart";
            return Err(TargetError::Stop(why.to_owned()));
        }
        // The first one may have been sent twice: it is refused then as well.
        let is_there = first.status.is_success() || first.status == StatusCode::PRECONDITION_FAILED;
        match (is_there, second.status) {
            (true, StatusCode::PRECONDITION_FAILED) => {
                self.is_checked = true;
                Ok(())
            }
            (true, _) => Err(refused(&path, &second).into()),
            (false, _) => Err(refused(&path, &first).into()),
        }
    }

    /// Returns the highest number of a manifest. The bounds of the batch that was begun last tell about where
    /// it is, so that not all of them are listed.
    pub(super) async fn newest(&mut self, place: &Place) -> Result<Option<u64>, TargetError> {
        let bounds = self.read(&manifest::pending_path(place)).await?;
        let bounds = bounds.and_then(|bytes| Bounds::parse(&bytes));
        let known = bounds.and_then(|bounds| bounds.number?.checked_sub(2));
        if let Some(known) = known {
            let newer = self.numbers(place, Some(known)).await?;
            if newer.is_some() {
                return Ok(newer);
            }
        }
        self.numbers(place, None).await
    }

    /// Returns the highest number of a manifest behind another one.
    async fn numbers(&mut self, place: &Place, behind: Option<u64>) -> Result<Option<u64>, TargetError> {
        let folder = self
            .objects
            .key(&format!("manifest/{}/", manifest::folder(place)));
        let behind = behind.map(|number| self.objects.key(&manifest::path(place, number)));
        let (keys, _) = self.list(&folder, behind, false).await?;
        let number = |key: &String| key.strip_prefix(&folder)?.strip_suffix(".json")?.parse().ok();
        Ok(keys.iter().filter_map(number).max())
    }

    /// Returns the places that have manifests.
    pub(super) async fn places(&mut self) -> Result<Vec<Place>, TargetError> {
        let root = self.objects.key("manifest/");
        let (_, topics) = self.list(&root, None, true).await?;
        let mut places = Vec::new();
        for folder in topics {
            let topic = folder
                .strip_prefix(&root)
                .map(|topic| topic.trim_end_matches('/'));
            let (_, partitions) = self.list(&folder, None, true).await?;
            let number = |partition: &String| {
                let number = partition.strip_prefix(&folder)?.trim_end_matches('/');
                number.parse().ok()
            };
            places.extend(partitions.iter().filter_map(number).map(|partition| Place {
                topic: topic.unwrap_or_default().to_owned(),
                partition,
            }));
        }
        places.sort();
        Ok(places)
    }

    /// Lists keys, or folders, below a prefix.
    async fn list(
        &mut self,
        prefix: &str,
        behind: Option<String>,
        folders: bool,
    ) -> Result<(Vec<String>, Vec<String>), TargetError> {
        let (mut keys, mut found) = (Vec::new(), Vec::new());
        let mut token: Option<String> = None;
        loop {
            let page = self
                .objects
                .list(prefix, behind.as_deref(), folders, token)
                .await?;
            keys.extend(page.objects.into_iter().map(|(key, _)| key));
            found.extend(page.folders);
            token = page.next;
            if token.is_none() {
                return Ok((keys, found));
            }
        }
    }

    /// Returns the bytes of an object, if it is there.
    pub(super) async fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, TargetError> {
        Ok(self.objects.read(path).await?)
    }

    /// Puts an object, in the place of an earlier one of its name.
    pub(super) async fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), TargetError> {
        Ok(self.objects.put(path, bytes).await?)
    }

    /// Puts an object, unless there is another one of its name. Returns false if there is.
    pub(super) async fn put_if_absent(&mut self, path: &str, bytes: &[u8]) -> Result<bool, TargetError> {
        Ok(self.objects.put_if_absent(path, bytes).await?)
    }
}
