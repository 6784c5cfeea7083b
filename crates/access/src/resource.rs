//! Things that actions are done to.

use std::fmt;

/// Kind of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    Topic,
    Group,
    Queue,
    Exchange,
    TransactionalId,
    App,
    Sink,
    LiveTopic,
    Namespace,
    Cluster,
    User,
    Token,
}

impl Kind {
    pub const ALL: [Self; 12] = [
        Self::Topic,
        Self::Group,
        Self::Queue,
        Self::Exchange,
        Self::TransactionalId,
        Self::App,
        Self::Sink,
        Self::LiveTopic,
        Self::Namespace,
        Self::Cluster,
        Self::User,
        Self::Token,
    ];

    /// Returns its name in rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Group => "group",
            Self::Queue => "queue",
            Self::Exchange => "exchange",
            Self::TransactionalId => "transactional_id",
            Self::App => "app",
            Self::Sink => "sink",
            Self::LiveTopic => "live_topic",
            Self::Namespace => "namespace",
            Self::Cluster => "cluster",
            Self::User => "user",
            Self::Token => "token",
        }
    }

    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Kinds(u16);

impl Kinds {
    /// Things that lie in a namespace.
    pub const NAMESPACED: Self = Self::of(&[Kind::Queue, Kind::Exchange]);

    #[must_use]
    pub const fn of(kinds: &[Kind]) -> Self {
        let mut bits = 0;
        let mut rest = kinds;
        while let [first, behind @ ..] = rest {
            bits |= 1 << (*first as u8);
            rest = behind;
        }
        Self(bits)
    }

    #[must_use]
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & (1 << (kind as u8)) != 0
    }

    #[must_use]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }

    /// Returns the kind of a set of one.
    #[must_use]
    pub fn single(self) -> Option<Kind> {
        let mut kinds = self.iter();
        kinds.next().filter(|_| kinds.next().is_none())
    }

    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

impl From<Kind> for Kinds {
    fn from(kind: Kind) -> Self {
        Self::of(&[kind])
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Kind::word).collect();
        out.write_str(&words.join("+"))
    }
}

/// A thing, as a request names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resource<'a> {
    pub kind: Kind,
    /// Empty for kinds that lie in no namespace.
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> Resource<'a> {
    /// Name of the one cluster.
    pub const CLUSTER_NAME: &'static str = "cluster";
    pub const CLUSTER: Resource<'static> = Resource {
        kind: Kind::Cluster,
        namespace: "",
        name: Self::CLUSTER_NAME,
    };

    #[must_use]
    pub const fn new(kind: Kind, name: &'a str) -> Self {
        Self {
            kind,
            namespace: "",
            name,
        }
    }

    #[must_use]
    pub const fn topic(name: &'a str) -> Self {
        Self::new(Kind::Topic, name)
    }

    #[must_use]
    pub const fn group(name: &'a str) -> Self {
        Self::new(Kind::Group, name)
    }

    #[must_use]
    pub const fn queue(namespace: &'a str, name: &'a str) -> Self {
        let kind = Kind::Queue;
        Self {
            kind,
            namespace,
            name,
        }
    }

    #[must_use]
    pub const fn exchange(namespace: &'a str, name: &'a str) -> Self {
        let kind = Kind::Exchange;
        Self {
            kind,
            namespace,
            name,
        }
    }

    #[must_use]
    pub const fn namespace(name: &'a str) -> Self {
        Self::new(Kind::Namespace, name)
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {:?}", self.kind.word(), self.name)?;
        if !self.namespace.is_empty() {
            write!(out, " in namespace {:?}", self.namespace)?;
        }
        Ok(())
    }
}
