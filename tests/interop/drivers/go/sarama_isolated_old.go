//go:build old

package main

import "github.com/IBM/sarama"

func isolated(*sarama.Config) { panic("sarama 1.19 has no isolation level") }
