//! Connections that readers share: one each as long as there are few of them, and some dozens of readers on
//! each beyond that.
//!
//! A broker answers the requests of a connection in order, so a reader of a shared one must not wait at the
//! broker.

use std::sync::{Arc, Weak};

use stafett_model::Lock;

use crate::client::Client;

/// Members up to which each reader has one of its own.
const OWN_MAX: usize = 64;
/// Readers of a member, beyond that.
const READERS: usize = 32;

/// Members that are in use.
#[derive(Debug, Default)]
pub(crate) struct Pool(Lock<Vec<Weak<Client>>>);

/// A client with connections that other readers may use as well. They close with the last of them.
#[derive(Debug)]
pub struct PooledClient(Arc<Client>);

impl PooledClient {
    pub fn client(&self) -> &Client {
        &self.0
    }

    /// True while requests of others may be behind one that waits.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Pool {
    /// Returns the member with the fewest readers, or the one that `open` makes.
    pub(crate) fn take(&self, open: impl FnOnce() -> Client) -> PooledClient {
        let mut members = self.0.lock();
        members.retain(|member| member.strong_count() > 0);
        let room = if members.len() < OWN_MAX { 1 } else { READERS };
        let free = members.iter().filter(|member| member.strong_count() < room);
        let free = free.min_by_key(|member| member.strong_count());
        if let Some(member) = free.and_then(Weak::upgrade) {
            return PooledClient(member);
        }
        let opened = Arc::new(open());
        members.push(Arc::downgrade(&opened));
        drop(members);
        PooledClient(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn ten_thousand_readers_share_some_hundred_connections() {
        let pool = Pool::default();
        let take = || pool.take(|| Client::unconnected(&[], Options::default()));
        let mut readers: Vec<_> = (0..OWN_MAX).map(|_| take()).collect();
        assert!(readers.iter().all(|reader| !reader.is_shared()));
        readers.extend((OWN_MAX..10_000).map(|_| take()));
        assert_eq!(pool.0.lock().len(), 10_000_usize.div_ceil(READERS));
        assert!(readers.iter().all(PooledClient::is_shared));
        readers.truncate(1);
        assert!(!readers.iter().any(PooledClient::is_shared));
        let another = take();
        assert!(!another.is_shared(), "there are few again");
        assert_eq!(pool.0.lock().len(), 2);
    }
}
