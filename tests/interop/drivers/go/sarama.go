package main

// Built twice: with today's sarama (go.mod) and with 1.19 of 2018 (old.mod), hence only what both have.

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct {
	bootstrap string
	config    *sarama.Config
}

func newSarama(bootstrap string, o options) (client, error) {
	config := sarama.NewConfig()
	if o.Version != "" {
		version, err := sarama.ParseKafkaVersion(o.Version)
		if err != nil {
			return nil, err
		}
		config.Version = version
	}
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForLocal
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.Frequency = 30 * time.Millisecond
	if retries, err := strconv.Atoi(o.Producer["retries"]); err == nil {
		config.Producer.Retry.Max, config.Producer.Retry.Backoff = retries, 20*time.Millisecond
		config.Producer.Flush.MaxMessages = 10
	}
	if inFlight, err := strconv.Atoi(o.Producer["in_flight"]); err == nil {
		config.Net.MaxOpenRequests = inFlight
	}
	if o.Producer["idempotent"] == "true" {
		idempotent(config)
	}
	if o.readCommitted() {
		isolated(config)
	}
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	return &saramaClient{bootstrap, config}, nil
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": 4,
}

func (c *saramaClient) produce(s step) ([]*[2]int64, map[string]int, error) {
	c.config.Producer.Compression = saramaCodecs[s.Codec]
	producer, err := sarama.NewAsyncProducer([]string{c.bootstrap}, c.config)
	if err != nil {
		return nil, nil, err
	}
	defer producer.AsyncClose()
	go func() {
		for i, f := range s.Records {
			s.pause(i)
			producer.Input() <- c.message(s.Topic, i, f)
		}
	}()
	acked := make([]*[2]int64, len(s.Records))
	deadline := time.After(s.timeout())
	for range s.Records {
		select {
		case m := <-producer.Successes():
			acked[m.Metadata.(int)] = &[2]int64{int64(m.Partition), m.Offset}
		case e := <-producer.Errors():
			return nil, nil, e
		case <-deadline:
			return nil, nil, errors.New("produce timed out")
		}
	}
	return acked, nil, nil
}

func (c *saramaClient) message(topic string, index int, f fields) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Topic: topic, Partition: f.P, Timestamp: f.when(), Metadata: index}
	if f.K != nil {
		m.Key = sarama.ByteEncoder(f.K)
	}
	if f.V != nil {
		m.Value = sarama.ByteEncoder(f.V)
	}
	if c.config.Version.IsAtLeast(sarama.V0_11_0_0) {
		for _, p := range f.H {
			name, value := header(p)
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(name), Value: value})
		}
	}
	return m
}

func saramaFields(m *sarama.ConsumerMessage) fields {
	f := fields{P: m.Partition, O: m.Offset, K: m.Key, V: m.Value, Ts: millis(m.Timestamp), H: [][2]*bytes{}}
	for _, h := range m.Headers {
		f.H = append(f.H, pair(string(h.Key), h.Value))
	}
	return f
}

func (c *saramaClient) consume(s step) ([]fields, error) {
	if c.config.Version.IsAtLeast(sarama.V0_10_2_0) {
		return c.consumeInGroup(s)
	}
	return c.consumeAlone(s)
}

// taker counts records across partitions; gate lets one goroutine at a time take a record.
type taker struct {
	step    step
	gate    chan struct{}
	records []fields
	done    chan struct{}
}

func newTaker(s step) *taker {
	return &taker{step: s, gate: make(chan struct{}, 1), done: make(chan struct{})}
}

// take keeps the message and says whether its position is to be committed.
func (t *taker) take(m *sarama.ConsumerMessage) bool {
	t.gate <- struct{}{}
	defer func() { <-t.gate }()
	if len(t.records) >= t.step.Count && t.step.ExtraMs == 0 {
		return false
	}
	t.records = append(t.records, saramaFields(m))
	if len(t.records) == t.step.Count {
		close(t.done)
	}
	return len(t.records) <= t.step.Count
}

// wait returns when all records are there and the extra time is over, or the step's time is.
func (t *taker) wait(failures <-chan error) error {
	deadline := time.After(t.step.timeout())
	for {
		select {
		case <-t.done:
			time.Sleep(t.step.extra())
			return nil
		case e := <-failures:
			if e != nil {
				return e
			}
		case <-deadline:
			return nil
		}
	}
}

func (t *taker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (t *taker) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (t *taker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		if t.take(m) {
			session.MarkMessage(m, "")
		}
	}
	return nil
}

func (c *saramaClient) consumeInGroup(s step) ([]fields, error) {
	group, err := sarama.NewConsumerGroup([]string{c.bootstrap}, s.Group, c.config)
	if err != nil {
		return nil, err
	}
	t := newTaker(s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if group.Consume(ctx, []string{s.Topic}, t) != nil {
				return
			}
		}
	}()
	err = t.wait(group.Errors())
	cancel()
	closing := group.Close()
	<-ended
	if err == nil {
		err = closing
	}
	return t.records, err
}

// consumeAlone is what programs did before sarama had groups: own partitions, offsets kept by OffsetCommit v1.
func (c *saramaClient) consumeAlone(s step) ([]fields, error) {
	handle, err := sarama.NewClient([]string{c.bootstrap}, c.config)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	offsets, err := sarama.NewOffsetManagerFromClient(s.Group, handle)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(handle)
	if err != nil {
		return nil, err
	}
	partitions, err := handle.Partitions(s.Topic)
	if err != nil {
		return nil, err
	}
	t := newTaker(s)
	failures := make(chan error, 100)
	var keepers []sarama.PartitionOffsetManager
	var readers []sarama.PartitionConsumer
	for _, p := range partitions {
		keeper, err := offsets.ManagePartition(s.Topic, p)
		if err != nil {
			return nil, err
		}
		next, _ := keeper.NextOffset()
		reader, err := consumer.ConsumePartition(s.Topic, p, next)
		if err != nil {
			return nil, err
		}
		keepers, readers = append(keepers, keeper), append(readers, reader)
		go follow(reader, keeper, t, failures)
	}
	err = t.wait(failures)
	for i := range readers {
		readers[i].AsyncClose()
		keepers[i].AsyncClose()
	}
	if closing := offsets.Close(); err == nil {
		err = closing
	}
	consumer.Close()
	return t.records, err
}

func follow(reader sarama.PartitionConsumer, keeper sarama.PartitionOffsetManager, t *taker, failures chan<- error) {
	for {
		select {
		case m, open := <-reader.Messages():
			if !open {
				return
			}
			if t.take(m) {
				keeper.MarkOffset(m.Offset+1, "")
			}
		case e := <-reader.Errors():
			if e != nil {
				failures <- e
			}
		case e := <-keeper.Errors():
			if e != nil {
				failures <- e
			}
		}
	}
}
