//! lapin: everyday use, and a kill of the broker in the middle.
//!
//! Usage: `stafett-lapin-test HOST:PORT`. Prints `kill` when the broker may be killed, and continues after a
//! line on stdin.

use futures_lite::StreamExt;
use lapin::message::{BasicGetMessage, Delivery};
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions,
    BasicPublishOptions, BasicQosOptions, BasicRejectOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, DecimalValue, FieldTable, ShortString};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, ExchangeKind,
};

type Done = Result<(), Box<dyn std::error::Error>>;

fn persistent() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

fn durable() -> QueueDeclareOptions {
    QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    }
}

async fn declare(channel: &Channel, name: &str, options: QueueDeclareOptions) -> Done {
    channel
        .queue_declare(name.into(), options, FieldTable::default())
        .await?;
    Ok(())
}

async fn waiting(channel: &Channel, name: &str) -> Result<u32, lapin::Error> {
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let queue = channel
        .queue_declare(name.into(), passive, FieldTable::default())
        .await?;
    Ok(queue.message_count())
}

async fn consume(channel: &Channel, queue: &str, tag: &str) -> Result<Consumer, lapin::Error> {
    let options = BasicConsumeOptions::default();
    channel
        .basic_consume(queue.into(), tag.into(), options, FieldTable::default())
        .await
}

async fn next(consumer: &mut Consumer) -> Result<Delivery, Box<dyn std::error::Error>> {
    Ok(consumer.next().await.ok_or("the consumer has ended")??)
}

/// Publishes and returns the broker's confirm.
async fn publish(
    channel: &Channel,
    (exchange, key): (&str, &str),
    mandatory: bool,
    body: &[u8],
    properties: BasicProperties,
) -> Result<Confirmation, lapin::Error> {
    let options = BasicPublishOptions {
        mandatory,
        ..BasicPublishOptions::default()
    };
    channel
        .basic_publish(exchange.into(), key.into(), options, body, properties)
        .await?
        .await
}

fn is_stored(confirmation: &Confirmation) -> bool {
    matches!(confirmation, Confirmation::Ack(None))
}

async fn confirms_and_returns(channel: &Channel) -> Done {
    let mut confirms = Vec::new();
    for number in 0..100 {
        let body = number.to_string();
        let options = BasicPublishOptions::default();
        let confirm = channel
            .basic_publish(
                "lapin".into(),
                "key".into(),
                options,
                body.as_bytes(),
                persistent(),
            )
            .await?;
        confirms.push(confirm);
    }
    for confirm in confirms {
        assert!(is_stored(&confirm.await?));
    }
    assert_eq!(waiting(channel, "lapin").await?, 100);

    match publish(channel, ("lapin", "nowhere"), true, b"lost", persistent()).await? {
        Confirmation::Ack(Some(returned)) => {
            assert_eq!(returned.reply_code, 312);
            assert_eq!(returned.delivery.data, b"lost");
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

async fn prefetch_and_requeue(channel: &Channel) -> Done {
    channel.basic_qos(2, BasicQosOptions::default()).await?;
    let mut consumer = consume(channel, "lapin", "worker").await?;
    let (first, second) = (next(&mut consumer).await?, next(&mut consumer).await?);
    assert_eq!(waiting(channel, "lapin").await?, 98, "no more than two at once");
    let requeue = BasicNackOptions {
        requeue: true,
        ..BasicNackOptions::default()
    };
    first.nack(requeue).await?;
    let again = next(&mut consumer).await?;
    assert_eq!(again.data, b"0");
    assert_eq!((first.redelivered, again.redelivered), (false, true));
    second.ack(BasicAckOptions::default()).await?;
    again.ack(BasicAckOptions::default()).await?;
    for number in 2..100 {
        let delivery = next(&mut consumer).await?;
        assert_eq!(delivery.data, number.to_string().as_bytes());
        delivery.ack(BasicAckOptions::default()).await?;
    }
    channel
        .basic_cancel("worker".into(), BasicCancelOptions::default())
        .await?;
    Ok(())
}

async fn dead_letters(channel: &Channel) -> Done {
    declare(channel, "lapin.dead", QueueDeclareOptions::default()).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    arguments.insert(
        "x-dead-letter-routing-key".into(),
        AMQPValue::LongString("lapin.dead".into()),
    );
    channel
        .queue_declare("lapin.short".into(), QueueDeclareOptions::default(), arguments)
        .await?;
    publish(channel, ("", "lapin.short"), false, b"unwanted", persistent()).await?;
    let mut short = consume(channel, "lapin.short", "refusing").await?;
    next(&mut short)
        .await?
        .reject(BasicRejectOptions::default())
        .await?;
    let mut consumer = consume(channel, "lapin.dead", "dead").await?;
    let dead = next(&mut consumer).await?;
    assert_eq!(dead.data, b"unwanted");
    let headers = dead.properties.headers().as_ref().ok_or("no headers")?;
    let Some(AMQPValue::FieldArray(deaths)) = headers.inner().get("x-death") else {
        panic!("{headers:?}");
    };
    let Some(AMQPValue::FieldTable(death)) = deaths.as_slice().first() else {
        panic!("{deaths:?}");
    };
    let expected = [
        ("queue", AMQPValue::LongString("lapin.short".into())),
        ("reason", AMQPValue::LongString("rejected".into())),
        ("count", AMQPValue::LongLongInt(1)),
    ];
    for (name, value) in expected {
        assert_eq!(death.inner().get(name), Some(&value));
    }
    dead.ack(BasicAckOptions::default()).await?;
    for tag in ["refusing", "dead"] {
        channel
            .basic_cancel(tag.into(), BasicCancelOptions::default())
            .await?;
    }
    Ok(())
}

async fn cancel_notification(channel: &Channel, other: &Channel) -> Done {
    declare(channel, "lapin.fleeting", QueueDeclareOptions::default()).await?;
    let mut consumer = consume(channel, "lapin.fleeting", "watcher").await?;
    other
        .queue_delete("lapin.fleeting".into(), QueueDeleteOptions::default())
        .await?;
    assert!(consumer.next().await.is_none(), "its deliveries have an end");
    Ok(())
}

fn headers_of_every_type() -> FieldTable {
    let mut inner = FieldTable::default();
    inner.insert("b".into(), AMQPValue::LongString("c".into()));
    let list = vec![AMQPValue::LongInt(1), AMQPValue::LongString("two".into())];
    let values = [
        ("text", AMQPValue::LongString("å".into())),
        ("yes", AMQPValue::Boolean(true)),
        ("int8", AMQPValue::ShortShortInt(-100)),
        ("uint8", AMQPValue::ShortShortUInt(200)),
        ("int16", AMQPValue::ShortInt(-30_000)),
        ("uint16", AMQPValue::ShortUInt(60_000)),
        ("int32", AMQPValue::LongInt(-2_000_000_000)),
        ("uint32", AMQPValue::LongUInt(4_000_000_000)),
        ("int64", AMQPValue::LongLongInt(1 << 60)),
        ("float", AMQPValue::Float(1.5)),
        ("double", AMQPValue::Double(0.1)),
        (
            "decimal",
            AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 }),
        ),
        ("timestamp", AMQPValue::Timestamp(1_700_000_000)),
        ("bytes", AMQPValue::ByteArray(vec![0, 255].into())),
        ("nothing", AMQPValue::Void),
        ("list", AMQPValue::FieldArray(list.into())),
        ("table", AMQPValue::FieldTable(inner)),
    ];
    let mut headers = FieldTable::default();
    for (name, value) in values {
        headers.insert(name.into(), value);
    }
    headers
}

async fn get(channel: &Channel, queue: &str) -> Result<BasicGetMessage, Box<dyn std::error::Error>> {
    let options = BasicGetOptions { no_ack: true };
    Ok(channel
        .basic_get(queue.into(), options)
        .await?
        .ok_or("the queue is empty")?)
}

async fn bodies_and_headers(channel: &Channel) -> Done {
    declare(channel, "lapin.all", durable()).await?;
    let large = b"stafett".repeat(700_000);
    let stored = publish(channel, ("", "lapin.all"), false, &large, persistent()).await?;
    assert!(is_stored(&stored));
    let short = |text: &str| ShortString::from(text);
    let all = BasicProperties::default()
        .with_headers(headers_of_every_type())
        .with_content_type(short("text/plain"))
        .with_content_encoding(short("utf-8"))
        .with_delivery_mode(2)
        .with_priority(3)
        .with_correlation_id(short("c"))
        .with_reply_to(short("r"))
        .with_expiration(short("600000"))
        .with_message_id(short("m"))
        .with_timestamp(1_700_000_000)
        .with_type(short("t"))
        .with_user_id(short("guest"))
        .with_app_id(short("a"));
    publish(channel, ("", "lapin.all"), false, b"", all.clone()).await?;
    assert_eq!(get(channel, "lapin.all").await?.delivery.data, large);
    let second = get(channel, "lapin.all").await?.delivery;
    assert!(second.data.is_empty());
    assert_eq!(second.properties, all);
    Ok(())
}

async fn outlives_a_kill(uri: &str, channel: &Channel) -> Done {
    declare(channel, "lapin.kept", durable()).await?;
    for number in 0..10 {
        let body = number.to_string();
        let stored = publish(channel, ("", "lapin.kept"), false, body.as_bytes(), persistent());
        assert!(is_stored(&stored.await?));
    }
    channel
        .basic_get("lapin.kept".into(), BasicGetOptions::default())
        .await?;
    let mut lost = consume(channel, "lapin.kept", "until the kill").await?;
    println!("kill");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    // Deliveries from before the kill, then the error.
    while let Some(Ok(_)) = lost.next().await {}

    let again = Connection::connect(uri, ConnectionProperties::default()).await?;
    let restored = again.create_channel().await?;
    assert_eq!(waiting(&restored, "lapin.kept").await?, 10);
    let mut consumer = consume(&restored, "lapin.kept", "").await?;
    for number in 0..10 {
        let delivery = next(&mut consumer).await?;
        assert_eq!(delivery.data, number.to_string().as_bytes());
        assert!(number > 0 || delivery.redelivered, "it was handed out before");
        delivery.ack(BasicAckOptions::default()).await?;
    }
    again.close(200, "done".into()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Done {
    let address = std::env::args()
        .nth(1)
        .ok_or("usage: stafett-lapin-test HOST:PORT")?;
    let uri = format!("amqp://guest:guest@{address}/%2f");
    let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
    let (channel, other) = (
        connection.create_channel().await?,
        connection.create_channel().await?,
    );
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let exchange = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    channel
        .exchange_declare(
            "lapin".into(),
            ExchangeKind::Direct,
            exchange,
            FieldTable::default(),
        )
        .await?;
    declare(&channel, "lapin", durable()).await?;
    channel
        .queue_bind(
            "lapin".into(),
            "lapin".into(),
            "key".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await?;
    confirms_and_returns(&channel).await?;
    prefetch_and_requeue(&other).await?;
    dead_letters(&other).await?;
    cancel_notification(&other, &channel).await?;
    bodies_and_headers(&channel).await?;
    outlives_a_kill(&uri, &channel).await
}
