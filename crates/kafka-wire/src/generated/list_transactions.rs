//! `ListTransactions`, generated from Kafka 4.3.1 by `tools/kafka-codegen`: do not edit.

use super::prelude::*;

#[derive(Debug, Clone, PartialEq)]
pub struct ListTransactionsRequest {
    pub state_filters: Vec<Str>,
    pub producer_id_filters: Vec<i64>,
    /// In versions 1 and up.
    pub duration_filter: i64,
    /// In versions 2 and up.
    pub transactional_id_pattern: Option<Str>,
}

impl Default for ListTransactionsRequest {
    fn default() -> Self {
        Self {
            state_filters: Vec::new(),
            producer_id_filters: Vec::new(),
            duration_filter: -1,
            transactional_id_pattern: None,
        }
    }
}

impl Wire for ListTransactionsRequest {
    const BYTES_MIN: usize = 3;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            state_filters: d.strings(true)?,
            producer_id_filters: d.array(v, true)?,
            duration_filter: if v >= 1 { d.i64()? } else { -1 },
            transactional_id_pattern: if v >= 2 { d.opt_string(true, true)? } else { None },
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.strings(&self.state_filters, true);
        e.array(&self.producer_id_filters, v, true);
        if v >= 1 {
            e.i64(self.duration_filter);
        } else {
            e.unsupported("duration_filter", v, self.duration_filter != -1);
        }
        if v >= 2 {
            e.opt_string(self.transactional_id_pattern.as_ref(), true);
        } else {
            e.unsupported(
                "transactional_id_pattern",
                v,
                self.transactional_id_pattern.is_some(),
            );
        }
        e.tags(&[]);
    }
}

impl Message for ListTransactionsRequest {
    const NAME: &'static str = "ListTransactionsRequest";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}

impl Request for ListTransactionsRequest {
    const KEY: ApiKey = ApiKey::ListTransactions;
    type Response = ListTransactionsResponse;
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListTransactionsResponse {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub unknown_state_filters: Vec<Str>,
    pub transaction_states: Vec<TransactionState>,
}

impl Wire for ListTransactionsResponse {
    const BYTES_MIN: usize = 9;

    fn decode(d: &mut Decoder, v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            throttle_time_ms: d.i32()?,
            error_code: d.i16()?,
            unknown_state_filters: d.strings(true)?,
            transaction_states: d.array(v, true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, v: i16) {
        e.i32(self.throttle_time_ms);
        e.i16(self.error_code);
        e.strings(&self.unknown_state_filters, true);
        e.array(&self.transaction_states, v, true);
        e.tags(&[]);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TransactionState {
    pub transactional_id: Str,
    pub producer_id: i64,
    pub transaction_state: Str,
}

impl Wire for TransactionState {
    const BYTES_MIN: usize = 11;

    fn decode(d: &mut Decoder, _v: i16) -> Result<Self, DecodeError> {
        let m = Self {
            transactional_id: d.string(true)?,
            producer_id: d.i64()?,
            transaction_state: d.string(true)?,
        };
        d.no_tags()?;
        Ok(m)
    }

    fn encode(&self, e: &mut Encoder, _v: i16) {
        e.string(&self.transactional_id, true);
        e.i64(self.producer_id);
        e.string(&self.transaction_state, true);
        e.tags(&[]);
    }
}

impl Message for ListTransactionsResponse {
    const NAME: &'static str = "ListTransactionsResponse";
    const VERSIONS: VersionRange = VersionRange::new(0, 2);
    const FLEXIBLE_FROM: i16 = 0;
}
