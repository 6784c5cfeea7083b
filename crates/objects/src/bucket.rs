//! A bucket of an S3-compatible store: whole objects, some of them put only if absent.
//!
//! An answer that something exists already is not believed: the request before it may have succeeded without
//! an answer, and a conflict may be one with nothing. The object is read back and compared.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{ETAG, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use rusty_s3::actions::{CreateMultipartUpload, ListObjectsV2};
use rusty_s3::{Credentials, S3Action, UrlStyle};
use sha2::{Digest, Sha256};

use crate::RemoteError;
use crate::remote::{Address, Allowed, Answer, Link};
use crate::secret::Secret;

/// Validity of a signature.
const SIGNED_FOR: Duration = Duration::from_mins(15);
const PATIENCE: Duration = Duration::from_mins(1);
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a part; larger objects are put in several. S3 takes 10,000 of them, and none below 5 MiB.
const PART_BYTES: usize = 16 << 20;
const IF_NONE_MATCH: &str = "if-none-match";
const CHECKSUM: &str = "x-amz-checksum-sha256";
/// Code for an upload in parts that has ended, or never began.
const NO_UPLOAD: &str = "NoSuchUpload";
/// Codes of refused requests (4xx) that may succeed when they are sent again.
const PASSING: [&str; 5] = [
    "BadDigest",
    "IncompleteBody",
    NO_UPLOAD,
    "RequestTimeout",
    "XAmzContentSHA256Mismatch",
];

/// A bucket of an S3-compatible store, and a folder in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSpec {
    pub bucket: String,
    /// Begin of all keys; empty, or a path with a slash at its end.
    pub prefix: String,
    pub endpoint: String,
    pub region: String,
    /// `KEY:SECRET`, or `KEY:SECRET:TOKEN`. `None` is that of the environment.
    pub login: Option<Secret>,
    /// True if the bucket is part of the host's name, and not of the path.
    pub is_host_style: bool,
    /// PEM file of trusted authorities. `None` is those of the system.
    pub ca: Option<String>,
}

/// Names of a page of a list.
#[derive(Debug, Default)]
pub struct Page {
    /// Keys and sizes of objects, in the order of keys.
    pub objects: Vec<(String, u64)>,
    pub folders: Vec<String>,
    /// Token of the next page.
    pub next: Option<String>,
}

/// A client of a bucket: one connection, opened when it is needed.
pub struct Bucket {
    spec: BucketSpec,
    link: Option<Link>,
    patience: Duration,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bucket({})", self.spec.bucket)
    }
}

/// A bucket and its credentials, as they are now.
struct Signer {
    bucket: rusty_s3::Bucket,
    credentials: Credentials,
}

impl Signer {
    fn of(spec: &BucketSpec) -> Result<Self, RemoteError> {
        let stop = |why: String| RemoteError::Stop(why);
        let endpoint = &spec.endpoint;
        let url = endpoint
            .parse()
            .map_err(|why| stop(format!("endpoint {endpoint}: {why}")))?;
        let style = if spec.is_host_style {
            UrlStyle::VirtualHost
        } else {
            UrlStyle::Path
        };
        let bucket = rusty_s3::Bucket::new(url, style, spec.bucket.clone(), spec.region.clone());
        let bucket = bucket.map_err(|why| stop(format!("endpoint {endpoint}: {why}")))?;
        let credentials = match &spec.login {
            None => Credentials::from_env().ok_or_else(|| {
                stop("the environment has no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned())
            })?,
            Some(secret) => {
                let text = secret.resolve().map_err(|why| stop(format!("{secret}: {why}")))?;
                let mut parts = text.splitn(3, ':');
                match (parts.next(), parts.next(), parts.next()) {
                    (Some(key), Some(secret), None) => Credentials::new(key, secret),
                    (Some(key), Some(secret), Some(token)) => Credentials::new_with_token(key, secret, token),
                    _ => return Err(stop(format!("{secret} is not KEY:SECRET or KEY:SECRET:TOKEN"))),
                }
            }
        };
        Ok(Self { bucket, credentials })
    }
}

/// A request that is signed.
struct Signed {
    url: String,
    headers: HeaderMap,
}

/// Signs an action together with headers.
fn signed<'a>(mut action: impl S3Action<'a>, headers: &[(&'static str, String)]) -> Signed {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        action.headers_mut().insert(*name, value.clone());
        if let Ok(value) = HeaderValue::from_str(value) {
            map.insert(HeaderName::from_static(name), value);
        }
    }
    Signed {
        url: action.sign(SIGNED_FOR).to_string(),
        headers: map,
    }
}

/// Returns the text of an element of an answer in XML.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// Sorts an answer that is no success: by its status, and by the code of its body.
pub fn refused(what: &str, answer: &Answer) -> RemoteError {
    let body = String::from_utf8_lossy(&answer.body);
    let code = element(&body, "Code").unwrap_or_default();
    let message: String = element(&body, "Message")
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect();
    let text = format!("{what}: the store answered {}: {code} {message}", answer.status);
    let passes = answer.status.is_server_error() && answer.status != StatusCode::NOT_IMPLEMENTED
        || matches!(
            answer.status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS
        )
        || PASSING.contains(&code)
        // A success that is none: the body of a multipart upload's end.
        || answer.status.is_success();
    if passes {
        RemoteError::Retry(text)
    } else {
        RemoteError::Stop(text)
    }
}

fn checksum(bytes: &[u8]) -> (&'static str, String) {
    (CHECKSUM, STANDARD.encode(Sha256::digest(bytes)))
}

impl Bucket {
    pub fn new(spec: &BucketSpec) -> Self {
        Self::with_patience(spec, PATIENCE)
    }

    /// Makes a client that waits so long for an answer.
    pub fn with_patience(spec: &BucketSpec, patience: Duration) -> Self {
        Self {
            spec: spec.clone(),
            link: None,
            patience,
        }
    }

    pub fn spec(&self) -> &BucketSpec {
        &self.spec
    }

    /// Returns the key of a path.
    pub fn key(&self, path: &str) -> String {
        format!("{}{path}", self.spec.prefix)
    }

    async fn ask(&mut self, method: Method, signed: Signed, body: Bytes) -> Result<Answer, RemoteError> {
        let to = Address::parse(&signed.url)?;
        let Signed { headers, .. } = signed;
        if let Some(mut link) = Link::take(&mut self.link, &to) {
            let (headers, body) = (headers.clone(), body.clone());
            let asked = link.ask(
                method.clone(),
                &to,
                headers,
                body,
                self.patience,
                ANSWER_BYTES_MAX,
            );
            // The store may have closed it meanwhile. Every request may be sent twice.
            if let Ok(answer) = asked.await {
                self.link = link.is_open().then_some(link);
                return Ok(answer);
            }
        }
        let ca = self.spec.ca.as_deref();
        let mut link = Link::open(&to, &Allowed::stores(), ca, self.patience).await?;
        let answer = link
            .ask(method, &to, headers, body, self.patience, ANSWER_BYTES_MAX)
            .await?;
        if link.is_open() {
            self.link = Some(link);
        }
        Ok(answer)
    }

    /// Returns true if there is a bucket. It is never made: its settings are its owner's.
    pub async fn is_there(&mut self) -> Result<bool, RemoteError> {
        let signer = Signer::of(&self.spec)?;
        let request = signed(signer.bucket.head_bucket(Some(&signer.credentials)), &[]);
        let answer = self.ask(Method::HEAD, request, Bytes::new()).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            _ => Err(refused(&format!("the bucket {}", self.spec.bucket), &answer)),
        }
    }

    /// Lists a page of keys, or folders, below a prefix and behind a key.
    pub async fn list(
        &mut self,
        prefix: &str,
        behind: Option<&str>,
        folders: bool,
        token: Option<String>,
    ) -> Result<Page, RemoteError> {
        let signer = Signer::of(&self.spec)?;
        let mut action = signer.bucket.list_objects_v2(Some(&signer.credentials));
        action.with_prefix(prefix);
        if folders {
            action.with_delimiter("/");
        }
        if let Some(token) = token {
            action.with_continuation_token(token);
        } else if let Some(behind) = behind {
            action.with_start_after(behind);
        }
        let request = signed(action, &[]);
        let answer = self.ask(Method::GET, request, Bytes::new()).await?;
        if !answer.status.is_success() {
            return Err(refused(prefix, &answer));
        }
        let text = String::from_utf8_lossy(&answer.body);
        let page = ListObjectsV2::parse_response(&text)
            .map_err(|why| RemoteError::Retry(format!("the list of {prefix} cannot be read: {why}")))?;
        let objects = page.contents.into_iter();
        Ok(Page {
            objects: objects
                .map(|object| (object.key, object.size.unwrap_or(0)))
                .collect(),
            folders: page
                .common_prefixes
                .into_iter()
                .map(|folder| folder.prefix)
                .collect(),
            next: page.next_continuation_token,
        })
    }

    /// Returns the bytes of an object, if it is there.
    pub async fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, RemoteError> {
        let (signer, key) = (Signer::of(&self.spec)?, self.key(path));
        let request = signed(signer.bucket.get_object(Some(&signer.credentials), &key), &[]);
        let answer = self.ask(Method::GET, request, Bytes::new()).await?;
        match answer.status {
            status if status.is_success() => Ok(Some(answer.body.to_vec())),
            StatusCode::NOT_FOUND if !String::from_utf8_lossy(&answer.body).contains("NoSuchBucket") => {
                Ok(None)
            }
            StatusCode::NOT_FOUND => Err(RemoteError::Stop(format!(
                "there is no bucket {}",
                self.spec.bucket
            ))),
            _ => Err(refused(path, &answer)),
        }
    }

    /// Puts an object, in the place of an earlier one of its name.
    pub async fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), RemoteError> {
        if bytes.len() > PART_BYTES {
            return self.put_parts(path, bytes).await;
        }
        let (signer, key) = (Signer::of(&self.spec)?, self.key(path));
        let action = signer.bucket.put_object(Some(&signer.credentials), &key);
        let request = signed(action, &[checksum(bytes)]);
        let body = Bytes::copy_from_slice(bytes);
        let answer = self.ask(Method::PUT, request, body).await?;
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(refused(path, &answer))
        }
    }

    /// Puts an object unless there is one of its name.
    pub async fn put_new(&mut self, path: &str, bytes: &[u8]) -> Result<Answer, RemoteError> {
        let (signer, key) = (Signer::of(&self.spec)?, self.key(path));
        let action = signer.bucket.put_object(Some(&signer.credentials), &key);
        let request = signed(action, &[(IF_NONE_MATCH, "*".to_owned()), checksum(bytes)]);
        self.ask(Method::PUT, request, Bytes::copy_from_slice(bytes))
            .await
    }

    /// Puts an object, unless there is another one of its name. Returns false if there is.
    pub async fn put_if_absent(&mut self, path: &str, bytes: &[u8]) -> Result<bool, RemoteError> {
        let answer = self.put_new(path, bytes).await?;
        match answer.status {
            status if status.is_success() => Ok(true),
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => match self.read(path).await? {
                Some(there) => Ok(there == bytes),
                None => Err(refused(path, &answer)),
            },
            _ => Err(refused(path, &answer)),
        }
    }

    /// Deletes an object, if it is there.
    pub async fn delete(&mut self, path: &str) -> Result<(), RemoteError> {
        let (signer, key) = (Signer::of(&self.spec)?, self.key(path));
        let request = signed(signer.bucket.delete_object(Some(&signer.credentials), &key), &[]);
        let answer = self.ask(Method::DELETE, request, Bytes::new()).await?;
        if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        Err(refused(path, &answer))
    }

    /// Puts a large object in parts. Parts of an upload that fails are removed, if the store can be reached.
    async fn put_parts(&mut self, path: &str, bytes: &[u8]) -> Result<(), RemoteError> {
        let (signer, key) = (Signer::of(&self.spec)?, self.key(path));
        let create = signer
            .bucket
            .create_multipart_upload(Some(&signer.credentials), &key);
        let answer = self.ask(Method::POST, signed(create, &[]), Bytes::new()).await?;
        if !answer.status.is_success() {
            return Err(refused(path, &answer));
        }
        let text = String::from_utf8_lossy(&answer.body);
        let upload = CreateMultipartUpload::parse_response(&text)
            .map_err(|why| RemoteError::Retry(format!("{path}: the store's answer cannot be read: {why}")))?;
        let put = self.put_each(path, bytes, upload.upload_id()).await;
        if put.is_err() {
            let (signer, id) = (Signer::of(&self.spec)?, upload.upload_id());
            let abort = signer
                .bucket
                .abort_multipart_upload(Some(&signer.credentials), &key, id);
            // Else the parts stay until the bucket's own settings remove them.
            let _ = self.ask(Method::DELETE, signed(abort, &[]), Bytes::new()).await;
        }
        put
    }

    async fn put_each(&mut self, path: &str, bytes: &[u8], id: &str) -> Result<(), RemoteError> {
        let key = self.key(path);
        let mut tags = Vec::new();
        for (number, part) in (1..=u16::MAX).zip(bytes.chunks(PART_BYTES)) {
            let signer = Signer::of(&self.spec)?;
            let upload = signer
                .bucket
                .upload_part(Some(&signer.credentials), &key, number, id);
            let body = Bytes::copy_from_slice(part);
            let answer = self.ask(Method::PUT, signed(upload, &[]), body).await?;
            let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
            match tag {
                Some(tag) if answer.status.is_success() => tags.push(tag.to_owned()),
                _ => return Err(refused(path, &answer)),
            }
        }
        let signer = Signer::of(&self.spec)?;
        let tags = tags.iter().map(String::as_str);
        let complete = signer
            .bucket
            .complete_multipart_upload(Some(&signer.credentials), &key, id, tags);
        let body = complete.clone().body();
        let answer = self.ask(Method::POST, signed(complete, &[]), body.into()).await?;
        // It answers 200 before it is done, and may say in the body that it failed.
        let text = String::from_utf8_lossy(&answer.body);
        if answer.status.is_success() && !text.contains("<Error>") {
            return Ok(());
        }
        // An answer that was lost: the upload has ended.
        if element(&text, "Code") == Some(NO_UPLOAD) && self.read(path).await?.as_deref() == Some(bytes) {
            return Ok(());
        }
        Err(refused(path, &answer))
    }
}
