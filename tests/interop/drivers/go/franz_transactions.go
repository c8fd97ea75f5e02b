package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franzProducer struct {
	client  *kgo.Client
	timeout time.Duration
	failed  chan error
}

func (c *franz) producing(s step) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(c.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(30 * time.Millisecond),
		kgo.ProducerBatchCompression(franzCodecs[s.Codec]), kgo.TransactionalID(s.Id), kgo.RecordDeliveryTimeout(s.timeout()),
	}
}

func (c *franz) open(s step) (transactional, error) {
	client, err := kgo.NewClient(c.producing(s)...)
	if err != nil {
		return nil, err
	}
	p := &franzProducer{client, s.timeout(), make(chan error, 10_000)}
	ctx, cancel := p.limit()
	defer cancel()
	// The id is fenced by its first use, which is otherwise the first record.
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return p, nil
}

func (p *franzProducer) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), p.timeout)
}

func (p *franzProducer) begin() error { return p.client.BeginTransaction() }

func franzRecord(topic string, f fields) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: f.P, Key: f.K, Value: f.V}
}

func (p *franzProducer) produce(topic string, records []fields, wait bool) error {
	for _, f := range records {
		p.client.Produce(context.Background(), franzRecord(topic, f), func(_ *kgo.Record, err error) { p.failed <- err })
	}
	if !wait {
		return nil
	}
	return p.flush()
}

func (p *franzProducer) flush() error {
	ctx, cancel := p.limit()
	defer cancel()
	err := p.client.Flush(ctx)
	for len(p.failed) > 0 {
		err = errors.Join(err, <-p.failed)
	}
	return err
}

func (p *franzProducer) commit() error {
	if err := p.flush(); err != nil {
		return err
	}
	ctx, cancel := p.limit()
	defer cancel()
	return p.client.EndTransaction(ctx, kgo.TryCommit)
}

func (p *franzProducer) abort() error {
	ctx, cancel := p.limit()
	defer cancel()
	if err := p.client.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	return p.client.EndTransaction(ctx, kgo.TryAbort)
}

func (p *franzProducer) close() { p.client.Close() }

type franzCopier struct{ session *kgo.GroupTransactSession }

func (c *franz) copier(s step) (copier, error) {
	session, err := kgo.NewGroupTransactSession(append(
		c.producing(s), kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Source), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(2*time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	return &franzCopier{session}, nil
}

func (c *franzCopier) poll(ctx context.Context, most int) ([]fields, error) {
	fetched := c.session.PollRecords(ctx, most)
	var records []fields
	for _, r := range fetched.Records() {
		records = append(records, franzFields(r))
	}
	return records, ctx.Err()
}

func (c *franzCopier) begin() error { return c.session.Begin() }

func (c *franzCopier) produce(ctx context.Context, topic string, records []fields) error {
	var copies []*kgo.Record
	for _, f := range records {
		copies = append(copies, franzRecord(topic, f))
	}
	return c.session.ProduceSync(ctx, copies...).FirstErr()
}

func (c *franzCopier) offsets(context.Context, string, []fields) error { return nil }

func (c *franzCopier) end(ctx context.Context, commit bool) error {
	committed, err := c.session.End(ctx, kgo.TransactionEndTry(commit))
	if err == nil && committed != commit {
		return errors.New("aborted by the client")
	}
	return err
}

func (c *franzCopier) close() { c.session.Close() }
