package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

type segment struct {
	bootstrap string
	options   options
}

var segmentCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func (c *segment) produce(s step) ([]*[2]int64, map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout())
	defer cancel()
	writer := &kafka.Writer{
		Addr: kafka.TCP(c.bootstrap), Topic: s.Topic, RequiredAcks: kafka.RequireOne, BatchTimeout: 30 * time.Millisecond,
		Compression: segmentCodecs[s.Codec], BatchSize: s.chunk(100),
		Balancer: kafka.BalancerFunc(func(m kafka.Message, partitions ...int) int {
			return int(m.WriterData.(int32))
		}),
	}
	if s.Chunk > 0 {
		// Each chunk is waited for: nothing is gained by waiting for more, nor by long pauses before a retry.
		writer.BatchTimeout = time.Millisecond
		writer.MaxAttempts, writer.WriteBackoffMin, writer.WriteBackoffMax = 100, 20*time.Millisecond, 100*time.Millisecond
	}
	defer writer.Close()
	var messages []kafka.Message
	for _, f := range s.Records {
		m := kafka.Message{Key: f.K, Value: f.V, Time: f.when(), WriterData: f.P}
		for _, p := range f.H {
			name, value := header(p)
			m.Headers = append(m.Headers, kafka.Header{Key: name, Value: value})
		}
		messages = append(messages, m)
	}
	for size := s.chunk(len(messages)); len(messages) > 0; messages = messages[min(size, len(messages)):] {
		if err := writer.WriteMessages(ctx, messages[:min(size, len(messages))]...); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, nil
}

func (c *segment) consume(s step) ([]fields, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout())
	defer cancel()
	isolation := kafka.ReadUncommitted
	if c.options.readCommitted() {
		isolation = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{c.bootstrap}, GroupID: s.Group, Topic: s.Topic, StartOffset: kafka.FirstOffset,
		MaxWait: 200 * time.Millisecond, IsolationLevel: isolation,
	})
	defer reader.Close()
	var records []fields
	var last []kafka.Message
	for len(records) < s.Count {
		m, err := reader.FetchMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		} else if err != nil {
			return records, err
		}
		records, last = append(records, segmentFields(m)), append(last, m)
	}
	if err := reader.CommitMessages(context.Background(), last...); err != nil {
		return records, err
	}
	if s.ExtraMs > 0 {
		more, stop := context.WithTimeout(context.Background(), s.extra())
		defer stop()
		if m, err := reader.FetchMessage(more); err == nil {
			records = append(records, segmentFields(m))
		}
	}
	return records, nil
}

func segmentFields(m kafka.Message) fields {
	f := fields{P: int32(m.Partition), O: m.Offset, K: m.Key, V: m.Value, Ts: millis(m.Time), H: [][2]*bytes{}}
	for _, h := range m.Headers {
		f.H = append(f.H, pair(h.Key, h.Value))
	}
	return f
}
