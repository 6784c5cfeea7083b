// Sarama.
package main

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

type saramaLibrary struct {
	address []string
	admin   sarama.ClusterAdmin
	client  sarama.Client
}

func newSarama(address string) *saramaLibrary {
	client := must(sarama.NewClient([]string{address}, configured()))
	return &saramaLibrary{[]string{address}, must(sarama.NewClusterAdminFromClient(client)), client}
}

func configured() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.MaxMessageBytes = 2 << 20
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Backoff = 10 * time.Millisecond
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	return config
}

func (s *saramaLibrary) codecs() []string {
	return []string{"none", "gzip", "snappy", "lz4", "zstd"}
}

func (s *saramaLibrary) create(topic string, partitions int, config map[string]string) {
	detail := sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
	for name, value := range config {
		detail.ConfigEntries[name] = &value
	}
	check(s.admin.CreateTopic(topic, &detail, false))
}

func (s *saramaLibrary) produce(topic, codec string, records []record) error {
	config := configured()
	check(config.Producer.Compression.UnmarshalText([]byte(codec)))
	producer := must(sarama.NewSyncProducer(s.address, config))
	defer producer.Close()
	var sent []*sarama.ProducerMessage
	for _, one := range records {
		message := &sarama.ProducerMessage{
			Topic:     topic,
			Partition: int32(one.partition),
			Timestamp: time.UnixMilli(one.timeMs),
		}
		if one.key != nil {
			message.Key = sarama.ByteEncoder(one.key)
		}
		if one.value != nil {
			message.Value = sarama.ByteEncoder(one.value)
		}
		for _, header := range one.headers {
			found := sarama.RecordHeader{Key: []byte(header.key), Value: []byte(header.value)}
			message.Headers = append(message.Headers, found)
		}
		sent = append(sent, message)
	}
	return producer.SendMessages(sent)
}

func (s *saramaLibrary) code(err error) int {
	var several sarama.ProducerErrors
	if errors.As(err, &several) {
		err = several[0].Err
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		err = topic.Err
	}
	var kafka sarama.KError
	if errors.As(err, &kafka) {
		return int(kafka)
	}
	panic(err)
}

type saramaMember struct {
	group sarama.ConsumerGroup
	come  chan record
	ended chan struct{}
}

func (s *saramaLibrary) join(group, topic string) member {
	member := &saramaMember{
		must(sarama.NewConsumerGroup(s.address, group, configured())),
		make(chan record),
		make(chan struct{}),
	}
	go func() {
		defer close(member.ended)
		for {
			err := member.group.Consume(ctx, []string{topic}, member)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			check(err)
		}
	}()
	return member
}

func (m *saramaMember) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for one := range claim.Messages() {
		record := record{
			partition: int(one.Partition),
			offset:    one.Offset,
			key:       one.Key,
			value:     one.Value,
			timeMs:    one.Timestamp.UnixMilli(),
		}
		for _, found := range one.Headers {
			record.headers = append(record.headers, header{string(found.Key), string(found.Value)})
		}
		select {
		case m.come <- record:
			// Leaving commits the marked offsets.
			session.MarkMessage(one, "")
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (m *saramaMember) next() <-chan record { return m.come }

func (m *saramaMember) leave() {
	check(m.group.Close())
	<-m.ended
}

func (s *saramaLibrary) stable(group string) int {
	described := must(s.admin.DescribeConsumerGroups([]string{group}))[0]
	if described.State != "Stable" && described.State != "Empty" {
		return -1
	}
	return len(described.Members)
}

func (s *saramaLibrary) committed(group, topic string) []int64 {
	asked := map[string][]int32{topic: must(s.client.Partitions(topic))}
	answer := must(s.admin.ListConsumerGroupOffsets(group, asked))
	blocks := answer.Blocks[topic]
	var offsets []int64
	for _, partition := range slices.Sorted(maps.Keys(blocks)) {
		offsets = append(offsets, blocks[partition].Offset)
	}
	return offsets
}

func (s *saramaLibrary) after(topic string, timeMs int64) int64 {
	return must(s.client.GetOffset(topic, 0, timeMs))
}

func (s *saramaLibrary) administration(topic string) {
	s.create(topic, 2, map[string]string{"retention.ms": "70000"})
	again := s.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false)
	equal(s.code(again), 36, "a topic that is there")
	check(s.admin.CreatePartitions(topic, 3, nil, false))
	value := "5000"
	changes := map[string]sarama.IncrementalAlterConfigsEntry{
		"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}
	check(s.admin.IncrementalAlterConfig(sarama.TopicResource, topic, changes, false))
	config := map[string]string{}
	for _, one := range must(s.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})) {
		config[one.Name] = one.Value
	}
	equal(config["retention.ms"], "70000", "retention.ms")
	equal(config["max.message.bytes"], "5000", "max.message.bytes")
	equal(must(s.admin.ListTopics())[topic].NumPartitions, 3, "partitions")

	check(s.produce(topic, "none", records(0, 10)))
	check(s.admin.DeleteRecords(topic, map[int32]int64{0: 4}))
	equal(must(s.client.GetOffset(topic, 0, sarama.OffsetOldest)), 4, "the first record")
	equal(must(s.client.GetOffset(topic, 0, sarama.OffsetNewest)), 10, "the end")
	must(s.admin.DescribeLogDirs([]int32{1}))

	offsets := map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 4, LeaderEpoch: -1}}}
	must(s.admin.AlterConsumerGroupOffsets(topic, offsets, nil))
	equal(s.committed(topic, topic), []int64{4, -1, -1}, "committed")
	check(s.admin.DeleteConsumerGroupOffset(topic, topic, 0))
	equal(s.committed(topic, topic), []int64{-1, -1, -1}, "committed")
	check(s.admin.DeleteTopic(topic))
}

func (s *saramaLibrary) deleteGroup(group string) error {
	return s.admin.DeleteConsumerGroup(group)
}

func (s *saramaLibrary) groups() []string {
	return slices.Collect(maps.Keys(must(s.admin.ListConsumerGroups())))
}

func (s *saramaLibrary) transaction(topic string, value []byte, commits bool) {
	config := configured()
	config.Producer.Transaction.ID = "sarama"
	producer := must(sarama.NewSyncProducer(s.address, config))
	defer producer.Close()
	check(producer.BeginTxn())
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)})
	check(err)
	if commits {
		check(producer.CommitTxn())
	} else {
		check(producer.AbortTxn())
	}
}
