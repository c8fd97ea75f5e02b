// Command sarama produces with sarama of 2018 for brokers of 0.10: Produce v2, message sets of magic 1, retries.
// A job comes in, operations go out, as of the other drivers (operations.py).
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/IBM/sarama"
)

type job struct {
	Name      string   `json:"name"`
	Bootstrap string   `json:"bootstrap"`
	Places    [][2]any `json:"places"`
	PerSecond int      `json:"per_second"`
	InFlight  int      `json:"in_flight"`
}

type operation struct {
	Process  string   `json:"process"`
	Kind     string   `json:"kind"`
	Outcome  string   `json:"outcome"`
	Invoke   int64    `json:"invoke"`
	Complete int64    `json:"complete"`
	Sends    [][4]any `json:"sends"`
	Error    string   `json:"error"`
}

type place struct {
	topic     string
	partition int32
}

func main() {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		log.Fatal(err)
	}
	producer, err := sarama.NewAsyncProducer([]string{j.Bootstrap}, config(j))
	if err != nil {
		log.Fatal(err)
	}
	go send(producer, j)
	settle(producer, j.Name)
}

func config(j job) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = j.Name
	c.Version = sarama.V0_10_2_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Return.Successes = true
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 1_000_000, 100*time.Millisecond
	c.Producer.Timeout = 4 * time.Second
	c.Net.ReadTimeout = 6 * time.Second
	c.Metadata.RefreshFrequency = 5 * time.Second
	c.Metadata.Retry.Max = 100
	c.Net.MaxOpenRequests = j.InFlight
	return c
}

func send(producer sarama.AsyncProducer, j job) {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for number := 1; ; number++ {
		select {
		case <-ended:
			producer.AsyncClose()
			return
		case <-time.After(time.Second / time.Duration(j.PerSecond)):
		}
		at := j.Places[number%len(j.Places)]
		producer.Input() <- &sarama.ProducerMessage{
			Topic:     at[0].(string),
			Partition: int32(at[1].(float64)),
			Value:     sarama.StringEncoder(fmt.Sprintf("%s:%d", j.Name, number)),
			Metadata:  now(),
		}
	}
}

// settle writes what became of each record until the producer is closed.
func settle(producer sarama.AsyncProducer, name string) {
	output := json.NewEncoder(os.Stdout)
	write := func(m *sarama.ProducerMessage, offset any, outcome, text string) {
		value, _ := m.Value.Encode()
		sends := [][4]any{{m.Topic, m.Partition, offset, string(value)}}
		if err := output.Encode(operation{name, "send", outcome, m.Metadata.(int64), now(), sends, text}); err != nil {
			log.Fatal(err)
		}
	}
	madeUp := map[place]int64{}
	successes, errors := producer.Successes(), producer.Errors()
	for successes != nil || errors != nil {
		select {
		case m, more := <-successes:
			if !more {
				successes = nil
				continue
			}
			write(m, told(madeUp, m), "ok", "")
		case e, more := <-errors:
			if !more {
				errors = nil
				continue
			}
			write(e.Msg, nil, "info", e.Err.Error())
		}
	}
}

// told returns the offset of a record, or nil if sarama made it up: it counts on from a response's first offset also
// where that is -1 (not told).
func told(madeUp map[place]int64, m *sarama.ProducerMessage) any {
	at := place{m.Topic, m.Partition}
	next, counting := madeUp[at]
	if m.Offset == -1 || counting && m.Offset == next {
		madeUp[at] = m.Offset + 1
		return nil
	}
	delete(madeUp, at)
	return m.Offset
}

// now is the clock of histories, one for all processes of this machine.
func now() int64 {
	const clockMonotonic = 1
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		log.Fatal(errno)
	}
	return t.Nano()
}
