//! Actions, and sets of them.

use std::fmt;

/// Kind of a use of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Action {
    /// Reading content: records, messages, offsets of groups.
    Read,
    /// Adding content.
    Write,
    Create,
    Delete,
    /// Changing a definition.
    Alter,
    /// Seeing that a thing exists, its definition and its counts; no content.
    Describe,
    DescribeSettings,
    AlterSettings,
    /// Actions of brokers among themselves, and of operators on the node.
    Operate,
    WriteIdempotent,
    CreateTokens,
    DescribeTokens,
    /// Transactions in two phases.
    Prepare,
}

impl Action {
    pub const ALL: [Self; 13] = [
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Delete,
        Self::Alter,
        Self::Describe,
        Self::DescribeSettings,
        Self::AlterSettings,
        Self::Operate,
        Self::WriteIdempotent,
        Self::CreateTokens,
        Self::DescribeTokens,
        Self::Prepare,
    ];

    /// Returns its name in rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Alter => "alter",
            Self::Describe => "describe",
            Self::DescribeSettings => "describe_settings",
            Self::AlterSettings => "alter_settings",
            Self::Operate => "operate",
            Self::WriteIdempotent => "write_idempotent",
            Self::CreateTokens => "create_tokens",
            Self::DescribeTokens => "describe_tokens",
            Self::Prepare => "prepare",
        }
    }

    /// Returns the actions whose permission includes this one.
    const fn implied_by(self) -> Actions {
        match self {
            Self::Describe => {
                Actions::of(&[Self::Describe, Self::Read, Self::Write, Self::Delete, Self::Alter])
            }
            Self::DescribeSettings => Actions::of(&[Self::DescribeSettings, Self::AlterSettings]),
            Self::Read
            | Self::Write
            | Self::Create
            | Self::Delete
            | Self::Alter
            | Self::AlterSettings
            | Self::Operate
            | Self::WriteIdempotent
            | Self::CreateTokens
            | Self::DescribeTokens
            | Self::Prepare => Actions::of(&[self]),
        }
    }
}

/// A set of actions. All actions together, known ones and later ones, are an element of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Actions(u16);

/// Word for all actions.
const ALL: &str = "all";

impl Actions {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(1 << 15);
    /// Making, changing and deleting things.
    pub const DEFINE: Self = Self::of(&[
        Action::Create,
        Action::Delete,
        Action::Alter,
        Action::AlterSettings,
    ]);

    #[must_use]
    pub const fn of(actions: &[Action]) -> Self {
        let mut bits = 0;
        let mut rest = actions;
        while let [first, behind @ ..] = rest {
            bits |= 1 << (*first as u8);
            rest = behind;
        }
        Self(bits)
    }

    /// Returns true if permission for this set is permission for `action`.
    #[must_use]
    pub const fn permits(self, action: Action) -> bool {
        self.0 & (action.implied_by().0 | Self::ALL.0) != 0
    }

    /// Returns true if a prohibition of this set is one of `action`.
    #[must_use]
    pub const fn forbids(self, action: Action) -> bool {
        self.0 & (1 << (action as u8) | Self::ALL.0) != 0
    }

    #[must_use]
    pub const fn has_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the single actions; not over the element for all.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ALL
            .into_iter()
            .filter(move |action| self.0 & (1 << (*action as u8)) != 0)
    }

    /// Returns the names of the elements.
    #[must_use]
    pub fn words(self) -> Vec<&'static str> {
        let all = self.has_all(Self::ALL).then_some(ALL);
        all.into_iter().chain(self.iter().map(Action::word)).collect()
    }

    /// Returns the set of one name: that of an action, `all`, or `define`.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            ALL => Some(Self::ALL),
            "define" => Some(Self::DEFINE),
            _ => Action::ALL
                .iter()
                .find(|action| action.word() == word)
                .map(|action| Self::of(&[*action])),
        }
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

impl fmt::Debug for Actions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.words().join("+"))
    }
}
