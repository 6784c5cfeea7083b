//! Places of objects: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME&style=host&ca=PATH`, or `file:///FOLDER`.

use std::path::PathBuf;

use stafett_objects::bucket::BucketSpec;
use stafett_objects::secret::Secret;

/// The place of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Bucket(BucketSpec),
    Folder(PathBuf),
}

/// Reason why a text is no location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    #[error("it is neither s3://BUCKET/PREFIX nor file:///FOLDER")]
    Malformed,
    #[error("a bucket and its prefix are letters, digits, dots, dashes, underscores and slashes")]
    Letters,
    #[error("{0} is not known: endpoint, region, style and ca are")]
    Unknown(String),
    #[error("style is path or host")]
    Style,
    #[error("it has a login: that is a setting of its own, cluster.objects_login")]
    Login,
}

impl Location {
    /// Reads a location.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if let Some(path) = text.strip_prefix("file://") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Folder(path))
            } else {
                Err(LocationError::Malformed)
            };
        }
        let rest = text.strip_prefix("s3://").ok_or(LocationError::Malformed)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(LocationError::Malformed);
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !path.chars().all(is_plain) {
            return Err(LocationError::Letters);
        }
        let prefix = prefix.trim_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        let mut spec = BucketSpec {
            bucket: bucket.to_owned(),
            prefix: format!("{prefix}{slash}"),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            login: None,
            is_host_style: false,
            ca: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("endpoint", value) => value.clone_into(&mut spec.endpoint),
                ("region", value) => value.clone_into(&mut spec.region),
                ("style", "host") => spec.is_host_style = true,
                ("style", "path") => spec.is_host_style = false,
                ("style", _) => return Err(LocationError::Style),
                ("ca", value) => spec.ca = Some(value.to_owned()),
                (name, _) => return Err(LocationError::Unknown(name.to_owned())),
            }
        }
        if spec.endpoint.contains('@') {
            return Err(LocationError::Login);
        }
        if spec.endpoint.is_empty() {
            spec.endpoint = format!("https://s3.{}.amazonaws.com", spec.region);
        }
        Ok(Self::Bucket(spec))
    }

    /// Returns the location with a login, `env:NAME` or `file:PATH` of a text `KEY:SECRET` or
    /// `KEY:SECRET:TOKEN`.
    #[must_use]
    pub fn with_login(mut self, login: Option<Secret>) -> Self {
        if let Self::Bucket(spec) = &mut self {
            spec.login = login;
        }
        self
    }

    /// Returns the place of one cell.
    #[must_use]
    pub fn of_cell(mut self, cell: i32) -> Self {
        match &mut self {
            Self::Bucket(spec) => spec.prefix = format!("{}cell-{cell}/", spec.prefix),
            Self::Folder(path) => path.push(format!("cell-{cell}")),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_in_parts() {
        let location = Location::parse("s3://b/a/c/?endpoint=http://127.0.0.1:9000&region=x&style=host");
        let Ok(Location::Bucket(spec)) = location.map(|location| location.of_cell(3)) else {
            panic!("it is a bucket");
        };
        assert_eq!(
            (&*spec.bucket, &*spec.prefix, &*spec.region),
            ("b", "a/c/cell-3/", "x")
        );
        assert_eq!(spec.endpoint, "http://127.0.0.1:9000");
        assert!(spec.is_host_style);
        let folder = Location::parse("file:///tmp/x").unwrap().of_cell(0);
        assert_eq!(folder, Location::Folder("/tmp/x/cell-0".into()));
        let Ok(Location::Bucket(spec)) = Location::parse("s3://b") else {
            panic!("it is a bucket");
        };
        assert_eq!(
            (&*spec.prefix, &*spec.endpoint),
            ("", "https://s3.us-east-1.amazonaws.com")
        );
    }

    #[test]
    fn malformed_locations_are_refused() {
        for text in [
            "",
            "x",
            "s3://",
            "http://x/y",
            "file://x",
            "s3://a b",
            "s3://b?x=1",
            "s3://b?style=x",
        ] {
            assert!(Location::parse(text).is_err(), "{text}");
        }
        let login = Location::parse("s3://b?endpoint=http://me:secret@x").unwrap_err();
        assert_eq!(login, LocationError::Login);
    }
}
