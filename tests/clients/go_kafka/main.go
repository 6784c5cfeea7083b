// Kafka's clients for Go: everyday use of each.
//
// Usage: kafka LIBRARY HOST:PORT, where LIBRARY is franz-go, franz-go-assigned (in groups whose partitions the broker
// assigns), franz-go-share (in share groups), sarama or kafka-go.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	partitions = 4
	startMs    = 1_700_000_000_000
	// Guard against a hanging test; no step here needs to be quick.
	limit = time.Minute

	invalidTopic    = 17
	messageTooLarge = 10
)

var ctx, _ = context.WithTimeout(context.Background(), 3*limit)

type header struct {
	key   string
	value string
}

type record struct {
	partition int
	offset    int64
	// nil is none.
	key, value []byte
	timeMs     int64
	headers    []header
}

// library is the part of each client that is tested. Failures other than returned errors panic.
type library interface {
	codecs() []string
	create(topic string, partitions int, config map[string]string)
	// produce sends to the partition of each record.
	produce(topic, codec string, records []record) error
	// code is Kafka's number of an error.
	code(err error) int
	// join reads the topic from its beginning, or from where the group is, and commits.
	join(group, topic string) member
	// stable is how many members a group has; -1 while it rebalances.
	stable(group string) int
	committed(group, topic string) []int64
	// after is the offset of the first record of partition 0 at or after a time.
	after(topic string, timeMs int64) int64
	administration(topic string)
	deleteGroup(group string) error
	groups() []string
}

// transactional libraries have producers with transactions.
type transactional interface {
	// transaction sends a record, and commits or aborts it.
	transaction(topic string, value []byte, commits bool)
}

type member interface {
	// next is there once it is committed.
	next() <-chan record
	leave()
}

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
		panic(fmt.Sprintf("%s: expected %v, found %v", what, expected, found))
	}
}

func eventually(what string, condition func() bool) {
	for end := time.Now().Add(limit); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			panic("it never came true: " + what)
		}
	}
}

// read takes count records from all members together, in the order of their partitions and offsets.
func read(count int, members ...member) []record {
	var all []record
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(time.After(limit))}}
	for _, member := range members {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(member.next())})
	}
	for len(all) < count {
		which, value, _ := reflect.Select(cases)
		if which == 0 {
			panic(fmt.Sprintf("%d of %d records came", len(all), count))
		}
		all = append(all, value.Interface().(record))
	}
	slices.SortStableFunc(all, func(a, b record) int {
		return 1000_000*(a.partition-b.partition) + int(a.offset-b.offset)
	})
	return all
}

// records are some that differ in everything.
func records(first, count int) []record {
	var all []record
	for number := first; number < first+count; number++ {
		one := record{
			offset:  int64(number),
			timeMs:  startMs + int64(number),
			value:   []byte(strings.Repeat(fmt.Sprintf("%d ", number), number%50+1)),
			headers: []header{{"number", fmt.Sprint(number)}, {"number", "again"}, {"empty", ""}},
		}
		if number%5 != 0 {
			one.key = fmt.Append(nil, "key ", number%7)
		}
		if number%11 == 0 {
			one.value = nil
		}
		all = append(all, one)
	}
	return all
}

func same(found, expected []record) {
	equal(len(found), len(expected), "records")
	for i, one := range found {
		// Some libraries do not tell an empty key from none.
		equal(bytes.Equal(one.key, expected[i].key), true, "key")
		equal(bytes.Equal(one.value, expected[i].value), true, "value")
		one.key, one.value = expected[i].key, expected[i].value
		equal(one, expected[i], "record")
	}
}

// codecs come back as they were sent, where the broker leaves them as they are and where it compresses anew.
func everyCodec(library library, name, config string) {
	topic := name + ".codecs." + config
	library.create(topic, 1, map[string]string{"compression.type": config})
	var sent []record
	for _, codec := range library.codecs() {
		batch := records(len(sent), 200)
		check(library.produce(topic, codec, batch))
		sent = append(sent, batch...)
	}
	reader := library.join(topic, topic)
	same(read(len(sent), reader), sent)
	reader.leave()
	equal(library.after(topic, startMs+142), 142, "the offset of a time")
}

func group(library library, name string) {
	topic, group := name+".groups", name+".group"
	library.create(topic, partitions, nil)
	number := 0
	produce := func(count int) {
		var batch []record
		for range count {
			one := record{partition: number % partitions, value: fmt.Append(nil, number), timeMs: startMs}
			batch = append(batch, one)
			number++
		}
		check(library.produce(topic, "none", batch))
	}
	expect := func(found []record, first int) {
		for i, one := range found {
			each := len(found) / partitions
			expected := first + i%each*partitions + i/each
			equal(string(one.value), fmt.Sprint(expected), "value")
		}
	}
	members := func(count int) {
		eventually(fmt.Sprint(count, " members"), func() bool { return library.stable(group) == count })
	}

	first := library.join(group, topic)
	members(1)
	second := library.join(group, topic)
	members(2)
	produce(400)
	expect(read(400, first, second), 0)
	second.leave()
	members(1)
	produce(40)
	expect(read(40, first), 400)
	first.leave()
	equal(library.committed(group, topic), []int64{110, 110, 110, 110}, "committed")

	produce(4)
	third := library.join(group, topic)
	expect(read(4, third), 440)
	third.leave()
	equal(library.committed(group, topic), []int64{111, 111, 111, 111}, "committed")
	equal(slices.Contains(library.groups(), group), true, "the group is listed")
	members(0)
	check(library.deleteGroup(group))
	equal(slices.Contains(library.groups(), group), false, "the group is listed")
}

func limits(library library, name string) {
	topic := name + ".limits"
	large := func(bytes int) []record {
		return []record{{value: make([]byte, bytes), timeMs: startMs}}
	}
	// The topic was not created.
	check(library.produce(topic, "none", large(1_000_000)))
	equal(library.code(library.produce(topic, "none", large(1_100_000))), messageTooLarge, "a large record")
	equal(library.code(library.produce("not a name", "none", large(1))), invalidTopic, "a bad name")
}

// transactions commits some records and aborts others: a reader of committed records gets the former.
func transactions(library library, sender transactional, name string) {
	topic := name + ".transactions"
	library.create(topic, 1, nil)
	for number := range 6 {
		sender.transaction(topic, []byte(strconv.Itoa(number)), number%2 == 0)
	}
	reader := library.join(name+".committed", topic)
	for _, number := range []string{"0", "2", "4"} {
		equal(string((<-reader.next()).value), number, "a committed record")
	}
	reader.leave()
}

func main() {
	name, address := os.Args[1], os.Args[2]
	if name == "franz-go-share" {
		newFranz(address, true).sharing()
		return
	}
	var library library
	switch name {
	case "franz-go":
		library = newFranz(address, false)
	case "franz-go-assigned":
		library = newFranz(address, true)
	case "sarama":
		library = newSarama(address)
	case "kafka-go":
		library = newSegmentio(address)
	default:
		panic(name + " is not here")
	}
	library.administration(name + ".admin")
	limits(library, name)
	everyCodec(library, name, "producer")
	everyCodec(library, name, "lz4")
	group(library, name)
	if sender, ok := library.(transactional); ok {
		transactions(library, sender, name)
	}
}
