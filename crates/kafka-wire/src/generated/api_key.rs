//! The APIs, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use crate::errors::DecodeError;
use crate::version::VersionRange;

/// The APIs that a broker serves to clients, with their numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
pub enum ApiKey {
    Produce = 0,
    Fetch = 1,
    ListOffsets = 2,
    Metadata = 3,
    OffsetCommit = 8,
    OffsetFetch = 9,
    FindCoordinator = 10,
    JoinGroup = 11,
    Heartbeat = 12,
    LeaveGroup = 13,
    SyncGroup = 14,
    DescribeGroups = 15,
    ListGroups = 16,
    SaslHandshake = 17,
    ApiVersions = 18,
    CreateTopics = 19,
    DeleteTopics = 20,
    DeleteRecords = 21,
    InitProducerId = 22,
    OffsetForLeaderEpoch = 23,
    AddPartitionsToTxn = 24,
    AddOffsetsToTxn = 25,
    EndTxn = 26,
    WriteTxnMarkers = 27,
    TxnOffsetCommit = 28,
    DescribeAcls = 29,
    CreateAcls = 30,
    DeleteAcls = 31,
    DescribeConfigs = 32,
    AlterConfigs = 33,
    AlterReplicaLogDirs = 34,
    DescribeLogDirs = 35,
    SaslAuthenticate = 36,
    CreatePartitions = 37,
    CreateDelegationToken = 38,
    RenewDelegationToken = 39,
    ExpireDelegationToken = 40,
    DescribeDelegationToken = 41,
    DeleteGroups = 42,
    ElectLeaders = 43,
    IncrementalAlterConfigs = 44,
    AlterPartitionReassignments = 45,
    ListPartitionReassignments = 46,
    OffsetDelete = 47,
    DescribeClientQuotas = 48,
    AlterClientQuotas = 49,
    DescribeUserScramCredentials = 50,
    AlterUserScramCredentials = 51,
    DescribeQuorum = 55,
    UpdateFeatures = 57,
    DescribeCluster = 60,
    DescribeProducers = 61,
    UnregisterBroker = 64,
    DescribeTransactions = 65,
    ListTransactions = 66,
    ConsumerGroupHeartbeat = 68,
    ConsumerGroupDescribe = 69,
    GetTelemetrySubscriptions = 71,
    PushTelemetry = 72,
    ListConfigResources = 74,
    DescribeTopicPartitions = 75,
    ShareGroupHeartbeat = 76,
    ShareGroupDescribe = 77,
    ShareFetch = 78,
    ShareAcknowledge = 79,
    AddRaftVoter = 80,
    RemoveRaftVoter = 81,
    InitializeShareGroupState = 83,
    ReadShareGroupState = 84,
    WriteShareGroupState = 85,
    DeleteShareGroupState = 86,
    ReadShareGroupStateSummary = 87,
    StreamsGroupHeartbeat = 88,
    StreamsGroupDescribe = 89,
    DescribeShareGroupOffsets = 90,
    AlterShareGroupOffsets = 91,
    DeleteShareGroupOffsets = 92,
}

impl ApiKey {
    /// All of them, in the order of their numbers.
    pub const ALL: &[Self] = &[
        Self::Produce,
        Self::Fetch,
        Self::ListOffsets,
        Self::Metadata,
        Self::OffsetCommit,
        Self::OffsetFetch,
        Self::FindCoordinator,
        Self::JoinGroup,
        Self::Heartbeat,
        Self::LeaveGroup,
        Self::SyncGroup,
        Self::DescribeGroups,
        Self::ListGroups,
        Self::SaslHandshake,
        Self::ApiVersions,
        Self::CreateTopics,
        Self::DeleteTopics,
        Self::DeleteRecords,
        Self::InitProducerId,
        Self::OffsetForLeaderEpoch,
        Self::AddPartitionsToTxn,
        Self::AddOffsetsToTxn,
        Self::EndTxn,
        Self::WriteTxnMarkers,
        Self::TxnOffsetCommit,
        Self::DescribeAcls,
        Self::CreateAcls,
        Self::DeleteAcls,
        Self::DescribeConfigs,
        Self::AlterConfigs,
        Self::AlterReplicaLogDirs,
        Self::DescribeLogDirs,
        Self::SaslAuthenticate,
        Self::CreatePartitions,
        Self::CreateDelegationToken,
        Self::RenewDelegationToken,
        Self::ExpireDelegationToken,
        Self::DescribeDelegationToken,
        Self::DeleteGroups,
        Self::ElectLeaders,
        Self::IncrementalAlterConfigs,
        Self::AlterPartitionReassignments,
        Self::ListPartitionReassignments,
        Self::OffsetDelete,
        Self::DescribeClientQuotas,
        Self::AlterClientQuotas,
        Self::DescribeUserScramCredentials,
        Self::AlterUserScramCredentials,
        Self::DescribeQuorum,
        Self::UpdateFeatures,
        Self::DescribeCluster,
        Self::DescribeProducers,
        Self::UnregisterBroker,
        Self::DescribeTransactions,
        Self::ListTransactions,
        Self::ConsumerGroupHeartbeat,
        Self::ConsumerGroupDescribe,
        Self::GetTelemetrySubscriptions,
        Self::PushTelemetry,
        Self::ListConfigResources,
        Self::DescribeTopicPartitions,
        Self::ShareGroupHeartbeat,
        Self::ShareGroupDescribe,
        Self::ShareFetch,
        Self::ShareAcknowledge,
        Self::AddRaftVoter,
        Self::RemoveRaftVoter,
        Self::InitializeShareGroupState,
        Self::ReadShareGroupState,
        Self::WriteShareGroupState,
        Self::DeleteShareGroupState,
        Self::ReadShareGroupStateSummary,
        Self::StreamsGroupHeartbeat,
        Self::StreamsGroupDescribe,
        Self::DescribeShareGroupOffsets,
        Self::AlterShareGroupOffsets,
        Self::DeleteShareGroupOffsets,
    ];

    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// The versions that this crate reads and writes: all that Kafka calls stable.
    pub const fn versions(self) -> VersionRange {
        let (_, min, max, _) = self.row();
        VersionRange::new(min, max)
    }

    /// The versions to name in the answer to `ApiVersions`. Like Kafka since 4.0, it names produce versions 0 to
    /// 2, which no broker serves any more: librdkafka takes their absence to mean that compressed batches are
    /// not understood (KAFKA-18659).
    pub const fn advertised_versions(self) -> VersionRange {
        let served = self.versions();
        if matches!(self, Self::Produce) {
            VersionRange::new(0, served.max)
        } else {
            served
        }
    }

    /// Whether the version has tagged fields and compact lengths.
    pub const fn is_flexible(self, version: i16) -> bool {
        version >= self.row().3
    }

    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The answer to `ApiVersions` has the oldest header in all versions, so that a client can read it before it
    /// knows what the broker speaks (KIP-511).
    pub const fn response_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) && !matches!(self, Self::ApiVersions) {
            1
        } else {
            0
        }
    }

    /// Name, first version, last version, first flexible version.
    #[expect(clippy::too_many_lines, reason = "a table")]
    const fn row(self) -> (&'static str, i16, i16, i16) {
        match self {
            Self::Produce => ("Produce", 3, 13, 9),
            Self::Fetch => ("Fetch", 4, 18, 12),
            Self::ListOffsets => ("ListOffsets", 1, 11, 6),
            Self::Metadata => ("Metadata", 0, 13, 9),
            Self::OffsetCommit => ("OffsetCommit", 2, 10, 8),
            Self::OffsetFetch => ("OffsetFetch", 1, 10, 6),
            Self::FindCoordinator => ("FindCoordinator", 0, 6, 3),
            Self::JoinGroup => ("JoinGroup", 0, 9, 6),
            Self::Heartbeat => ("Heartbeat", 0, 4, 4),
            Self::LeaveGroup => ("LeaveGroup", 0, 5, 4),
            Self::SyncGroup => ("SyncGroup", 0, 5, 4),
            Self::DescribeGroups => ("DescribeGroups", 0, 6, 5),
            Self::ListGroups => ("ListGroups", 0, 5, 3),
            Self::SaslHandshake => ("SaslHandshake", 0, 1, i16::MAX),
            Self::ApiVersions => ("ApiVersions", 0, 4, 3),
            Self::CreateTopics => ("CreateTopics", 2, 7, 5),
            Self::DeleteTopics => ("DeleteTopics", 1, 6, 4),
            Self::DeleteRecords => ("DeleteRecords", 0, 2, 2),
            Self::InitProducerId => ("InitProducerId", 0, 5, 2),
            Self::OffsetForLeaderEpoch => ("OffsetForLeaderEpoch", 2, 4, 4),
            Self::AddPartitionsToTxn => ("AddPartitionsToTxn", 0, 5, 3),
            Self::AddOffsetsToTxn => ("AddOffsetsToTxn", 0, 4, 3),
            Self::EndTxn => ("EndTxn", 0, 5, 3),
            Self::WriteTxnMarkers => ("WriteTxnMarkers", 1, 2, 1),
            Self::TxnOffsetCommit => ("TxnOffsetCommit", 0, 5, 3),
            Self::DescribeAcls => ("DescribeAcls", 1, 3, 2),
            Self::CreateAcls => ("CreateAcls", 1, 3, 2),
            Self::DeleteAcls => ("DeleteAcls", 1, 3, 2),
            Self::DescribeConfigs => ("DescribeConfigs", 1, 4, 4),
            Self::AlterConfigs => ("AlterConfigs", 0, 2, 2),
            Self::AlterReplicaLogDirs => ("AlterReplicaLogDirs", 1, 2, 2),
            Self::DescribeLogDirs => ("DescribeLogDirs", 1, 5, 2),
            Self::SaslAuthenticate => ("SaslAuthenticate", 0, 2, 2),
            Self::CreatePartitions => ("CreatePartitions", 0, 3, 2),
            Self::CreateDelegationToken => ("CreateDelegationToken", 1, 3, 2),
            Self::RenewDelegationToken => ("RenewDelegationToken", 1, 2, 2),
            Self::ExpireDelegationToken => ("ExpireDelegationToken", 1, 2, 2),
            Self::DescribeDelegationToken => ("DescribeDelegationToken", 1, 3, 2),
            Self::DeleteGroups => ("DeleteGroups", 0, 2, 2),
            Self::ElectLeaders => ("ElectLeaders", 0, 2, 2),
            Self::IncrementalAlterConfigs => ("IncrementalAlterConfigs", 0, 1, 1),
            Self::AlterPartitionReassignments => ("AlterPartitionReassignments", 0, 1, 0),
            Self::ListPartitionReassignments => ("ListPartitionReassignments", 0, 0, 0),
            Self::OffsetDelete => ("OffsetDelete", 0, 0, i16::MAX),
            Self::DescribeClientQuotas => ("DescribeClientQuotas", 0, 1, 1),
            Self::AlterClientQuotas => ("AlterClientQuotas", 0, 1, 1),
            Self::DescribeUserScramCredentials => ("DescribeUserScramCredentials", 0, 0, 0),
            Self::AlterUserScramCredentials => ("AlterUserScramCredentials", 0, 0, 0),
            Self::DescribeQuorum => ("DescribeQuorum", 0, 2, 0),
            Self::UpdateFeatures => ("UpdateFeatures", 0, 2, 0),
            Self::DescribeCluster => ("DescribeCluster", 0, 2, 0),
            Self::DescribeProducers => ("DescribeProducers", 0, 0, 0),
            Self::UnregisterBroker => ("UnregisterBroker", 0, 0, 0),
            Self::DescribeTransactions => ("DescribeTransactions", 0, 0, 0),
            Self::ListTransactions => ("ListTransactions", 0, 2, 0),
            Self::ConsumerGroupHeartbeat => ("ConsumerGroupHeartbeat", 0, 1, 0),
            Self::ConsumerGroupDescribe => ("ConsumerGroupDescribe", 0, 1, 0),
            Self::GetTelemetrySubscriptions => ("GetTelemetrySubscriptions", 0, 0, 0),
            Self::PushTelemetry => ("PushTelemetry", 0, 0, 0),
            Self::ListConfigResources => ("ListConfigResources", 0, 1, 0),
            Self::DescribeTopicPartitions => ("DescribeTopicPartitions", 0, 0, 0),
            Self::ShareGroupHeartbeat => ("ShareGroupHeartbeat", 1, 1, 1),
            Self::ShareGroupDescribe => ("ShareGroupDescribe", 1, 1, 1),
            Self::ShareFetch => ("ShareFetch", 1, 2, 1),
            Self::ShareAcknowledge => ("ShareAcknowledge", 1, 2, 1),
            Self::AddRaftVoter => ("AddRaftVoter", 0, 1, 0),
            Self::RemoveRaftVoter => ("RemoveRaftVoter", 0, 0, 0),
            Self::InitializeShareGroupState => ("InitializeShareGroupState", 0, 0, 0),
            Self::ReadShareGroupState => ("ReadShareGroupState", 0, 0, 0),
            Self::WriteShareGroupState => ("WriteShareGroupState", 0, 1, 0),
            Self::DeleteShareGroupState => ("DeleteShareGroupState", 0, 0, 0),
            Self::ReadShareGroupStateSummary => ("ReadShareGroupStateSummary", 0, 1, 0),
            Self::StreamsGroupHeartbeat => ("StreamsGroupHeartbeat", 0, 0, 0),
            Self::StreamsGroupDescribe => ("StreamsGroupDescribe", 0, 0, 0),
            Self::DescribeShareGroupOffsets => ("DescribeShareGroupOffsets", 0, 1, 0),
            Self::AlterShareGroupOffsets => ("AlterShareGroupOffsets", 0, 0, 0),
            Self::DeleteShareGroupOffsets => ("DeleteShareGroupOffsets", 0, 0, 0),
        }
    }
}

impl TryFrom<i16> for ApiKey {
    type Error = DecodeError;

    #[expect(clippy::too_many_lines, reason = "a table")]
    fn try_from(key: i16) -> Result<Self, Self::Error> {
        Ok(match key {
            0 => Self::Produce,
            1 => Self::Fetch,
            2 => Self::ListOffsets,
            3 => Self::Metadata,
            8 => Self::OffsetCommit,
            9 => Self::OffsetFetch,
            10 => Self::FindCoordinator,
            11 => Self::JoinGroup,
            12 => Self::Heartbeat,
            13 => Self::LeaveGroup,
            14 => Self::SyncGroup,
            15 => Self::DescribeGroups,
            16 => Self::ListGroups,
            17 => Self::SaslHandshake,
            18 => Self::ApiVersions,
            19 => Self::CreateTopics,
            20 => Self::DeleteTopics,
            21 => Self::DeleteRecords,
            22 => Self::InitProducerId,
            23 => Self::OffsetForLeaderEpoch,
            24 => Self::AddPartitionsToTxn,
            25 => Self::AddOffsetsToTxn,
            26 => Self::EndTxn,
            27 => Self::WriteTxnMarkers,
            28 => Self::TxnOffsetCommit,
            29 => Self::DescribeAcls,
            30 => Self::CreateAcls,
            31 => Self::DeleteAcls,
            32 => Self::DescribeConfigs,
            33 => Self::AlterConfigs,
            34 => Self::AlterReplicaLogDirs,
            35 => Self::DescribeLogDirs,
            36 => Self::SaslAuthenticate,
            37 => Self::CreatePartitions,
            38 => Self::CreateDelegationToken,
            39 => Self::RenewDelegationToken,
            40 => Self::ExpireDelegationToken,
            41 => Self::DescribeDelegationToken,
            42 => Self::DeleteGroups,
            43 => Self::ElectLeaders,
            44 => Self::IncrementalAlterConfigs,
            45 => Self::AlterPartitionReassignments,
            46 => Self::ListPartitionReassignments,
            47 => Self::OffsetDelete,
            48 => Self::DescribeClientQuotas,
            49 => Self::AlterClientQuotas,
            50 => Self::DescribeUserScramCredentials,
            51 => Self::AlterUserScramCredentials,
            55 => Self::DescribeQuorum,
            57 => Self::UpdateFeatures,
            60 => Self::DescribeCluster,
            61 => Self::DescribeProducers,
            64 => Self::UnregisterBroker,
            65 => Self::DescribeTransactions,
            66 => Self::ListTransactions,
            68 => Self::ConsumerGroupHeartbeat,
            69 => Self::ConsumerGroupDescribe,
            71 => Self::GetTelemetrySubscriptions,
            72 => Self::PushTelemetry,
            74 => Self::ListConfigResources,
            75 => Self::DescribeTopicPartitions,
            76 => Self::ShareGroupHeartbeat,
            77 => Self::ShareGroupDescribe,
            78 => Self::ShareFetch,
            79 => Self::ShareAcknowledge,
            80 => Self::AddRaftVoter,
            81 => Self::RemoveRaftVoter,
            83 => Self::InitializeShareGroupState,
            84 => Self::ReadShareGroupState,
            85 => Self::WriteShareGroupState,
            86 => Self::DeleteShareGroupState,
            87 => Self::ReadShareGroupStateSummary,
            88 => Self::StreamsGroupHeartbeat,
            89 => Self::StreamsGroupDescribe,
            90 => Self::DescribeShareGroupOffsets,
            91 => Self::AlterShareGroupOffsets,
            92 => Self::DeleteShareGroupOffsets,
            _ => return Err(DecodeError::UnknownApi { key }),
        })
    }
}
