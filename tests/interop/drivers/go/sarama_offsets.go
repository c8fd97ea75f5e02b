//go:build !old && !middle

package main

import "github.com/IBM/sarama"

func addOffsets(c *saramaCopier, offsets map[string][]*sarama.PartitionOffsetMetadata) error {
	member := sarama.NewConsumerGroupMetadataFromSession(c.session, c.name, nil)
	return c.producer.client.AddOffsetsToTxnWithGroupMetadata(offsets, member)
}
