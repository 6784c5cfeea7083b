//! The kinds of things in a document: where each is listed and made, and its fields.

use super::item::Fields;

/// One kind.
#[derive(Debug)]
pub(super) struct Kind {
    /// Name of its list.
    pub(super) name: &'static str,
    /// Route of the list. One thing is below it if it has a name.
    pub(super) path: &'static str,
    /// Query of the list, and of other requests.
    pub(super) query: &'static str,
    pub(super) source: Source,
    pub(super) is_namespaced: bool,
    /// Fields by which things of the kind are told apart.
    pub(super) id: &'static [&'static str],
    /// Fields of the body that makes one, but the name of a thing that has one in its path.
    pub(super) fields: &'static [&'static str],
    /// False for things that every broker or namespace has, or that end with their connection.
    pub(super) is_defined: fn(&Fields) -> bool,
    pub(super) change: Change,
}

/// Where the things of a kind are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The list of the API.
    List,
    /// The list of the API, for each namespace.
    ListOfNamespace,
    Queues,
    Bindings,
    Users,
    Apps,
    Sinks,
}

/// Request that changes a thing that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// That which makes it.
    Again,
    /// `PATCH` with the fields that differ, which must be these.
    Patch(&'static [&'static str]),
}

impl Kind {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Returns true for a kind of which each cell of a cluster has things of its own. Others are those of the
    /// first cell.
    pub(super) fn is_of_cells(&self) -> bool {
        self.is_namespaced || self.name == "namespaces"
    }

    /// Returns true for a field whose absence is a value: an export shows it as null.
    pub(super) fn shows_null_of(&self, field: &str) -> bool {
        match self.change {
            Change::Patch(known) => known.contains(&field),
            Change::Again => matches!(self.name, "limits" | "quotas") && !self.id.contains(&field),
            Change::None => false,
        }
    }

    /// Returns true if requests about a thing have this field in their path or query, and not in their body.
    pub(super) fn has_path_of(&self, field: &str) -> bool {
        match field {
            "name" => self.id.contains(&"name") && !self.fields.contains(&"name"),
            "namespace" => self.is_namespaced,
            _ => false,
        }
    }
}

const PLAIN: Kind = Kind {
    name: "",
    path: "",
    query: "",
    source: Source::List,
    is_namespaced: false,
    id: &["name"],
    fields: &[],
    is_defined: |_| true,
    change: Change::None,
};

const NAMESPACED: Kind = Kind {
    is_namespaced: true,
    id: &["namespace", "name"],
    ..PLAIN
};

const POLICY: Kind = Kind {
    path: "/v1/policies",
    source: Source::ListOfNamespace,
    fields: &["pattern", "priority", "queues", "settings"],
    change: Change::Again,
    ..NAMESPACED
};

const QUEUE: &[&str] = &[
    "durable",
    "auto_delete",
    "priority_max",
    "durability",
    "ttl_ms",
    "expires_ms",
    "length_max",
    "bytes_max",
    "overflow",
    "dead_letter",
    "delivery_limit",
    "single_active_consumer",
    "retain",
    "over",
    "traits",
    "declared",
    "changed",
];

pub(super) const CHANGEABLE_OF_QUEUES: &[&str] = &[
    "durability",
    "ttl_ms",
    "expires_ms",
    "length_max",
    "bytes_max",
    "overflow",
    "dead_letter",
    "delivery_limit",
    "retain",
];

const APP: &[&str] = &[
    "topics",
    "from",
    "filter",
    "guarantee",
    "durability",
    "balance",
    "rebalance",
    "worker_timeout_ms",
    "revoke_ms",
    "time",
    "tables",
    "state_bytes_max",
    "on_gap",
    "attempts_max",
    "dead_letter",
    "splittable",
];

const CHANGEABLE_OF_APPS: &[&str] = &[
    "filter",
    "balance",
    "rebalance",
    "worker_timeout_ms",
    "revoke_ms",
    "time",
    "state_bytes_max",
    "on_gap",
    "attempts_max",
    "dead_letter",
];

/// All kinds. Things are made in this order: a thing comes behind those that it names.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "namespaces",
        path: "/v1/namespaces",
        fields: &["description"],
        change: Change::Again,
        ..PLAIN
    },
    Kind {
        name: "topics",
        path: "/v1/topics",
        fields: &["partitions", "settings", "other", "declared"],
        is_defined: |topic| topic.get("kind").is_none_or(|kind| kind != "queue"),
        change: Change::Patch(&["partitions", "settings"]),
        ..PLAIN
    },
    Kind {
        name: "exchanges",
        path: "/v1/exchanges",
        fields: &[
            "kind",
            "durable",
            "auto_delete",
            "internal",
            "alternate",
            "delays",
            "hash_on",
            "declared",
        ],
        is_defined: |exchange| {
            let name = exchange.get("name").and_then(|name| name.as_str());
            name.is_none_or(|name| !name.is_empty() && !name.starts_with("amq."))
        },
        ..NAMESPACED
    },
    Kind {
        name: "queues",
        path: "/v1/queues",
        source: Source::Queues,
        fields: QUEUE,
        change: Change::Patch(CHANGEABLE_OF_QUEUES),
        ..NAMESPACED
    },
    Kind {
        name: "policies",
        ..POLICY
    },
    Kind {
        name: "operator_policies",
        query: "&operator=true",
        ..POLICY
    },
    Kind {
        name: "clients",
        path: "/v1/clients",
        source: Source::ListOfNamespace,
        ..NAMESPACED
    },
    Kind {
        name: "bindings",
        path: "/v1/bindings",
        source: Source::Bindings,
        is_namespaced: true,
        id: &[
            "namespace",
            "source",
            "to",
            "key",
            "headers",
            "match",
            "filter",
            "declared",
        ],
        fields: &["source", "to", "key", "headers", "match", "filter", "declared"],
        ..PLAIN
    },
    Kind {
        name: "apps",
        path: "/v1/apps",
        source: Source::Apps,
        fields: APP,
        change: Change::Patch(CHANGEABLE_OF_APPS),
        ..PLAIN
    },
    Kind {
        name: "sinks",
        path: "/v1/sinks",
        source: Source::Sinks,
        fields: &["definition"],
        change: Change::Again,
        ..PLAIN
    },
    Kind {
        name: "users",
        path: "/v1/users",
        source: Source::Users,
        fields: &["tags", "verifiers"],
        change: Change::Again,
        ..PLAIN
    },
    Kind {
        name: "rules",
        path: "/v1/rules",
        id: &[
            "who",
            "deny",
            "on",
            "name",
            "prefix",
            "pattern",
            "namespace",
            "host",
        ],
        fields: &[
            "who",
            "deny",
            "actions",
            "on",
            "name",
            "prefix",
            "pattern",
            "namespace",
            "host",
        ],
        change: Change::Again,
        ..PLAIN
    },
    Kind {
        name: "limits",
        path: "/v1/limits",
        id: &["namespace", "user"],
        fields: &[
            "namespace",
            "user",
            "connections",
            "channels",
            "queues",
            "topics",
            "messages",
            "bytes",
        ],
        change: Change::Again,
        ..PLAIN
    },
    Kind {
        name: "quotas",
        path: "/v1/quotas",
        id: &["user", "client"],
        fields: &[
            "user",
            "client",
            "produced_bytes_per_second",
            "fetched_bytes_per_second",
            "requests_per_second",
        ],
        change: Change::Again,
        ..PLAIN
    },
];
