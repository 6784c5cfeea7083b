//! All methods, from one table.
//!
//! A row is `Name index { field: type, … }` under its class. Types are those of AMQP: `bit`, `octet`,
//! `short`, `long`, `longlong`, `shortstr`, `longstr`, `table`. Fields named `reserved_…` are read and
//! written like others; their default is zero or empty.
//!
//! Sources: AMQP 0-9-1 XML, and RabbitMQ's extensions to it (confirm, `basic.nack`, `exchange.bind`,
//! `connection.blocked`, `connection.update-secret`, and the class `access` of AMQP 0-8).

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::decode::{DecodeError, Decoder};
use crate::encode::Encoder;
use crate::frame::FrameKind;
use crate::table::Table;

pub const CONNECTION: u16 = 10;
pub const CHANNEL: u16 = 20;
pub const ACCESS: u16 = 30;
pub const EXCHANGE: u16 = 40;
pub const QUEUE: u16 = 50;
pub const BASIC: u16 = 60;
pub const CONFIRM: u16 = 85;
pub const TX: u16 = 90;

macro_rules! methods {
    ($( $class:ident $class_constant:ident { $(
        $name:ident $index:literal $text:literal { $( $field:ident: $type:ident ),* $(,)? }
    )* } )*) => {
        $(
            /// Methods of one class.
            pub mod $class {
                use super::*;
                $(
                    #[doc = $text]
                    #[derive(Debug, Clone, PartialEq, Eq, Default)]
                    pub struct $name { $( pub $field: methods!(@type $type), )* }

                    impl $name {
                        pub(super) fn decode(d: &mut Decoder) -> Result<Self, DecodeError> {
                            let _ = &d;
                            Ok(Self { $( $field: methods!(@read d $type)?, )* })
                        }

                        pub(super) fn write(&self, e: &mut Encoder<'_>) {
                            e.u16($class_constant);
                            e.u16($index);
                            $( methods!(@write e (&self.$field) $type); )*
                        }
                    }

                    impl From<$name> for Method {
                        fn from(method: $name) -> Self {
                            methods!(@wrap $class $name method)
                        }
                    }
                )*
            }
        )*

        methods!(@enum $( $class $class_constant { $( $name $index $text )* } )*);
    };
    (@type bit) => { bool };
    (@type octet) => { u8 };
    (@type short) => { u16 };
    (@type long) => { u32 };
    (@type longlong) => { u64 };
    (@type shortstr) => { ByteString };
    (@type longstr) => { Bytes };
    (@type table) => { Table };
    (@read $d:ident bit) => { $d.bit() };
    (@read $d:ident octet) => { $d.u8() };
    (@read $d:ident short) => { $d.u16() };
    (@read $d:ident long) => { $d.u32() };
    (@read $d:ident longlong) => { $d.u64() };
    (@read $d:ident shortstr) => { $d.short_string() };
    (@read $d:ident longstr) => { $d.long_string() };
    (@read $d:ident table) => { $d.table() };
    (@write $e:ident ($value:expr) bit) => { $e.bit(*$value) };
    (@write $e:ident ($value:expr) octet) => { $e.u8(*$value) };
    (@write $e:ident ($value:expr) short) => { $e.u16(*$value) };
    (@write $e:ident ($value:expr) long) => { $e.u32(*$value) };
    (@write $e:ident ($value:expr) longlong) => { $e.u64(*$value) };
    (@write $e:ident ($value:expr) shortstr) => { $e.short_string($value) };
    (@write $e:ident ($value:expr) longstr) => { $e.long_string($value) };
    (@write $e:ident ($value:expr) table) => { $e.table($value) };
    (@wrap connection $name:ident $method:ident) => { Method::Connection(Connection::$name($method)) };
    (@wrap channel $name:ident $method:ident) => { Method::Channel(Channel::$name($method)) };
    (@wrap access $name:ident $method:ident) => { Method::Access(Access::$name($method)) };
    (@wrap exchange $name:ident $method:ident) => { Method::Exchange(Exchange::$name($method)) };
    (@wrap queue $name:ident $method:ident) => { Method::Queue(Queue::$name($method)) };
    (@wrap basic $name:ident $method:ident) => { Method::Basic(Basic::$name($method)) };
    (@wrap confirm $name:ident $method:ident) => { Method::Confirm(Confirm::$name($method)) };
    (@wrap tx $name:ident $method:ident) => { Method::Tx(Tx::$name($method)) };
    (@enum $( $class:ident $class_constant:ident { $( $name:ident $index:literal $text:literal )* } )*) => {
        classes! { $( $class $class_constant { $( $name $index $text )* } )* }
    };
}

macro_rules! classes {
    ($( $class:ident $class_constant:ident { $( $name:ident $index:literal $text:literal )* } )*) => {
        impl Method {
            /// # Errors
            /// Fails if the method is unknown or a field is invalid.
            pub fn decode(payload: Bytes) -> Result<Self, DecodeError> {
                let mut d = Decoder::new(payload);
                let class = d.u16()?;
                let method = d.u16()?;
                let decoded: Self = match (class, method) {
                    $( $( ($class_constant, $index) => $class::$name::decode(&mut d)?.into(), )* )*
                    _ => return Err(DecodeError::UnknownMethod { class, method }),
                };
                d.finish()?;
                Ok(decoded)
            }
        }

        /// Returns the name of a method by its numbers, as in `queue.declare`.
        #[must_use]
        pub fn name_of(class: u16, method: u16) -> Option<&'static str> {
            match (class, method) {
                $( $( ($class_constant, $index) => Some($text), )* )*
                _ => None,
            }
        }

        /// The numbers of all methods.
        pub const ALL: &[(u16, u16)] = &[ $( $( ($class_constant, $index), )* )* ];
    };
}

macro_rules! class_enum {
    ($( $enum:ident $class:ident $class_constant:ident { $( $name:ident $index:literal ),* } )*) => {
        /// A method.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Method {
            $( $enum($enum), )*
        }

        $(
            /// Methods of one class.
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub enum $enum { $( $name($class::$name), )* }

            impl $enum {
                fn write(&self, e: &mut Encoder<'_>) {
                    match self { $( Self::$name(method) => method.write(e), )* }
                }

                fn index(&self) -> u16 {
                    match self { $( Self::$name(_) => $index, )* }
                }
            }
        )*

        impl Method {
            pub fn write(&self, e: &mut Encoder<'_>) {
                match self { $( Self::$enum(method) => method.write(e), )* }
            }

            /// Returns the class and the method's number in it.
            #[must_use]
            pub fn id(&self) -> (u16, u16) {
                match self { $( Self::$enum(method) => ($class_constant, method.index()), )* }
            }
        }
    };
}

class_enum! {
    Connection connection CONNECTION {
        Start 10, StartOk 11, Secure 20, SecureOk 21, Tune 30, TuneOk 31, Open 40, OpenOk 41, Close 50, CloseOk 51,
        Blocked 60, Unblocked 61, UpdateSecret 70, UpdateSecretOk 71
    }
    Channel channel CHANNEL { Open 10, OpenOk 11, Flow 20, FlowOk 21, Close 40, CloseOk 41 }
    Access access ACCESS { Request 10, RequestOk 11 }
    Exchange exchange EXCHANGE {
        Declare 10, DeclareOk 11, Delete 20, DeleteOk 21, Bind 30, BindOk 31, Unbind 40, UnbindOk 51
    }
    Queue queue QUEUE {
        Declare 10, DeclareOk 11, Bind 20, BindOk 21, Purge 30, PurgeOk 31, Delete 40, DeleteOk 41, Unbind 50, UnbindOk 51
    }
    Basic basic BASIC {
        Qos 10, QosOk 11, Consume 20, ConsumeOk 21, Cancel 30, CancelOk 31, Publish 40, Return 50, Deliver 60, Get 70,
        GetOk 71, GetEmpty 72, Ack 80, Reject 90, RecoverAsync 100, Recover 110, RecoverOk 111, Nack 120
    }
    Confirm confirm CONFIRM { Select 10, SelectOk 11 }
    Tx tx TX { Select 10, SelectOk 11, Commit 20, CommitOk 21, Rollback 30, RollbackOk 31 }
}

methods! {
    connection CONNECTION {
        Start 10 "connection.start" {
            version_major: octet, version_minor: octet, server_properties: table, mechanisms: longstr, locales: longstr,
        }
        StartOk 11 "connection.start-ok" {
            client_properties: table, mechanism: shortstr, response: longstr, locale: shortstr,
        }
        Secure 20 "connection.secure" { challenge: longstr }
        SecureOk 21 "connection.secure-ok" { response: longstr }
        Tune 30 "connection.tune" { channel_max: short, frame_max: long, heartbeat: short }
        TuneOk 31 "connection.tune-ok" { channel_max: short, frame_max: long, heartbeat: short }
        Open 40 "connection.open" { virtual_host: shortstr, reserved_capabilities: shortstr, reserved_insist: bit }
        OpenOk 41 "connection.open-ok" { reserved_known_hosts: shortstr }
        Close 50 "connection.close" { reply_code: short, reply_text: shortstr, class_id: short, method_id: short }
        CloseOk 51 "connection.close-ok" {}
        Blocked 60 "connection.blocked" { reason: shortstr }
        Unblocked 61 "connection.unblocked" {}
        UpdateSecret 70 "connection.update-secret" { new_secret: longstr, reason: shortstr }
        UpdateSecretOk 71 "connection.update-secret-ok" {}
    }
    channel CHANNEL {
        Open 10 "channel.open" { reserved_out_of_band: shortstr }
        OpenOk 11 "channel.open-ok" { reserved_channel_id: longstr }
        Flow 20 "channel.flow" { active: bit }
        FlowOk 21 "channel.flow-ok" { active: bit }
        Close 40 "channel.close" { reply_code: short, reply_text: shortstr, class_id: short, method_id: short }
        CloseOk 41 "channel.close-ok" {}
    }
    access ACCESS {
        Request 10 "access.request" {
            realm: shortstr, exclusive: bit, passive: bit, active: bit, write: bit, read: bit,
        }
        RequestOk 11 "access.request-ok" { ticket: short }
    }
    exchange EXCHANGE {
        Declare 10 "exchange.declare" {
            reserved_ticket: short, exchange: shortstr, kind: shortstr, passive: bit, durable: bit, auto_delete: bit,
            internal: bit, no_wait: bit, arguments: table,
        }
        DeclareOk 11 "exchange.declare-ok" {}
        Delete 20 "exchange.delete" { reserved_ticket: short, exchange: shortstr, if_unused: bit, no_wait: bit }
        DeleteOk 21 "exchange.delete-ok" {}
        Bind 30 "exchange.bind" {
            reserved_ticket: short, destination: shortstr, source: shortstr, routing_key: shortstr, no_wait: bit,
            arguments: table,
        }
        BindOk 31 "exchange.bind-ok" {}
        Unbind 40 "exchange.unbind" {
            reserved_ticket: short, destination: shortstr, source: shortstr, routing_key: shortstr, no_wait: bit,
            arguments: table,
        }
        UnbindOk 51 "exchange.unbind-ok" {}
    }
    queue QUEUE {
        Declare 10 "queue.declare" {
            reserved_ticket: short, queue: shortstr, passive: bit, durable: bit, exclusive: bit, auto_delete: bit,
            no_wait: bit, arguments: table,
        }
        DeclareOk 11 "queue.declare-ok" { queue: shortstr, message_count: long, consumer_count: long }
        Bind 20 "queue.bind" {
            reserved_ticket: short, queue: shortstr, exchange: shortstr, routing_key: shortstr, no_wait: bit,
            arguments: table,
        }
        BindOk 21 "queue.bind-ok" {}
        Purge 30 "queue.purge" { reserved_ticket: short, queue: shortstr, no_wait: bit }
        PurgeOk 31 "queue.purge-ok" { message_count: long }
        Delete 40 "queue.delete" {
            reserved_ticket: short, queue: shortstr, if_unused: bit, if_empty: bit, no_wait: bit,
        }
        DeleteOk 41 "queue.delete-ok" { message_count: long }
        Unbind 50 "queue.unbind" {
            reserved_ticket: short, queue: shortstr, exchange: shortstr, routing_key: shortstr, arguments: table,
        }
        UnbindOk 51 "queue.unbind-ok" {}
    }
    basic BASIC {
        Qos 10 "basic.qos" { prefetch_size: long, prefetch_count: short, global: bit }
        QosOk 11 "basic.qos-ok" {}
        Consume 20 "basic.consume" {
            reserved_ticket: short, queue: shortstr, consumer_tag: shortstr, no_local: bit, no_ack: bit, exclusive: bit,
            no_wait: bit, arguments: table,
        }
        ConsumeOk 21 "basic.consume-ok" { consumer_tag: shortstr }
        Cancel 30 "basic.cancel" { consumer_tag: shortstr, no_wait: bit }
        CancelOk 31 "basic.cancel-ok" { consumer_tag: shortstr }
        Publish 40 "basic.publish" {
            reserved_ticket: short, exchange: shortstr, routing_key: shortstr, mandatory: bit, immediate: bit,
        }
        Return 50 "basic.return" {
            reply_code: short, reply_text: shortstr, exchange: shortstr, routing_key: shortstr,
        }
        Deliver 60 "basic.deliver" {
            consumer_tag: shortstr, delivery_tag: longlong, redelivered: bit, exchange: shortstr, routing_key: shortstr,
        }
        Get 70 "basic.get" { reserved_ticket: short, queue: shortstr, no_ack: bit }
        GetOk 71 "basic.get-ok" {
            delivery_tag: longlong, redelivered: bit, exchange: shortstr, routing_key: shortstr, message_count: long,
        }
        GetEmpty 72 "basic.get-empty" { reserved_cluster_id: shortstr }
        Ack 80 "basic.ack" { delivery_tag: longlong, multiple: bit }
        Reject 90 "basic.reject" { delivery_tag: longlong, requeue: bit }
        RecoverAsync 100 "basic.recover-async" { requeue: bit }
        Recover 110 "basic.recover" { requeue: bit }
        RecoverOk 111 "basic.recover-ok" {}
        Nack 120 "basic.nack" { delivery_tag: longlong, multiple: bit, requeue: bit }
    }
    confirm CONFIRM {
        Select 10 "confirm.select" { no_wait: bit }
        SelectOk 11 "confirm.select-ok" {}
    }
    tx TX {
        Select 10 "tx.select" {}
        SelectOk 11 "tx.select-ok" {}
        Commit 20 "tx.commit" {}
        CommitOk 21 "tx.commit-ok" {}
        Rollback 30 "tx.rollback" {}
        RollbackOk 31 "tx.rollback-ok" {}
    }
}

impl Method {
    /// Writes the method as a frame.
    pub fn encode(&self, channel: u16, out: &mut BytesMut) {
        Encoder::frame(out, FrameKind::Method, channel, |e| self.write(e));
    }

    /// Returns the name, as in `queue.declare`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let (class, method) = self.id();
        name_of(class, method).unwrap_or("?")
    }
}
