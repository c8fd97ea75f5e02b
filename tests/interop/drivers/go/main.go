// The Go driver: reads a job from standard input and runs its steps with the client that options.client names.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

type options struct {
	Client   string            `json:"client"`
	Version  string            `json:"version"`
	Producer map[string]string `json:"producer"`
	Consumer map[string]string `json:"consumer"`
}

func (o options) readCommitted() bool { return o.Consumer["isolation"] == "read_committed" }

type fields struct {
	P  int32       `json:"p"`
	O  int64       `json:"o"`
	K  []byte      `json:"k"`
	V  []byte      `json:"v"`
	Ts *int64      `json:"ts"`
	H  [][2]*bytes `json:"h"`
}

// bytes is a header's name (plain text) or value (base64): which, its place in the pair says.
type bytes struct{ text string }

func (b *bytes) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &b.text) }
func (b bytes) MarshalJSON() ([]byte, error)     { return json.Marshal(b.text) }

type step struct {
	Op        string   `json:"op"`
	Topic     string   `json:"topic"`
	Codec     string   `json:"codec"`
	Group     string   `json:"group"`
	Records   []fields `json:"records"`
	Count     int      `json:"count"`
	TimeoutMs int      `json:"timeout_ms"`
	ExtraMs   int      `json:"extra_ms"`
	Chunk     int      `json:"chunk"`
	Id        string   `json:"id"`
	Script    []action `json:"script"`
	Source    string   `json:"source"`
	Target    string   `json:"target"`
	Per       int      `json:"per"`
	Ending    string   `json:"ending"`
	Pace      [2]int   `json:"pace"`
	Tolerant  bool     `json:"tolerant"`
}

func (s step) timeout() time.Duration { return time.Duration(s.TimeoutMs) * time.Millisecond }
func (s step) chunk(otherwise int) int {
	if s.Chunk > 0 {
		return s.Chunk
	}
	return otherwise
}

// pause waits where the step has a pace and so many records have been sent.
func (s step) pause(sent int) {
	if s.Pace[0] > 0 && sent > 0 && sent%s.Pace[0] == 0 {
		time.Sleep(time.Duration(s.Pace[1]) * time.Millisecond)
	}
}

func (s step) extra() time.Duration { return time.Duration(s.ExtraMs) * time.Millisecond }

type result struct {
	Op       string         `json:"op"`
	Error    string         `json:"error,omitempty"`
	Acked    []*[2]int64    `json:"acked,omitempty"`
	Errors   map[string]int `json:"errors,omitempty"`
	Records  []fields       `json:"records"`
	TimedOut bool           `json:"timed_out"`
	Outcomes []*string      `json:"outcomes,omitempty"`
}

type client interface {
	// produce returns what became of each record: nil for one that failed, which only a tolerant step has.
	produce(s step) ([]*[2]int64, map[string]int, error)
	consume(s step) ([]fields, error)
}

func choose(bootstrap string, o options) (client, error) {
	switch o.Client {
	case "sarama":
		return newSarama(bootstrap, o)
	case "kafka-go":
		return &segment{bootstrap, o}, nil
	case "franz-go":
		return &franz{bootstrap, o}, nil
	}
	return nil, fmt.Errorf("no client %q", o.Client)
}

func run(c client, s step) (r result) {
	var err error
	switch s.Op {
	case "produce":
		r.Acked, r.Errors, err = c.produce(s)
	case "consume":
		r.Records, err = c.consume(s)
		r.TimedOut = len(r.Records) < s.Count
	default:
		r.Outcomes, err = runTransactional(c, s)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func main() {
	var job struct {
		Bootstrap string  `json:"bootstrap"`
		Options   options `json:"options"`
		Steps     []step  `json:"steps"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	c, err := choose(job.Bootstrap, job.Options)
	for _, s := range job.Steps {
		r := result{}
		if err != nil {
			r.Error = err.Error()
		} else {
			r = run(c, s)
		}
		r.Op = s.Op
		line, _ := json.Marshal(r)
		fmt.Println("RESULT", string(line))
	}
}
