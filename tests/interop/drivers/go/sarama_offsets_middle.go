//go:build middle

package main

import "github.com/IBM/sarama"

// Before KIP-447 the group's name is all that a transaction knows of it.
func addOffsets(c *saramaCopier, offsets map[string][]*sarama.PartitionOffsetMetadata) error {
	return c.producer.client.AddOffsetsToTxn(offsets, c.name)
}
