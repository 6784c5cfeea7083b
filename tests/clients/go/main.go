// amqp091-go: everyday use, and a kill of the broker in the middle.
//
// Usage: main HOST:PORT. Prints `kill` when the broker may be killed, and continues after a line on stdin.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var ctx = context.Background()

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func equal[T any](found, expected T, what string) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("%s: expected %#v, found %#v", what, expected, found))
	}
}

func declare(channel *amqp.Channel, name string, durable bool, arguments amqp.Table) amqp.Queue {
	return must(channel.QueueDeclare(name, durable, false, false, false, arguments))
}

func waiting(channel *amqp.Channel, name string) int {
	return must(channel.QueueDeclarePassive(name, false, false, false, false, nil)).Messages
}

func consume(channel *amqp.Channel, queue, tag string) <-chan amqp.Delivery {
	return must(channel.Consume(queue, tag, false, false, false, false, nil))
}

// publish returns when the message is confirmed.
func publish(channel *amqp.Channel, exchange, key string, mandatory bool, message amqp.Publishing) {
	confirm := must(channel.PublishWithDeferredConfirmWithContext(ctx, exchange, key, mandatory, false, message))
	if !confirm.Wait() {
		panic("it was not confirmed")
	}
}

func text(body string) amqp.Publishing {
	return amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}
}

func confirmsAndReturns(channel *amqp.Channel) {
	var confirms []*amqp.DeferredConfirmation
	for number := 0; number < 100; number++ {
		message := text(fmt.Sprint(number))
		confirms = append(confirms, must(channel.PublishWithDeferredConfirmWithContext(ctx, "go", "key", false, false, message)))
	}
	for _, confirm := range confirms {
		equal(confirm.Wait(), true, "confirmed")
	}
	equal(waiting(channel, "go"), 100, "waiting")

	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	publish(channel, "go", "nowhere", true, text("lost"))
	returned := <-returns
	equal(returned.ReplyCode, uint16(312), "the code of a return")
	equal(string(returned.Body), "lost", "what came back")
}

func prefetchAndRequeue(channel *amqp.Channel) {
	check(channel.Qos(2, 0, false))
	deliveries := consume(channel, "go", "worker")
	first, second := <-deliveries, <-deliveries
	equal(waiting(channel, "go"), 98, "waiting: no more than two are handed out at once")
	check(first.Nack(false, true))
	again := <-deliveries
	equal(string(again.Body), "0", "what was given back")
	equal([]bool{first.Redelivered, again.Redelivered}, []bool{false, true}, "redelivered")
	check(second.Ack(false))
	check(again.Ack(false))
	for number := 2; number < 100; number++ {
		delivery := <-deliveries
		equal(string(delivery.Body), fmt.Sprint(number), "in order")
		check(delivery.Ack(false))
	}
	check(channel.Cancel("worker", false))
}

func deadLetters(channel *amqp.Channel) {
	declare(channel, "go.dead", false, nil)
	declare(channel, "go.short", false, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "go.dead"})
	check(channel.PublishWithContext(ctx, "", "go.short", false, false, text("unwanted")))
	refused := <-consume(channel, "go.short", "refusing")
	check(refused.Reject(false))
	dead := <-consume(channel, "go.dead", "dead")
	equal(string(dead.Body), "unwanted", "the dead letter")
	death := dead.Headers["x-death"].([]interface{})[0].(amqp.Table)
	equal(death["queue"].(string), "go.short", "where it died")
	equal(death["reason"].(string), "rejected", "why it died")
	equal(death["count"].(int64), int64(1), "how often it died")
	equal(death["routing-keys"].([]interface{}), []interface{}{"go.short"}, "its routing keys")
	check(dead.Ack(false))
	check(channel.Cancel("refusing", false))
	check(channel.Cancel("dead", false))
}

func cancelNotification(channel, other *amqp.Channel) {
	declare(channel, "go.fleeting", false, nil)
	cancelled := channel.NotifyCancel(make(chan string, 1))
	deliveries := consume(channel, "go.fleeting", "watcher")
	must(other.QueueDelete("go.fleeting", false, false, false))
	equal(<-cancelled, "watcher", "the consumer that is told")
	_, open := <-deliveries
	equal(open, false, "its deliveries have an end")
}

func bodiesAndHeaders(channel *amqp.Channel) {
	declare(channel, "go.all", true, nil)
	large := bytes.Repeat([]byte("stafett"), 700_000)
	publish(channel, "", "go.all", false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: large})
	all := amqp.Publishing{
		Headers: amqp.Table{
			"text":      "å",
			"yes":       true,
			"int8":      int8(-100),
			"byte":      byte(200),
			"int16":     int16(-30_000),
			"int32":     int32(-2_000_000_000),
			"int64":     int64(1) << 60,
			"float":     float32(1.5),
			"double":    0.1,
			"decimal":   amqp.Decimal{Scale: 2, Value: 314},
			"timestamp": time.Unix(1_700_000_000, 0),
			"bytes":     []byte{0, 255},
			"nothing":   nil,
			"list":      []interface{}{int32(1), "two", []interface{}{int32(3)}},
			"table":     amqp.Table{"a": amqp.Table{"b": "c"}},
		},
		ContentType:     "text/plain",
		ContentEncoding: "utf-8",
		DeliveryMode:    amqp.Persistent,
		Priority:        3,
		CorrelationId:   "c",
		ReplyTo:         "r",
		Expiration:      "600000",
		MessageId:       "m",
		Timestamp:       time.Unix(1_700_000_000, 0),
		Type:            "t",
		UserId:          "guest",
		AppId:           "a",
		Body:            []byte{},
	}
	publish(channel, "", "go.all", false, all)

	first, _, err := channel.Get("go.all", true)
	check(err)
	equal(bytes.Equal(first.Body, large), true, "a large body")
	second, _, err := channel.Get("go.all", true)
	check(err)
	for name, value := range all.Headers {
		equal(second.Headers[name], value, name)
	}
	equal(len(second.Headers), len(all.Headers), "headers")
	found := amqp.Publishing{
		Headers: all.Headers, ContentType: second.ContentType, ContentEncoding: second.ContentEncoding,
		DeliveryMode: second.DeliveryMode, Priority: second.Priority, CorrelationId: second.CorrelationId,
		ReplyTo: second.ReplyTo, Expiration: second.Expiration, MessageId: second.MessageId, Timestamp: second.Timestamp,
		Type: second.Type, UserId: second.UserId, AppId: second.AppId, Body: all.Body,
	}
	equal(found, all, "properties")
	equal(len(second.Body), 0, "an empty body")
}

func outlivesAKill(address string, connection *amqp.Connection, channel *amqp.Channel) {
	declare(channel, "go.kept", true, nil)
	for number := 0; number < 10; number++ {
		publish(channel, "", "go.kept", false, text(fmt.Sprint(number)))
	}
	_, _, err := channel.Get("go.kept", false)
	check(err)
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	fmt.Println("kill")
	if reason := <-closed; reason == nil {
		panic("the connection was closed, not lost")
	}
	must(bufio.NewReader(os.Stdin).ReadString('\n'))

	again := must(amqp.Dial(address))
	restored := must(again.Channel())
	equal(waiting(restored, "go.kept"), 10, "waiting after the kill")
	deliveries := consume(restored, "go.kept", "")
	for number := 0; number < 10; number++ {
		delivery := <-deliveries
		equal(string(delivery.Body), fmt.Sprint(number), "in order after the kill")
		equal(number > 0 || delivery.Redelivered, true, "it was handed out before")
		check(delivery.Ack(false))
	}
	check(restored.ExchangeDeclarePassive("go", "direct", true, false, false, false, nil))
	check(again.Close())
}

func main() {
	address := "amqp://guest:guest@" + os.Args[1]
	connection := must(amqp.Dial(address))
	channel, other := must(connection.Channel()), must(connection.Channel())
	check(channel.Confirm(false))
	check(channel.ExchangeDeclare("go", "direct", true, false, false, false, nil))
	declare(channel, "go", true, nil)
	check(channel.QueueBind("go", "key", "go", false, nil))
	confirmsAndReturns(channel)
	prefetchAndRequeue(other)
	deadLetters(other)
	cancelNotification(other, channel)
	bodiesAndHeaders(channel)
	outlivesAKill(address, connection, channel)
}
