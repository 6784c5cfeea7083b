//! Codes of refusals: the only list. A code has one status, and both stay.

use axum::http::StatusCode;

/// Use of sending a refused request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// None: the request has to be another one, or something else has to change first.
    Never,
    /// The same request may succeed later.
    Later,
    /// The outcome is unknown: the same request with the same `Idempotency-Key`, where the route takes one.
    SameKey,
}

impl Retry {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Later => "later",
            Self::SameKey => "same_key",
        }
    }
}

/// Generates the enumeration from a table: name, word, status, retry, explanation.
macro_rules! codes {
    ($( $name:ident $word:literal $status:literal $retry:ident $text:literal )*) => {
        /// Reason of a refusal, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $( #[doc = $text] $name, )*
        }

        impl Code {
            pub const ALL: &'static [Self] = &[$( Self::$name, )*];

            /// Returns the word in answers.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $( Self::$name => $word, )* }
            }

            #[must_use]
            pub fn retry(self) -> Retry {
                match self { $( Self::$name => Retry::$retry, )* }
            }

            /// Returns the explanation for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $( Self::$name => $text, )* }
            }

            fn number(self) -> u16 {
                match self { $( Self::$name => $status, )* }
            }
        }
    };
}

codes! {
    BadRequest "bad_request" 400 Never
        "A parameter, a name or a field of the body is missing, malformed or out of its bounds. The detail says which one."
    UnknownField "unknown_field" 400 Never
        "The request has a parameter, or asks for a field, that does not exist here. It is refused because its effect would not happen."
    BadJson "bad_json" 400 Never
        "The body is not JSON. The detail has the line and the column."
    CrossSite "cross_site" 403 Never
        "A web page of another site made a browser send the request. The settings http.origins and live.origins name sites whose pages may."
    BadHost "bad_host" 403 Never
        "The Host of the request is neither an address nor localhost. The setting http.hosts adds names."
    Unauthenticated "unauthenticated" 401 Never
        "The request needs a login, or its user name, password or token is wrong. Send Authorization, or log in by POST /v1/login."
    Forbidden "forbidden" 403 Never
        "The caller may not do this. The detail says which callers may."
    NotRegistered "not_registered" 403 Never
        "The request needs a client with a queue of its own. The header Stafett-Client names it, and PUT /v1/clients/NAME registers it."
    NoSuchUser "no_such_user" 404 Never
        "There is no user of this name."
    NoSuchPermission "no_such_permission" 404 Never
        "The user has no permission of this kind there."
    NoSuchToken "no_such_token" 404 Never
        "There is no token with this id."
    NoSuchPath "no_such_path" 404 Never
        "There is no route with this path. /v1/openapi.json describes those that there are."
    NoSuchCode "no_such_code" 404 Never
        "There is no code of this name. The schema Code in /v1/openapi.json lists all."
    NoSuchNamespace "no_such_namespace" 404 Never
        "There is no namespace of this name."
    NoSuchQueue "no_such_queue" 404 Never
        "There is no queue of this name in the namespace, which is / unless the request names another."
    NoSuchClient "no_such_client" 404 Never
        "There is no client of this name or id. PUT /v1/clients/NAME registers one."
    NoSuchMessage "no_such_message" 404 Never
        "There is no message with this id in the queue, or it is not stored any more."
    NoSuchTopic "no_such_topic" 404 Never
        "There is no topic of this name."
    NoSuchExchange "no_such_exchange" 404 Never
        "There is no exchange of this name in the namespace, which is / unless the request names another."
    NoSuchBinding "no_such_binding" 404 Never
        "There is no binding with this id in the namespace, which is / unless the request names another."
    NoSuchPolicy "no_such_policy" 404 Never
        "There is no policy of this name in the namespace, which is / unless the request names another."
    NoSuchPartition "no_such_partition" 404 Never
        "The topic has no partition of this number. Partitions are counted from 0."
    NoSuchGroup "no_such_group" 404 Never
        "There is no group of this name, or none with commits."
    NoSuchMember "no_such_member" 404 Never
        "The group has no member with this id."
    NoSuchApp "no_such_app" 404 Never
        "There is no app of this name."
    NoSuchTask "no_such_task" 404 Never
        "The app has no task of this name. A task is named by its partition, and a slice of it by bits behind a dot."
    NoSuchWorker "no_such_worker" 404 Never
        "The app has no worker of this name now: it never joined, left, or was silent for too long. It may join again."
    NoSuchTable "no_such_table" 404 Never
        "The app has no table of this name. Tables are declared with the app."
    NoSuchKey "no_such_key" 404 Never
        "The table has no entry of this key."
    NoSuchSink "no_such_sink" 404 Never
        "There is no sink of this name. PUT /v1/sinks/NAME defines one."
    NoSuchTransaction "no_such_transaction" 404 Never
        "There is no transactional id of this name."
    NoSuchConnection "no_such_connection" 404 Never
        "There is no open connection with this id."
    NoSuchConsumer "no_such_consumer" 404 Never
        "There is no consumer with this id: it has ended, or never was."
    NoSuchOperation "no_such_operation" 404 Never
        "There is no operation with this id. Operations are forgotten an hour after their end, and before that when there are a thousand later ones."
    NoSuchExperiment "no_such_experiment" 404 Never
        "There is no experiment of this name."
    NoSuchRun "no_such_run" 404 Never
        "There is no run with this id, or it has no such part."
    NoSuchAgent "no_such_agent" 404 Never
        "There is no agent of this name in the lab's list."
    NoCluster "no_cluster" 404 Never
        "The node is alone. With the setting cluster.database it is one of several over a database."
    NoSuchNode "no_such_node" 404 Never
        "The cluster has no other node of this number that lives. GET /v1/cluster lists them."
    MethodNotAllowed "method_not_allowed" 405 Never
        "The path exists, and does not take this method. The header Allow lists those that it takes."
    SlowBody "slow_body" 408 Later
        "The body did not arrive in time, or made way to others while memory was short."
    LastAdministrator "last_administrator" 409 Never
        "The user is the last administrator while there are other users. Without one, the broker would be open to callers without a name."
    IsDefault "is_default" 409 Never
        "The default namespace and the default exchange stay as they are."
    Closing "closing" 409 Later
        "A namespace of this name is being deleted, or a topic of this name is being made, changed or deleted."
    InUse "in_use" 409 Later
        "The thing is in use: a queue has consumers, an exchange has bindings, a topic has queues over it or live topics before it, a group has members."
    Immutable "immutable" 409 Never
        "The thing is not changed this way: a topic is the broker's own, or shows a queue; a group is of another kind."
    Changed "changed" 409 Never
        "The thing is not the one that the condition of the request names. Nothing was done."
    NotEmpty "not_empty" 409 Later
        "The queue holds messages."
    ExistsDifferently "exists_differently" 409 Never
        "There is a thing of this name with another definition. The field names the first difference, or the name that stands in the way."
    NameTaken "name_taken" 409 Never
        "The queue of the client would have the name of another queue."
    TooManyInFlight "too_many_in_flight" 409 Later
        "As many messages of the queue are in flight as may be: a million. Some have to be settled first."
    InternalExchange "internal_exchange" 409 Never
        "The exchange takes messages from other exchanges only."
    Exclusive "exclusive" 409 Never
        "The queue belongs to a connection."
    LimitReached "limit_reached" 409 Later
        "The namespace has as many of these things as it may have. GET /v1/limits shows the limits."
    QueueFull "queue_full" 409 Later
        "The queue is as long as it may be, or its namespace has as many messages as it may have."
    QueueGone "queue_gone" 409 Never
        "The queue was deleted meanwhile. The detail says how far the request came."
    MessageTooLarge "message_too_large" 409 Never
        "A message is larger than its target takes. The detail says how far the request came."
    MessageWithoutKey "message_without_key" 409 Never
        "A message has no key, and its target is a compacted topic. The detail says how far the request came."
    BackupFailed "backup_failed" 409 Never
        "The backup could not be made, and nothing of it is left. The detail says why."
    NotStoppable "not_stoppable" 409 Never
        "The operation cannot be stopped before its end."
    TopicHasApps "topic_has_apps" 409 Never
        "An app reads the topic, so it gets no more partitions: keys would move away from their state."
    Taken "taken" 409 Later
        "Another worker has the task. The refusal has its name and the epoch."
    OverShare "over_share" 409 Later
        "The worker has its share of the tasks, which the refusal has as target."
    Pinned "pinned" 409 Never
        "The task is pinned to another worker."
    Draining "draining" 409 Later
        "The worker is being drained, and is given nothing."
    LostClaim "lost_claim" 409 Never
        "The worker does not have the task under this epoch any more. Nothing was stored. The refusal has the epoch that holds now."
    TakenOver "taken_over" 409 Never
        "A later session joined under the name of the worker, or the token is of no session."
    OutOfOrder "out_of_order" 409 Never
        "Commits of a task are numbered without gaps. The refusal has the number that is expected."
    Gap "gap" 409 Never
        "Records at the position of the task are gone, and the app stops at gaps. POST /v1/apps/APP/tasks/TASK/accept-gap lets it go on."
    TopicMadeAgain "topic_made_again" 409 Never
        "A topic that the app reads was deleted and made again, and the app stops at gaps. POST /v1/apps/APP/accept-gap lets it go on with the new topic, from its first record."
    RecordFailed "record_failed" 409 Never
        "A record or a timer failed as often as it may, and the app has no topic for dead letters, so its task stops. PATCH /v1/apps/APP sets a topic; POST /v1/apps/APP/reset passes the record."
    NotPaused "not_paused" 409 Never
        "Positions are reset while the app is paused: POST /v1/apps/APP/pause."
    NoRunner "no_runner" 409 Later
        "No runner of the broker has the sink at the moment, or it did not answer in time. The setting sinks.run says if there is one."
    BadOffset "bad_offset" 400 Never
        "An offset is not between the position of the task and what was delivered. The refusal has both bounds."
    TooLarge "too_large" 413 Never
        "The body is larger than it may be. The detail has the bound, and the setting of it if there is one."
    UnsupportedType "unsupported_type" 415 Never
        "The Content-Type or the Content-Encoding of the body is not known here."
    NoKey "no_key" 422 Never
        "A record has no key: its topic is compacted by key, or the field of the key is missing."
    Schema "schema" 422 Never
        "An event is not as the schema of its endpoint says. The refusal has its line, the path of the value, and what is expected there."
    OutOfRange "out_of_range" 422 Never
        "A number is beyond its bounds, which the refusal has as min and max."
    TooFine "too_fine" 422 Never
        "A slice of a task has 10 bits at most."
    BadDefinition "bad_definition" 422 Never
        "The definition is not sound. The detail has the field and its fault."
    NotSplittable "not_splittable" 422 Never
        "The app, or the worker of the task, reads whole partitions."
    NotKeyed "not_keyed" 422 Never
        "The task has entries that cannot be divided: of a table whose entries belong to the task as a whole, or under keys of another slice."
    NotCopartitioned "not_copartitioned" 422 Never
        "The topics of an app have different numbers of partitions. The refusal has both."
    TooManyTargets "too_many_targets" 422 Never
        "A message goes to 4096 queues at most."
    Unroutable "unroutable" 422 Never
        "No binding of the exchange, nor of its alternate exchange, leads to a queue or topic for this message."
    Paused "paused" 423 Later
        "The app is paused: nothing is delivered until it is resumed."
    BadSettings "bad_settings" 422 Never
        "The settings cannot be taken, and those before stay in force. The detail says which one, and where it was given."
    NoWebsocket "no_websocket" 426 Never
        "The route takes the opening handshake of a WebSocket of version 13 only."
    TooManyApps "too_many_apps" 429 Later
        "There are as many apps as may be."
    TooManySinks "too_many_sinks" 429 Later
        "There are as many sinks as may be."
    TooManyFilters "too_many_filters" 429 Later
        "The bindings of a namespace have as many distinct filters as they may."
    TooManyWorkers "too_many_workers" 429 Later
        "The app has as many workers as it may."
    NotStored "not_stored" 500 Never
        "The journal refused the change, and nothing of it was stored. The detail says why."
    OutcomeUnknown "outcome_unknown" 500 SameKey
        "The journal stopped before it could tell whether the change was stored. Look at the thing before the request is sent again, or send it with the same Idempotency-Key."
    TooMany "too_many" 429 Later
        "The token made more requests than the endpoint allows. Retry-After says when it may go on."
    OverQuota "over_quota" 429 Later
        "The user or the client moved more bytes than its quota allows. Retry-After says when it may go on."
    TargetRefused "target_refused" 502 Later
        "The target of the sink refused, or is away. The detail has its words."
    NotServing "not_serving" 503 Later
        "The broker is starting, stopping, or recovering from a failure."
    Overloaded "overloaded" 503 Later
        "Too much of this kind is going on already."
    SpaceShort "space_short" 503 Later
        "Little space is left on the disk. Reading, settling and deleting go on."
    Unreadable "unreadable" 503 Later
        "Something that is stored cannot be read now. The log of the broker says what."
    TimedOut "timed_out" 504 Later
        "No response came in time. A late one comes to the caller's own queue."
    DiskFull "disk_full" 507 Later
        "The disk is full. Reading, settling and deleting go on."
}

impl Code {
    /// Returns the code of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.word() == word)
    }

    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.number()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the word as a phrase: `No such queue`.
    #[must_use]
    pub fn title(self) -> String {
        let mut words = self.word().replace('_', " ");
        if let Some(first) = words.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_word_of_its_own_and_an_error_as_status() {
        for (place, code) in Code::ALL.iter().enumerate() {
            assert_eq!(Code::of(code.word()), Some(*code));
            assert!(code.word().chars().all(|it| it.is_ascii_lowercase() || it == '_'));
            let status = code.status();
            assert!(status.is_client_error() || status.is_server_error(), "{code:?}");
            assert_eq!(status.as_u16(), code.number(), "{code:?}");
            assert!(code.text().ends_with('.') && !code.text().contains('\n'));
            let later = Code::ALL.iter().skip(place + 1);
            assert!(later.clone().all(|other| other.word() != code.word()));
        }
        assert_eq!(Code::of("none"), None);
        assert_eq!(Code::NoSuchQueue.title(), "No such queue");
    }
}
