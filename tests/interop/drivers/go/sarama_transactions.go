//go:build !old

package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

func isolated(config *sarama.Config) { config.Consumer.IsolationLevel = sarama.ReadCommitted }

// saramaProducer reads all that the client reports: a transaction does not end before that.
type saramaProducer struct {
	client  sarama.AsyncProducer
	timeout time.Duration
	results chan error
	waiting int
}

func (c *saramaClient) producer(s step) (*saramaProducer, error) {
	config := *c.config
	idempotent(&config)
	config.Producer.Compression = saramaCodecs[s.Codec]
	config.Producer.Transaction.ID = s.Id
	client, err := sarama.NewAsyncProducer([]string{c.bootstrap}, &config)
	// Old releases do not wait themselves for the end of what an earlier producer of the id left open.
	for end := time.Now().Add(s.timeout()); passing(err) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		client, err = sarama.NewAsyncProducer([]string{c.bootstrap}, &config)
	}
	if err != nil {
		return nil, err
	}
	p := &saramaProducer{client, s.timeout(), make(chan error, 10_000), 0}
	go func() {
		for range client.Successes() {
			p.results <- nil
		}
	}()
	go func() {
		for e := range client.Errors() {
			p.results <- e.Err
		}
	}()
	return p, nil
}

func passing(err error) bool {
	return errors.Is(err, sarama.ErrConcurrentTransactions) || errors.Is(err, sarama.ErrOffsetsLoadInProgress)
}

func (c *saramaClient) open(s step) (transactional, error) {
	p, err := c.producer(s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *saramaProducer) begin() error { return p.client.BeginTxn() }

func (p *saramaProducer) produce(topic string, records []fields, wait bool) error {
	for _, f := range records {
		m := &sarama.ProducerMessage{Topic: topic, Partition: f.P, Key: sarama.ByteEncoder(f.K), Value: sarama.ByteEncoder(f.V)}
		p.client.Input() <- m
		p.waiting++
	}
	if !wait {
		return nil
	}
	return p.flush()
}

func (p *saramaProducer) flush() error {
	deadline := time.After(p.timeout)
	var failed error
	for ; p.waiting > 0; p.waiting-- {
		select {
		case err := <-p.results:
			failed = errors.Join(failed, err)
		case <-deadline:
			return errors.New("not all acknowledged")
		}
	}
	return failed
}

func (p *saramaProducer) commit() error { return errors.Join(p.flush(), p.client.CommitTxn()) }

func (p *saramaProducer) abort() error {
	// What was not sent fails now, as it should.
	p.waiting = 0
	return p.client.AbortTxn()
}

func (p *saramaProducer) close() { p.client.AsyncClose() }

// saramaCopier hands records from the group's goroutines to the one that writes.
type saramaCopier struct {
	producer *saramaProducer
	group    sarama.ConsumerGroup
	name     string
	cancel   context.CancelFunc
	ended    chan struct{}
	read     chan *sarama.ConsumerMessage
	session  sarama.ConsumerGroupSession
}

func (c *saramaClient) copier(s step) (copier, error) {
	producer, err := c.producer(s)
	if err != nil {
		return nil, err
	}
	config := *c.config
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 2 * time.Second
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = false
	isolated(&config)
	group, err := sarama.NewConsumerGroup([]string{c.bootstrap}, s.Group, &config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	made := &saramaCopier{producer, group, s.Group, cancel, make(chan struct{}), make(chan *sarama.ConsumerMessage), nil}
	go func() {
		defer close(made.ended)
		for ctx.Err() == nil {
			if group.Consume(ctx, []string{s.Source}, made) != nil {
				return
			}
		}
	}()
	return made, nil
}

func (c *saramaCopier) Setup(session sarama.ConsumerGroupSession) error {
	c.session = session
	return nil
}

func (c *saramaCopier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *saramaCopier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		select {
		case c.read <- m:
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

func (c *saramaCopier) poll(ctx context.Context, _ int) ([]fields, error) {
	select {
	case m := <-c.read:
		return []fields{saramaFields(m)}, nil
	case <-c.ended:
		return nil, errors.New("the group has ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *saramaCopier) begin() error { return c.producer.begin() }

func (c *saramaCopier) produce(_ context.Context, topic string, records []fields) error {
	return c.producer.produce(topic, records, true)
}

func (c *saramaCopier) offsets(_ context.Context, source string, records []fields) error {
	positions := map[int32]int64{}
	for _, f := range records {
		positions[f.P] = f.O + 1
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{}
	for partition, offset := range positions {
		offsets[source] = append(offsets[source], &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset})
	}
	return addOffsets(c, offsets)
}

func (c *saramaCopier) end(_ context.Context, commit bool) error {
	if commit {
		return c.producer.commit()
	}
	return c.producer.abort()
}

func (c *saramaCopier) close() {
	c.cancel()
	c.group.Close()
	<-c.ended
	c.producer.client.Close()
}
