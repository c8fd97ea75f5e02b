package main

// The steps `transactions` and `transform` of README.md, over what each client is wrapped into.

import (
	"context"
	"errors"
	"fmt"
	"os"
)

type action struct {
	Do      string   `json:"do"`
	On      string   `json:"on"`
	Topic   string   `json:"topic"`
	Records []fields `json:"records"`
	Wait    bool     `json:"wait"`
	Fails   bool     `json:"fails"`
}

// transactional is a producer with a transactional id, ready to begin.
type transactional interface {
	begin() error
	produce(topic string, records []fields, wait bool) error
	commit() error
	abort() error
	close()
}

// copier is a member of a group together with a transactional producer.
type copier interface {
	// poll returns at most `most` records of the source.
	poll(ctx context.Context, most int) ([]fields, error)
	begin() error
	// produce waits until all are acknowledged.
	produce(ctx context.Context, topic string, records []fields) error
	// offsets adds the positions behind the records to the transaction, where that is a call of its own.
	offsets(ctx context.Context, source string, records []fields) error
	end(ctx context.Context, commit bool) error
	close()
}

type transactionClient interface {
	client
	open(s step) (transactional, error)
	copier(s step) (copier, error)
}

func runTransactional(c client, s step) (outcomes []*string, err error) {
	able, ok := c.(transactionClient)
	if !ok {
		return nil, errors.New("this client has no transactions")
	}
	if s.Op == "transform" {
		return nil, transform(able, s)
	}
	producers := map[string]transactional{}
	for _, a := range s.Script {
		err := act(able, s, a, producers)
		if err == nil {
			outcomes = append(outcomes, nil)
			continue
		}
		text := fmt.Sprintf("%T: %v", err, err)
		outcomes = append(outcomes, &text)
		if !a.Fails {
			break
		}
	}
	for _, p := range producers {
		p.close()
	}
	return outcomes, nil
}

func act(c transactionClient, s step, a action, producers map[string]transactional) error {
	switch a.Do {
	case "open":
		p, err := c.open(s)
		if err == nil {
			producers[a.On] = p
		}
		return err
	case "begin":
		return producers[a.On].begin()
	case "produce":
		return producers[a.On].produce(a.Topic, a.Records, a.Wait)
	case "commit":
		return producers[a.On].commit()
	case "abort":
		return producers[a.On].abort()
	}
	return fmt.Errorf("action %q", a.Do)
}

func transform(c transactionClient, s step) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout())
	defer cancel()
	client, err := c.copier(s)
	if err != nil {
		return err
	}
	defer client.close()
	for left := s.Count; left > 0; {
		size := min(left, s.Per)
		if err := copySome(ctx, client, s, size); err != nil {
			return err
		}
		left -= size
		if left == 0 && s.Ending == "kill" {
			os.Exit(9)
		}
		if err := client.end(ctx, left > 0 || s.Ending == "commit"); err != nil {
			return fmt.Errorf("end: %w", err)
		}
	}
	return nil
}

func copySome(ctx context.Context, client copier, s step, size int) error {
	var read []fields
	for len(read) < size {
		more, err := client.poll(ctx, size-len(read))
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		read = append(read, more...)
	}
	if err := client.begin(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := client.produce(ctx, s.Target, read); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := client.offsets(ctx, s.Source, read); err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	return nil
}
