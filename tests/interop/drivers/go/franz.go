package main

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	bootstrap string
	options   options
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (c *franz) produce(s step) ([]*[2]int64, map[string]int, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(c.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(30 * time.Millisecond),
		kgo.ProducerBatchCompression(franzCodecs[s.Codec]),
	}
	if c.options.Producer["idempotent"] != "true" {
		settings = append(settings, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if inFlight, err := strconv.Atoi(c.options.Producer["in_flight"]); err == nil {
		settings = append(settings, kgo.MaxProduceRequestsInflightPerBroker(inFlight), kgo.ProducerBatchMaxBytes(1024),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	}
	if ms, err := strconv.Atoi(c.options.Producer["delivery_ms"]); err == nil {
		settings = append(settings, kgo.RecordDeliveryTimeout(time.Duration(ms)*time.Millisecond),
			kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout())
	defer cancel()
	var sent sync.WaitGroup
	acked, failures := make([]*[2]int64, len(s.Records)), make([]error, len(s.Records))
	for i, f := range s.Records {
		s.pause(i)
		r := &kgo.Record{Topic: s.Topic, Partition: f.P, Key: f.K, Value: f.V, Timestamp: f.when()}
		for _, p := range f.H {
			name, value := header(p)
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: value})
		}
		sent.Add(1)
		client.Produce(ctx, r, func(r *kgo.Record, err error) {
			defer sent.Done()
			if failures[i] = err; err == nil {
				acked[i] = &[2]int64{int64(r.Partition), r.Offset}
			}
		})
	}
	sent.Wait()
	errors := map[string]int{}
	for _, err := range failures {
		if err != nil {
			errors[err.Error()]++
			if !s.Tolerant {
				return nil, nil, err
			}
		}
	}
	return acked, errors, nil
}

func (c *franz) consume(s step) ([]fields, error) {
	isolation := kgo.ReadUncommitted()
	if c.options.readCommitted() {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.bootstrap), kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.FetchIsolationLevel(isolation),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout())
	defer cancel()
	var records []fields
	var last []*kgo.Record
	for len(records) < s.Count && ctx.Err() == nil {
		for _, r := range client.PollRecords(ctx, s.Count-len(records)).Records() {
			records, last = append(records, franzFields(r)), append(last, r)
		}
	}
	if err := client.CommitRecords(context.Background(), last...); err != nil {
		return records, err
	}
	if s.ExtraMs > 0 {
		more, stop := context.WithTimeout(context.Background(), s.extra())
		defer stop()
		for _, r := range client.PollRecords(more, 10).Records() {
			records = append(records, franzFields(r))
		}
	}
	return records, nil
}

func franzFields(r *kgo.Record) fields {
	f := fields{P: r.Partition, O: r.Offset, K: r.Key, V: r.Value, Ts: millis(r.Timestamp), H: [][2]*bytes{}}
	for _, h := range r.Headers {
		f.H = append(f.H, pair(h.Key, h.Value))
	}
	return f
}
