package main

import (
	"encoding/base64"
	"time"
)

// header gives the name and the value of one header pair.
func header(pair [2]*bytes) (string, []byte) {
	if pair[1] == nil {
		return pair[0].text, nil
	}
	value, _ := base64.StdEncoding.DecodeString(pair[1].text)
	if value == nil {
		value = []byte{}
	}
	return pair[0].text, value
}

func pair(name string, value []byte) [2]*bytes {
	if value == nil {
		return [2]*bytes{{name}, nil}
	}
	return [2]*bytes{{name}, {base64.StdEncoding.EncodeToString(value)}}
}

// when is the record's time; the zero time where the job gives none.
func (f fields) when() time.Time {
	if f.Ts == nil {
		return time.Time{}
	}
	return time.UnixMilli(*f.Ts)
}

func millis(t time.Time) *int64 {
	if t.IsZero() || t.UnixMilli() < 0 {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
