// kafka-go (segmentio).
package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
)

type segmentio struct {
	address net.Addr
	client  *kafka.Client
}

func newSegmentio(address string) *segmentio {
	tcp := kafka.TCP(address)
	return &segmentio{tcp, &kafka.Client{Addr: tcp, Timeout: limit}}
}

func (s *segmentio) codecs() []string {
	return []string{"none", "gzip", "snappy", "lz4", "zstd"}
}

func (s *segmentio) create(topic string, partitions int, config map[string]string) {
	created := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	for name, value := range config {
		created.ConfigEntries = append(created.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	answer := must(s.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{created}}))
	check(answer.Errors[topic])
}

func (s *segmentio) produce(topic, codec string, records []record) error {
	var compression kafka.Compression
	if codec != "none" {
		check(compression.UnmarshalText([]byte(codec)))
	}
	writer := kafka.Writer{
		Addr:                   s.address,
		Topic:                  topic,
		Balancer:               kafka.BalancerFunc(func(one kafka.Message, _ ...int) int { return one.WriterData.(int) }),
		MaxAttempts:            3,
		WriteBackoffMin:        10 * time.Millisecond,
		WriteBackoffMax:        100 * time.Millisecond,
		BatchBytes:             2 << 20,
		BatchTimeout:           10 * time.Millisecond,
		RequiredAcks:           kafka.RequireAll,
		Compression:            compression,
		AllowAutoTopicCreation: true,
	}
	defer writer.Close()
	var sent []kafka.Message
	for _, one := range records {
		message := kafka.Message{Key: one.key, Value: one.value, Time: time.UnixMilli(one.timeMs), WriterData: one.partition}
		for _, header := range one.headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.key, Value: []byte(header.value)})
		}
		sent = append(sent, message)
	}
	return writer.WriteMessages(ctx, sent...)
}

func (s *segmentio) code(err error) int {
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		err = several[0]
	}
	var code kafka.Error
	if errors.As(err, &code) {
		return int(code)
	}
	panic(err)
}

type segmentioMember struct {
	reader *kafka.Reader
	come   chan record
	stop   context.CancelFunc
	ended  chan struct{}
}

func (s *segmentio) join(group, topic string) member {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           []string{s.address.String()},
		GroupID:           group,
		Topic:             topic,
		StartOffset:       kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond,
		JoinGroupBackoff:  100 * time.Millisecond,
		MaxWait:           200 * time.Millisecond,
	})
	run, stop := context.WithCancel(ctx)
	member := &segmentioMember{reader, make(chan record), stop, make(chan struct{})}
	go member.run(run)
	return member
}

func (m *segmentioMember) run(run context.Context) {
	defer close(m.ended)
	for {
		one, err := m.reader.FetchMessage(run)
		if run.Err() != nil {
			return
		}
		check(err)
		check(m.reader.CommitMessages(ctx, one))
		record := record{
			partition: one.Partition,
			offset:    one.Offset,
			key:       one.Key,
			value:     one.Value,
			timeMs:    one.Time.UnixMilli(),
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

func (m *segmentioMember) next() <-chan record { return m.come }

func (m *segmentioMember) leave() {
	m.stop()
	<-m.ended
	check(m.reader.Close())
}

func (s *segmentio) stable(group string) int {
	answer := must(s.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}}))
	described := answer.Groups[0]
	check(described.Error)
	if described.GroupState != "Stable" && described.GroupState != "Empty" {
		return -1
	}
	return len(described.Members)
}

func (s *segmentio) committed(group, topic string) []int64 {
	asked := map[string][]int{topic: {0, 1, 2, 3}}
	answer := must(s.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: asked}))
	check(answer.Error)
	offsets := make([]int64, partitions)
	for _, one := range answer.Topics[topic] {
		check(one.Error)
		offsets[one.Partition] = one.CommittedOffset
	}
	return offsets
}

func (s *segmentio) offsets(topic string, request kafka.OffsetRequest) kafka.PartitionOffsets {
	asked := map[string][]kafka.OffsetRequest{topic: {request}}
	answer := must(s.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: asked})).Topics[topic][0]
	check(answer.Error)
	return answer
}

func (s *segmentio) after(topic string, timeMs int64) int64 {
	for offset := range s.offsets(topic, kafka.TimeOffsetOf(0, time.UnixMilli(timeMs))).Offsets {
		return offset
	}
	return -1
}

func (s *segmentio) administration(topic string) {
	s.create(topic, 2, map[string]string{"retention.ms": "70000"})
	again := kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}}}
	equal(s.code(must(s.client.CreateTopics(ctx, &again)).Errors[topic]), 36, "a topic that is there")
	grown := kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 3}}}
	check(must(s.client.CreatePartitions(ctx, &grown)).Errors[topic])
	changed := must(s.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "max.message.bytes", Value: "5000", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	}))
	check(changed.Resources[0].Error)
	described := must(s.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	}))
	config := map[string]string{}
	for _, one := range described.Resources[0].ConfigEntries {
		config[one.ConfigName] = one.ConfigValue
	}
	equal(config["retention.ms"], "70000", "retention.ms")
	equal(config["max.message.bytes"], "5000", "max.message.bytes")
	// A client keeps metadata for some seconds.
	fresh := kafka.Client{Addr: s.address, Transport: &kafka.Transport{}}
	found := must(fresh.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}}))
	equal(len(found.Topics[0].Partitions), 3, "partitions")

	check(s.produce(topic, "none", records(0, 10)))
	equal(s.offsets(topic, kafka.FirstOffsetOf(0)).FirstOffset, 0, "the first record")
	equal(s.offsets(topic, kafka.LastOffsetOf(0)).LastOffset, 10, "the end")
	deleted := must(s.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}}))
	check(deleted.Errors[topic])
}

func (s *segmentio) deleteGroup(group string) error {
	return must(s.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})).Errors[group]
}

func (s *segmentio) groups() []string {
	answer := must(s.client.ListGroups(ctx, &kafka.ListGroupsRequest{}))
	check(answer.Error)
	var groups []string
	for _, one := range answer.Groups {
		groups = append(groups, one.GroupID)
	}
	return groups
}
