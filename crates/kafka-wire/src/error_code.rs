//! The protocol's error codes.
//!
//! Names, numbers and retriability are those of the protocol guide of Kafka 4.3, section "Error Codes".

macro_rules! error_codes {
    ($($code:literal $name:ident $retriable:literal $text:literal)*) => {
        /// Error code of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $($name = $code,)*
        }

        impl ErrorCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the name that the protocol guide uses.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// True if the same request may succeed later; clients act on it.
            pub const fn is_retriable(self) -> bool {
                match self {
                    $(Self::$name => $retriable,)*
                }
            }
        }

        impl TryFrom<i16> for ErrorCode {
            type Error = UnknownErrorCode;

            fn try_from(code: i16) -> Result<Self, Self::Error> {
                match code {
                    $($code => Ok(Self::$name),)*
                    _ => Err(UnknownErrorCode { code }),
                }
            }
        }
    };
}

/// A number without a meaning in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{code} is not an error code")]
pub struct UnknownErrorCode {
    pub code: i16,
}

impl ErrorCode {
    /// Returns the number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    pub const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }
}

impl From<ErrorCode> for i16 {
    fn from(error: ErrorCode) -> Self {
        error.code()
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[rustfmt::skip]
error_codes! {
    -1 UnknownServerError false "UNKNOWN_SERVER_ERROR"
    0 None false "NONE"
    1 OffsetOutOfRange false "OFFSET_OUT_OF_RANGE"
    2 CorruptMessage true "CORRUPT_MESSAGE"
    3 UnknownTopicOrPartition true "UNKNOWN_TOPIC_OR_PARTITION"
    4 InvalidFetchSize false "INVALID_FETCH_SIZE"
    5 LeaderNotAvailable true "LEADER_NOT_AVAILABLE"
    6 NotLeaderOrFollower true "NOT_LEADER_OR_FOLLOWER"
    7 RequestTimedOut true "REQUEST_TIMED_OUT"
    8 BrokerNotAvailable false "BROKER_NOT_AVAILABLE"
    9 ReplicaNotAvailable true "REPLICA_NOT_AVAILABLE"
    10 MessageTooLarge false "MESSAGE_TOO_LARGE"
    11 StaleControllerEpoch false "STALE_CONTROLLER_EPOCH"
    12 OffsetMetadataTooLarge false "OFFSET_METADATA_TOO_LARGE"
    13 NetworkException true "NETWORK_EXCEPTION"
    14 CoordinatorLoadInProgress true "COORDINATOR_LOAD_IN_PROGRESS"
    15 CoordinatorNotAvailable true "COORDINATOR_NOT_AVAILABLE"
    16 NotCoordinator true "NOT_COORDINATOR"
    17 InvalidTopicException false "INVALID_TOPIC_EXCEPTION"
    18 RecordListTooLarge false "RECORD_LIST_TOO_LARGE"
    19 NotEnoughReplicas true "NOT_ENOUGH_REPLICAS"
    20 NotEnoughReplicasAfterAppend true "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    21 InvalidRequiredAcks false "INVALID_REQUIRED_ACKS"
    22 IllegalGeneration false "ILLEGAL_GENERATION"
    23 InconsistentGroupProtocol false "INCONSISTENT_GROUP_PROTOCOL"
    24 InvalidGroupId false "INVALID_GROUP_ID"
    25 UnknownMemberId false "UNKNOWN_MEMBER_ID"
    26 InvalidSessionTimeout false "INVALID_SESSION_TIMEOUT"
    27 RebalanceInProgress false "REBALANCE_IN_PROGRESS"
    28 InvalidCommitOffsetSize false "INVALID_COMMIT_OFFSET_SIZE"
    29 TopicAuthorizationFailed false "TOPIC_AUTHORIZATION_FAILED"
    30 GroupAuthorizationFailed false "GROUP_AUTHORIZATION_FAILED"
    31 ClusterAuthorizationFailed false "CLUSTER_AUTHORIZATION_FAILED"
    32 InvalidTimestamp false "INVALID_TIMESTAMP"
    33 UnsupportedSaslMechanism false "UNSUPPORTED_SASL_MECHANISM"
    34 IllegalSaslState false "ILLEGAL_SASL_STATE"
    35 UnsupportedVersion false "UNSUPPORTED_VERSION"
    36 TopicAlreadyExists false "TOPIC_ALREADY_EXISTS"
    37 InvalidPartitions false "INVALID_PARTITIONS"
    38 InvalidReplicationFactor false "INVALID_REPLICATION_FACTOR"
    39 InvalidReplicaAssignment false "INVALID_REPLICA_ASSIGNMENT"
    40 InvalidConfig false "INVALID_CONFIG"
    41 NotController true "NOT_CONTROLLER"
    42 InvalidRequest false "INVALID_REQUEST"
    43 UnsupportedForMessageFormat false "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    44 PolicyViolation false "POLICY_VIOLATION"
    45 OutOfOrderSequenceNumber false "OUT_OF_ORDER_SEQUENCE_NUMBER"
    46 DuplicateSequenceNumber false "DUPLICATE_SEQUENCE_NUMBER"
    47 InvalidProducerEpoch false "INVALID_PRODUCER_EPOCH"
    48 InvalidTxnState false "INVALID_TXN_STATE"
    49 InvalidProducerIdMapping false "INVALID_PRODUCER_ID_MAPPING"
    50 InvalidTransactionTimeout false "INVALID_TRANSACTION_TIMEOUT"
    51 ConcurrentTransactions true "CONCURRENT_TRANSACTIONS"
    52 TransactionCoordinatorFenced false "TRANSACTION_COORDINATOR_FENCED"
    53 TransactionalIdAuthorizationFailed false "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    54 SecurityDisabled false "SECURITY_DISABLED"
    55 OperationNotAttempted false "OPERATION_NOT_ATTEMPTED"
    56 KafkaStorageError true "KAFKA_STORAGE_ERROR"
    57 LogDirNotFound false "LOG_DIR_NOT_FOUND"
    58 SaslAuthenticationFailed false "SASL_AUTHENTICATION_FAILED"
    59 UnknownProducerId false "UNKNOWN_PRODUCER_ID"
    60 ReassignmentInProgress false "REASSIGNMENT_IN_PROGRESS"
    61 DelegationTokenAuthDisabled false "DELEGATION_TOKEN_AUTH_DISABLED"
    62 DelegationTokenNotFound false "DELEGATION_TOKEN_NOT_FOUND"
    63 DelegationTokenOwnerMismatch false "DELEGATION_TOKEN_OWNER_MISMATCH"
    64 DelegationTokenRequestNotAllowed false "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
    65 DelegationTokenAuthorizationFailed false "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    66 DelegationTokenExpired false "DELEGATION_TOKEN_EXPIRED"
    67 InvalidPrincipalType false "INVALID_PRINCIPAL_TYPE"
    68 NonEmptyGroup false "NON_EMPTY_GROUP"
    69 GroupIdNotFound false "GROUP_ID_NOT_FOUND"
    70 FetchSessionIdNotFound true "FETCH_SESSION_ID_NOT_FOUND"
    71 InvalidFetchSessionEpoch true "INVALID_FETCH_SESSION_EPOCH"
    72 ListenerNotFound true "LISTENER_NOT_FOUND"
    73 TopicDeletionDisabled false "TOPIC_DELETION_DISABLED"
    74 FencedLeaderEpoch true "FENCED_LEADER_EPOCH"
    75 UnknownLeaderEpoch true "UNKNOWN_LEADER_EPOCH"
    76 UnsupportedCompressionType false "UNSUPPORTED_COMPRESSION_TYPE"
    77 StaleBrokerEpoch false "STALE_BROKER_EPOCH"
    78 OffsetNotAvailable true "OFFSET_NOT_AVAILABLE"
    79 MemberIdRequired false "MEMBER_ID_REQUIRED"
    80 PreferredLeaderNotAvailable true "PREFERRED_LEADER_NOT_AVAILABLE"
    81 GroupMaxSizeReached false "GROUP_MAX_SIZE_REACHED"
    82 FencedInstanceId false "FENCED_INSTANCE_ID"
    83 EligibleLeadersNotAvailable true "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    84 ElectionNotNeeded true "ELECTION_NOT_NEEDED"
    85 NoReassignmentInProgress false "NO_REASSIGNMENT_IN_PROGRESS"
    86 GroupSubscribedToTopic false "GROUP_SUBSCRIBED_TO_TOPIC"
    87 InvalidRecord false "INVALID_RECORD"
    88 UnstableOffsetCommit true "UNSTABLE_OFFSET_COMMIT"
    89 ThrottlingQuotaExceeded true "THROTTLING_QUOTA_EXCEEDED"
    90 ProducerFenced false "PRODUCER_FENCED"
    91 ResourceNotFound false "RESOURCE_NOT_FOUND"
    92 DuplicateResource false "DUPLICATE_RESOURCE"
    93 UnacceptableCredential false "UNACCEPTABLE_CREDENTIAL"
    94 InconsistentVoterSet false "INCONSISTENT_VOTER_SET"
    95 InvalidUpdateVersion false "INVALID_UPDATE_VERSION"
    96 FeatureUpdateFailed false "FEATURE_UPDATE_FAILED"
    97 PrincipalDeserializationFailure false "PRINCIPAL_DESERIALIZATION_FAILURE"
    98 SnapshotNotFound false "SNAPSHOT_NOT_FOUND"
    99 PositionOutOfRange false "POSITION_OUT_OF_RANGE"
    100 UnknownTopicId true "UNKNOWN_TOPIC_ID"
    101 DuplicateBrokerRegistration false "DUPLICATE_BROKER_REGISTRATION"
    102 BrokerIdNotRegistered false "BROKER_ID_NOT_REGISTERED"
    103 InconsistentTopicId true "INCONSISTENT_TOPIC_ID"
    104 InconsistentClusterId false "INCONSISTENT_CLUSTER_ID"
    105 TransactionalIdNotFound false "TRANSACTIONAL_ID_NOT_FOUND"
    106 FetchSessionTopicIdError true "FETCH_SESSION_TOPIC_ID_ERROR"
    107 IneligibleReplica false "INELIGIBLE_REPLICA"
    108 NewLeaderElected false "NEW_LEADER_ELECTED"
    109 OffsetMovedToTieredStorage false "OFFSET_MOVED_TO_TIERED_STORAGE"
    110 FencedMemberEpoch false "FENCED_MEMBER_EPOCH"
    111 UnreleasedInstanceId false "UNRELEASED_INSTANCE_ID"
    112 UnsupportedAssignor false "UNSUPPORTED_ASSIGNOR"
    113 StaleMemberEpoch false "STALE_MEMBER_EPOCH"
    114 MismatchedEndpointType false "MISMATCHED_ENDPOINT_TYPE"
    115 UnsupportedEndpointType false "UNSUPPORTED_ENDPOINT_TYPE"
    116 UnknownControllerId false "UNKNOWN_CONTROLLER_ID"
    117 UnknownSubscriptionId false "UNKNOWN_SUBSCRIPTION_ID"
    118 TelemetryTooLarge false "TELEMETRY_TOO_LARGE"
    119 InvalidRegistration false "INVALID_REGISTRATION"
    120 TransactionAbortable false "TRANSACTION_ABORTABLE"
    121 InvalidRecordState false "INVALID_RECORD_STATE"
    122 ShareSessionNotFound true "SHARE_SESSION_NOT_FOUND"
    123 InvalidShareSessionEpoch true "INVALID_SHARE_SESSION_EPOCH"
    124 FencedStateEpoch false "FENCED_STATE_EPOCH"
    125 InvalidVoterKey false "INVALID_VOTER_KEY"
    126 DuplicateVoter false "DUPLICATE_VOTER"
    127 VoterNotFound false "VOTER_NOT_FOUND"
    128 InvalidRegularExpression false "INVALID_REGULAR_EXPRESSION"
    129 RebootstrapRequired false "REBOOTSTRAP_REQUIRED"
    130 StreamsInvalidTopology false "STREAMS_INVALID_TOPOLOGY"
    131 StreamsInvalidTopologyEpoch false "STREAMS_INVALID_TOPOLOGY_EPOCH"
    132 StreamsTopologyFenced false "STREAMS_TOPOLOGY_FENCED"
    133 ShareSessionLimitReached true "SHARE_SESSION_LIMIT_REACHED"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_as_what_they_were() {
        for error in ErrorCode::ALL {
            assert_eq!(ErrorCode::try_from(error.code()), Ok(*error));
        }
        assert_eq!(ErrorCode::try_from(-2), Err(UnknownErrorCode { code: -2 }));
    }

    #[test]
    fn clients_retry_what_may_pass() {
        assert!(ErrorCode::NotLeaderOrFollower.is_retriable());
        assert!(!ErrorCode::TopicAlreadyExists.is_retriable());
        assert_eq!(ErrorCode::UnsupportedVersion.code(), 35);
    }
}
