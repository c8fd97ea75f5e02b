//go:build old

package main

import "github.com/IBM/sarama"

func idempotent(*sarama.Config) { panic("sarama 1.19 has no idempotent producer") }
