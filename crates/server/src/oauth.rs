//! Keys of an authorization server: out of a file, or from a URL that is asked again and again.
//!
//! With a URL, the broker starts and serves without the keys. They are fetched at the start, every
//! `oauth.keys_interval_ms`, and when a token names an unknown key. Keys that cannot be fetched or used
//! change nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use axum::body::{Body, to_bytes};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use stafett_broker::{AccessControl, BearerSettings};
use stafett_net::EVENTS;
use stafett_net::tls::certificates::certificates;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::config::Settings;

/// Longest time of a fetch.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Time after a failed fetch until the next one.
const RETRY: Duration = Duration::from_secs(10);
/// Bytes of the largest set of keys.
const KEYS_BYTES_MAX: usize = 1 << 20;
/// Authorities of the system, the first file that is there.
const SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Keys that are fetched from a URL.
#[derive(Debug, Clone)]
struct Source {
    url: Uri,
    authorities: Option<PathBuf>,
    every: Duration,
    /// Without the keys.
    bearer: BearerSettings,
}

/// The keys, and where they come from.
#[derive(Debug)]
pub(crate) struct Keys {
    source: watch::Sender<Option<Source>>,
    failures: Counter,
}

impl Keys {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let failures = Counter::default();
        registry.register(
            "oauth_key_failures",
            "Fetches of the keys of the authorization server that failed",
            failures.clone(),
        );
        let (source, _) = watch::channel(None);
        Self { source, failures }
    }

    /// Takes the tokens of the authorization server in `settings`, if there is one. Keys in a file are read
    /// at once.
    pub(crate) fn change(&self, access: &AccessControl, settings: &Settings) -> anyhow::Result<()> {
        let oauth = &settings.oauth;
        let mut bearer = BearerSettings {
            keys: Vec::new(),
            issuer: oauth.issuer.clone(),
            audience: oauth.audience.clone(),
            user_claim: oauth.user_claim.clone(),
        };
        let Some(place) = &oauth.keys else {
            self.source.send_replace(None);
            return Ok(access.set_bearer(None)?);
        };
        if let Some(url) = url(place)? {
            bearer.check()?;
            self.source.send_replace(Some(Source {
                url,
                authorities: oauth.keys_ca.clone(),
                every: oauth.keys_interval_ms,
                bearer,
            }));
            return Ok(());
        }
        bearer.keys = std::fs::read(place).with_context(|| format!("{} cannot be read", place.display()))?;
        let set = access.set_bearer(Some(&bearer));
        set.with_context(|| format!("{} cannot be used", place.display()))?;
        self.source.send_replace(None);
        Ok(())
    }

    /// Fetches the keys as long as they come from a URL. Does not return.
    pub(crate) async fn follow(&self, access: &AccessControl) {
        let mut sources = self.source.subscribe();
        loop {
            let source = sources.borrow_and_update().clone();
            let Some(source) = source else {
                if sources.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                continue;
            };
            let mut wishes = access.wishes_for_keys();
            loop {
                let pause = if self.fetch(access, &source).await {
                    source.every
                } else {
                    RETRY
                };
                tokio::select! {
                    _ = sources.changed() => break,
                    _ = wishes.changed() => {}
                    () = sleep(pause) => {}
                }
            }
        }
    }

    /// Fetches the keys once. False if they stay as they were.
    async fn fetch(&self, access: &AccessControl, source: &Source) -> bool {
        let fetched = timeout(FETCH_MAX, fetch(source)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(anyhow!("it gave no answer in {FETCH_MAX:?}")));
        let set = fetched.and_then(|keys| {
            let bearer = BearerSettings {
                keys,
                ..source.bearer.clone()
            };
            Ok(access.set_bearer(Some(&bearer))?)
        });
        if let Err(error) = &set {
            self.failures.inc();
            tracing::warn!(target: EVENTS, kind = "node.keys_failed", name = %source.url, error = format!("{error:#}"),
                "the keys of the authorization server stay as they were");
        }
        set.is_ok()
    }
}

/// Returns the URL that stands in place of a file. `None` for a file.
fn url(place: &Path) -> anyhow::Result<Option<Uri>> {
    let text = place.to_string_lossy();
    if !text.starts_with("http://") && !text.starts_with("https://") {
        return Ok(None);
    }
    let url: Uri = text.parse().with_context(|| format!("{text} is no URL"))?;
    if url.host().is_none_or(str::is_empty) || url.authority().is_some_and(|it| it.as_str().contains('@')) {
        bail!("{text} is no URL of a host");
    }
    Ok(Some(url))
}

async fn fetch(source: &Source) -> anyhow::Result<Vec<u8>> {
    let url = &source.url;
    let host = url.host().unwrap_or_default();
    let is_encrypted = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port))
        .await
        .context("it does not answer")?;
    if !is_encrypted {
        return exchange(stream, url).await;
    }
    let authorities = source.authorities.clone();
    let config = tokio::task::spawn_blocking(move || trusted(authorities)).await??;
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    exchange(stream.context("there is no TLS with it")?, url).await
}

fn trusted(authorities: Option<PathBuf>) -> anyhow::Result<ClientConfig> {
    let system = || SYSTEM.iter().map(PathBuf::from).find(|file| file.exists());
    let file = authorities.or_else(system);
    let file = file.context("oauth.keys_ca does not say which authorities are trusted")?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&file)?);
    Ok(ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth())
}

async fn exchange<S>(stream: S, url: &Uri) -> anyhow::Result<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let target = url.path_and_query().map_or("/", |target| target.as_str());
    let host = url.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(target)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .body(String::new())?;
    let asking = async {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            bail!("it answers with {}", response.status());
        }
        let body = to_bytes(Body::new(response.into_body()), KEYS_BYTES_MAX).await;
        body.with_context(|| format!("its answer is cut, or longer than {KEYS_BYTES_MAX} bytes"))
    };
    tokio::pin!(asking, connection);
    let body = tokio::select! {
        body = &mut asking => body?,
        ended = &mut connection => {
            ended?;
            asking.await?
        }
    };
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_stands_in_place_of_a_file() {
        let of = |text: &str| url(Path::new(text));
        assert_eq!(of("keys.json").unwrap(), None);
        assert_eq!(of("/etc/https/keys").unwrap(), None);
        let url = of("https://login.example:8443/keys?x=1").unwrap().unwrap();
        assert_eq!((url.host(), url.port_u16()), (Some("login.example"), Some(8443)));
        for bad in ["https://", "http://user:secret@host/keys", "https://a b"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
