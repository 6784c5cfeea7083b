//! A connection to a server of PostgreSQL.

use std::time::Duration;

use stafett_trust::PostgresTls;
use tokio::task::JoinSet;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::errors::stopped;
use crate::secret::Secret;
use crate::target::TargetError;

/// Time for a connection, for each address of the server.
const CONNECT: Duration = Duration::from_secs(10);
/// Silence of the server's system after which a connection ends. Statements may take longer.
const SILENCE: Duration = Duration::from_secs(30);

/// Connects to an address. The connection ends with the task that is returned beside its client.
pub(crate) async fn connect(url: &Secret, ca: Option<&str>) -> Result<(Client, JoinSet<()>), TargetError> {
    let address = url
        .resolve()
        .map_err(|why| TargetError::Stop(format!("{url}: {why}")))?;
    let mut config: Config = address.parse().map_err(|_| {
        TargetError::Stop(format!(
            "{url} is no address such as postgres://USER@HOST/DATABASE"
        ))
    })?;
    notice_silence(&mut config);
    let mut task = JoinSet::new();
    let client = if config.get_ssl_mode() == SslMode::Require {
        let connector = stafett_trust::connector(ca).map_err(TargetError::Stop)?;
        let (client, connection) = config
            .connect(PostgresTls(connector))
            .await
            .map_err(|why| stopped(&why))?;
        task.spawn(async move {
            // Its error is that of the request that fails.
            let _ = connection.await;
        });
        client
    } else {
        let (client, connection) = config.connect(NoTls).await.map_err(|why| stopped(&why))?;
        task.spawn(async move {
            let _ = connection.await;
        });
        client
    };
    Ok((client, task))
}

/// Has a connection end whose server is gone without a word, unless the address says otherwise.
fn notice_silence(config: &mut Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENCE);
    }
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(SILENCE / 2);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(SILENCE / 6);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_noticed_unless_the_address_says_otherwise() {
        let mut config: Config = "postgres://u@h/d".parse().unwrap();
        notice_silence(&mut config);
        assert_eq!(config.get_connect_timeout(), Some(&CONNECT));
        assert_eq!(config.get_tcp_user_timeout(), Some(&SILENCE));
        assert_eq!(config.get_keepalives_idle(), SILENCE / 2);
        assert_eq!(config.get_keepalives_interval(), Some(SILENCE / 6));
        let own = "connect_timeout=2&tcp_user_timeout=3&keepalives_idle=4&keepalives_interval=5";
        let mut config: Config = format!("postgres://u@h/d?{own}").parse().unwrap();
        notice_silence(&mut config);
        let seconds = Duration::from_secs;
        assert_eq!(config.get_connect_timeout(), Some(&seconds(2)));
        assert_eq!(config.get_tcp_user_timeout(), Some(&seconds(3)));
        assert_eq!(config.get_keepalives_idle(), seconds(4));
        assert_eq!(config.get_keepalives_interval(), Some(seconds(5)));
    }
}
