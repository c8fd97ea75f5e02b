//go:build !old

package main

import "github.com/IBM/sarama"

func idempotent(config *sarama.Config) {
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
}
