// franz-go in a share group.
package main

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const shared = 400

// sharer is a member that settles each record by its number, and tells it.
type sharer struct {
	client *kgo.Client
	// Numbers of records that are settled for good.
	settled chan int
	stop    context.CancelFunc
	ended   chan struct{}
}

// configure has the group begin with the first records of its topics.
func (f *franz) configure(group string) {
	earliest := "earliest"
	change := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	change.Name, change.Value = "share.auto.offset.reset", &earliest
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, change)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	changed := must(request.RequestWith(ctx, f.client()))
	equal(changed.Resources[0].ErrorCode, 0, "a setting of the group")
}

// share joins with a choice for each record, by its number and the count of its deliveries.
func (f *franz) share(group, topic string, choose func(number int, deliveries int32) kgo.AckStatus) *sharer {
	run, stop := context.WithCancel(ctx)
	s := &sharer{settled: make(chan int, 2*shared), stop: stop, ended: make(chan struct{})}
	s.client = f.client(
		kgo.ShareGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ShareMaxRecords(20),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			for _, one := range results {
				check(one.Err)
			}
		}),
	)
	go func() {
		defer close(s.ended)
		for {
			fetched := s.client.PollFetches(run)
			if run.Err() != nil {
				return
			}
			check(fetched.Err())
			for _, one := range fetched.Records() {
				number := must(strconv.Atoi(string(one.Value)))
				status := choose(number, one.DeliveryCount())
				if status == kgo.AckRenew {
					one.Ack(kgo.AckRenew)
					check(s.client.FlushAcks(ctx))
					status = kgo.AckAccept
				}
				one.Ack(status)
				if status != kgo.AckRelease {
					s.settled <- number
				}
			}
			check(s.client.FlushAcks(ctx))
		}
	}()
	return s
}

func (s *sharer) leave() {
	s.stop()
	<-s.ended
	s.client.Close()
}

// sharing settles each record once: accepted, rejected, or given back first.
func (f *franz) sharing() {
	topic, group := "franz-go.shared", "franz-go.sharers"
	f.create(topic, partitions, nil)
	f.configure(group)
	produce := func(first, count int) {
		var batch []record
		for number := first; number < first+count; number++ {
			batch = append(batch, record{partition: number % partitions, value: strconv.AppendInt(nil, int64(number), 10)})
		}
		check(f.produce(topic, "none", batch))
	}
	choose := func(number int, deliveries int32) kgo.AckStatus {
		switch {
		case number%10 == 3 && deliveries == 1:
			return kgo.AckRelease
		case number%10 == 3:
			equal(deliveries, 2, "deliveries of a record that was given back")
			return kgo.AckAccept
		case number%50 == 7:
			return kgo.AckReject
		case number%50 == 9:
			return kgo.AckRenew
		default:
			return kgo.AckAccept
		}
	}
	settled := map[int]int{}
	first, second := f.share(group, topic, choose), f.share(group, topic, choose)
	collect := func(count int) {
		for len(settled) < count {
			select {
			case number := <-first.settled:
				settled[number]++
			case number := <-second.settled:
				settled[number]++
			case <-ctx.Done():
				panic("records are missing")
			}
		}
	}
	produce(0, shared)
	collect(shared)
	second.leave()
	// The one that is left goes on, and gets nothing again.
	produce(shared, shared)
	collect(2 * shared)
	first.leave()

	// Records that a member holds as it leaves, not settled, come to the next one.
	produce(2*shared, 8)
	holder := f.client(kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
	for held := 0; held == 0; {
		fetched := holder.PollFetches(ctx)
		check(fetched.Err())
		held = len(fetched.Records())
	}
	holder.Close()
	first, second = f.share(group, topic, choose), f.share(group, topic, choose)
	collect(2*shared + 8)
	first.leave()
	second.leave()
	for number, times := range settled {
		equal(times, 1, "record "+strconv.Itoa(number))
	}
}
