// franz-go.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	address string
	// True if the broker assigns partitions.
	assigned bool
	admin    *kadm.Client
}

func newFranz(address string, assigned bool) *franz {
	f := &franz{address: address, assigned: assigned}
	f.admin = kadm.NewClient(f.client())
	return f
}

func (f *franz) client(options ...kgo.Opt) *kgo.Client {
	return must(kgo.NewClient(append(options, kgo.SeedBrokers(f.address))...))
}

func (f *franz) codecs() []string {
	return []string{"none", "gzip", "snappy", "lz4", "zstd"}
}

func (f *franz) create(topic string, partitions int, config map[string]string) {
	values := map[string]*string{}
	for name, value := range config {
		values[name] = &value
	}
	created := must(f.admin.CreateTopic(ctx, int32(partitions), 1, values, topic))
	check(created.Err)
}

// Its producers are idempotent.
func (f *franz) produce(topic, codec string, records []record) error {
	compression := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	client := f.client(
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(compression[codec]),
		kgo.ProducerBatchMaxBytes(2<<20),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	defer client.Close()
	var sent []*kgo.Record
	for _, one := range records {
		record := &kgo.Record{
			Topic:     topic,
			Partition: int32(one.partition),
			Key:       one.key,
			Value:     one.value,
			Timestamp: time.UnixMilli(one.timeMs),
		}
		for _, header := range one.headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.key, Value: []byte(header.value)})
		}
		sent = append(sent, record)
	}
	return client.ProduceSync(ctx, sent...).FirstErr()
}

func (f *franz) code(err error) int {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return int(kafka.Code)
	}
	panic(err)
}

type franzMember struct {
	client *kgo.Client
	come   chan record
	stop   context.CancelFunc
	ended  chan struct{}
}

func (f *franz) join(group, topic string) member {
	options := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}
	if f.assigned {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	run, stop := context.WithCancel(ctx)
	member := &franzMember{f.client(options...), make(chan record), stop, make(chan struct{})}
	go member.run(run)
	return member
}

func (m *franzMember) run(run context.Context) {
	defer close(m.ended)
	for {
		fetched := m.client.PollFetches(run)
		if run.Err() != nil {
			return
		}
		check(fetched.Err())
		check(m.client.CommitRecords(ctx, fetched.Records()...))
		for _, one := range fetched.Records() {
			record := record{
				partition: int(one.Partition),
				offset:    one.Offset,
				key:       one.Key,
				value:     one.Value,
				timeMs:    one.Timestamp.UnixMilli(),
			}
			for _, found := range one.Headers {
				record.headers = append(record.headers, header{found.Key, string(found.Value)})
			}
			select {
			case m.come <- record:
			case <-run.Done():
				return
			}
		}
	}
}

func (m *franzMember) next() <-chan record { return m.come }

func (m *franzMember) leave() {
	m.stop()
	<-m.ended
	m.client.Close()
}

func (f *franz) stable(group string) int {
	var state string
	var members int
	var err error
	if f.assigned {
		described := must(f.admin.DescribeConsumerGroups(ctx, group))[group]
		state, members, err = described.State, len(described.Members), described.Err
	} else {
		described := must(f.admin.DescribeGroups(ctx, group))[group]
		state, members, err = described.State, len(described.Members), described.Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0
	}
	check(err)
	if state != "Stable" && state != "Empty" {
		return -1
	}
	return members
}

func (f *franz) committed(group, topic string) []int64 {
	var offsets []int64
	for _, one := range must(f.admin.FetchOffsets(ctx, group)).Sorted() {
		check(one.Err)
		offsets = append(offsets, one.At)
	}
	return offsets
}

func (f *franz) after(topic string, timeMs int64) int64 {
	found, _ := must(f.admin.ListOffsetsAfterMilli(ctx, timeMs, topic)).Lookup(topic, 0)
	check(found.Err)
	return found.Offset
}

func (f *franz) administration(topic string) {
	f.create(topic, 2, map[string]string{"retention.ms": "70000"})
	_, err := f.admin.CreateTopic(ctx, 2, 1, nil, topic)
	equal(f.code(err), 36, "a topic that is there")
	check(must(f.admin.CreatePartitions(ctx, 1, topic)).Error())
	value := "5000"
	changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}
	_, err = must(f.admin.AlterTopicConfigs(ctx, changes, topic)).On(topic, nil)
	check(err)
	config := map[string]string{}
	for _, one := range must(must(f.admin.DescribeTopicConfigs(ctx, topic)).On(topic, nil)).Configs {
		config[one.Key] = one.MaybeValue()
	}
	equal(config["retention.ms"], "70000", "retention.ms")
	equal(config["max.message.bytes"], "5000", "max.message.bytes")
	details := must(f.admin.ListTopics(ctx, topic))[topic]
	check(details.Err)
	equal(len(details.Partitions), 3, "partitions")

	check(f.produce(topic, "none", records(0, 10)))
	var until kadm.Offsets
	until.AddOffset(topic, 0, 4, -1)
	check(must(f.admin.DeleteRecords(ctx, until)).Error())
	start, _ := must(f.admin.ListStartOffsets(ctx, topic)).Lookup(topic, 0)
	equal(start.Offset, 4, "the first record")
	last, _ := must(f.admin.ListMaxTimestampOffsets(ctx, topic)).Lookup(topic, 0)
	equal(last.Offset, 9, "the latest record")
	for _, folders := range must(f.admin.DescribeAllLogDirs(ctx, nil)) {
		check(folders.Error())
	}
	producers := must(f.admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}}}))
	equal(len(producers.SortedProducers()), 1, "producers")

	// Commits by hand, of a group without members.
	check(f.admin.CommitAllOffsets(ctx, topic, until))
	equal(f.committed(topic, topic), []int64{4}, "committed")
	check(must(f.admin.DeleteOffsets(ctx, topic, until.TopicsSet())).Error())
	equal(f.committed(topic, topic), nil, "committed")
	check(must(f.admin.DeleteTopic(ctx, topic)).Err)
}

func (f *franz) deleteGroup(group string) error {
	return must(f.admin.DeleteGroup(ctx, group)).Err
}

func (f *franz) groups() []string {
	return must(f.admin.ListGroups(ctx)).Groups()
}

func (f *franz) transaction(topic string, value []byte, commits bool) {
	client := f.client(kgo.TransactionalID("franz-go"), kgo.DefaultProduceTopic(topic))
	defer client.Close()
	check(client.BeginTransaction())
	check(client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr())
	check(client.EndTransaction(ctx, kgo.TransactionEndTry(commits)))
}
