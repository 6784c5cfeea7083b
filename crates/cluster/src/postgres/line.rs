//! One connection to PostgreSQL for calls that block: it is opened when it is needed first, and again after
//! an error.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use stafett_model::Lock;
use stafett_trust::PostgresTls;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio_postgres::error::DbError;
use tokio_postgres::{Client, Config, Error, NoTls, Statement};
use tokio_util::sync::CancellationToken;

use crate::database::DatabaseError;

/// Settings of each connection. Commits are never acknowledged before they are durable. An upload within a
/// transaction may pause for as long as the time-out.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '30s'; SET client_min_messages = 'error'; \
     SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') IN ('off', 'local')";

/// A server, and how it is reached.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    /// `None`: bytes are not encrypted.
    pub(super) tls: Option<PostgresTls>,
}

/// A connection. One call at a time is under way.
pub(super) struct Line {
    target: Target,
    /// Time for one call, its connection included.
    patience: Duration,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    connection: Lock<Option<Connection>>,
    hung_up: CancellationToken,
}

/// An open connection and its prepared statements.
pub(super) struct Connection {
    pub(super) client: Client,
    statements: HashMap<&'static str, Statement>,
    /// Ends with this.
    _task: JoinSet<()>,
}

impl Connection {
    async fn open(target: &Target) -> Result<Self, Error> {
        let mut task = JoinSet::new();
        let client = if let Some(tls) = &target.tls {
            let (client, connection) = target.config.connect(tls.clone()).await?;
            task.spawn(async move {
                // Its error is that of the call that fails.
                let _ = connection.await;
            });
            client
        } else {
            let (client, connection) = target.config.connect(NoTls).await?;
            task.spawn(async move {
                let _ = connection.await;
            });
            client
        };
        client.batch_execute(SESSION).await?;
        Ok(Self {
            client,
            statements: HashMap::new(),
            _task: task,
        })
    }

    /// Returns a prepared statement.
    pub(super) async fn prepared(&mut self, text: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(text) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(text).await?;
        self.statements.insert(text, statement.clone());
        Ok(statement)
    }
}

impl Line {
    pub(super) fn new(target: &Target, patience: Duration) -> std::io::Result<Self> {
        let mut target = target.clone();
        target.config.connect_timeout(patience);
        Ok(Self {
            target,
            patience,
            runtime: Some(Builder::new_current_thread().enable_all().build()?),
            connection: Lock::default(),
            hung_up: CancellationToken::new(),
        })
    }

    /// Ends a call under way, and all that come.
    pub(super) fn hang_up(&self) {
        self.hung_up.cancel();
    }

    /// Does `work` on the connection. After an error the connection is dropped, and the outcome is unknown.
    pub(super) fn call<R: Send>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<R, Error> + Send,
    ) -> Result<R, DatabaseError> {
        if Handle::try_current().is_err() {
            return self.block_on(work);
        }
        // A thread of a runtime must not run another one.
        std::thread::scope(|scope| {
            let done = scope.spawn(|| self.block_on(work)).join();
            done.unwrap_or_else(|_| Err(DatabaseError::Refused("the call panicked".to_owned())))
        })
    }

    fn block_on<R>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<R, Error>,
    ) -> Result<R, DatabaseError> {
        let Some(runtime) = &self.runtime else {
            return Err(DatabaseError::Refused("the connection was dropped".to_owned()));
        };
        let mut slot = self.connection.lock();
        let taken = slot.take();
        let called = runtime.block_on(async {
            let called = async {
                let mut connection = match taken {
                    Some(connection) if !connection.client.is_closed() => connection,
                    Some(_) | None => Connection::open(&self.target).await?,
                };
                let result = work(&mut connection).await?;
                Ok((connection, result))
            };
            let called = tokio::time::timeout(self.patience, called);
            self.hung_up.run_until_cancelled(called).await
        });
        let Some(called) = called else {
            return Err(DatabaseError::Unreachable("this node hung up".to_owned()));
        };
        match called {
            Ok(Ok((connection, result))) => {
                *slot = Some(connection);
                Ok(result)
            }
            Ok(Err(error)) => Err(read(&error)),
            Err(_) => Err(DatabaseError::Unreachable(format!(
                "no answer for {:?}",
                self.patience
            ))),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        *self.connection.get_mut() = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration has the password.
        f.debug_struct("Line")
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// Classes of PostgreSQL's error codes after which another attempt may succeed: connections, states of
/// transactions (a time-out, or a server that is read-only during a fail-over), rollbacks, resources, other
/// states of objects, operators, the system.
const PASSING: [&str; 7] = ["08", "25", "40", "53", "55", "57", "58"];

fn read(error: &Error) -> DatabaseError {
    let Some(reply) = error.as_db_error() else {
        return DatabaseError::Unreachable(causes(error));
    };
    if passes(reply.code().code()) {
        DatabaseError::Unreachable(said(reply))
    } else {
        DatabaseError::Refused(said(reply))
    }
}

/// Returns true if another attempt may succeed after an error of a code.
fn passes(code: &str) -> bool {
    PASSING.iter().any(|class| code.starts_with(class))
}

fn said(reply: &DbError) -> String {
    format!("{} ({})", reply.message(), reply.code().code())
}

/// Returns an error with its causes, in one line.
fn causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn time_outs_and_a_read_only_server_pass() {
        for code in ["25P03", "25006", "57P01", "40001"] {
            assert!(passes(code), "{code}");
        }
        for code in ["42P01", "28P01"] {
            assert!(!passes(code), "{code}");
        }
    }
}
