//! Rows of the files that count, read back.

use super::Files;
use super::manifest::hex_hash;
use super::storage::computed;
use crate::rows::Rows;
use crate::target::TargetError;

/// A file whose rows count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counting {
    path: String,
    sha256: String,
    writer: String,
}

impl Files {
    /// Returns the files whose rows count, partition by partition in the order of their manifests.
    pub(crate) async fn counting(&mut self) -> Result<Vec<Counting>, TargetError> {
        let mut all = Vec::new();
        for place in self.storage.places().await? {
            let mut number = self.storage.newest(&place).await?.unwrap_or(0);
            let mut files = Vec::new();
            while number > 0 {
                let (manifest, _) = self.manifest(&place, number).await?;
                // Behind a replay, the manifests that it replaces do not count.
                number = manifest.replaces.unwrap_or(number).min(number).saturating_sub(1);
                let writer = manifest.writer;
                files.extend(manifest.files.into_iter().rev().map(|file| Counting {
                    path: file.path,
                    sha256: file.sha256,
                    writer: writer.clone(),
                }));
            }
            all.extend(files.into_iter().rev());
        }
        Ok(all)
    }

    /// Reads the rows of a file, which has to be as its manifest says.
    pub(crate) async fn rows_of(&mut self, file: &Counting) -> Result<Rows, TargetError> {
        let Counting { path, sha256, writer } = file;
        let mut bytes = self.storage.read(path).await?;
        if bytes.is_none() {
            // A process was killed before it gave the file its name.
            bytes = self.storage.read(&format!("{path}.{writer}.part")).await?;
        }
        let bytes =
            bytes.ok_or_else(|| TargetError::Stop(format!("{path}: a manifest names it, and it is gone")))?;
        if hex_hash(&bytes) != *sha256 {
            let why = format!("{path} has other bytes than its manifest says");
            return Err(TargetError::Stop(why));
        }
        let rows = computed(|| self.encoder.decode(bytes));
        rows.map_err(|why| TargetError::Stop(format!("{path}: {why}")))
    }
}
