'use strict';

const Kafka = require('no-kafka');
const { unpack, pack, chunks, Taker } = require('./records.js');

const CODECS = { none: Kafka.COMPRESSION_NONE, gzip: Kafka.COMPRESSION_GZIP };
const QUIET = { logger: { logLevel: 1 } };

module.exports = (job) => {
  async function produce(step) {
    const producer = new Kafka.Producer({
      connectionString: job.bootstrap, codec: CODECS[step.codec], timeout: step.timeout_ms, requiredAcks: 1, ...QUIET,
      ...job.options.producer,
    });
    await producer.init();
    let failed;
    // One partition after the other: with gzip, this client sends one partition's records to another if it may batch both.
    for (const partition of new Set(step.records.map((fields) => fields.p))) {
      const mine = step.records.filter((fields) => fields.p === partition);
      for (const some of chunks(mine, step.chunk)) {
        const sent = await producer.send(some.map((fields) => ({
          topic: step.topic,
          partition,
          message: { key: unpack(fields.k), value: unpack(fields.v) },
        })), { batch: { size: 16384, maxWait: step.chunk > 0 ? 0 : 30 } });
        failed ||= sent.find((result) => result.error);
      }
    }
    await producer.end();
    return failed ? { error: String(failed.error) } : {};
  }

  async function consume(step) {
    const consumer = new Kafka.GroupConsumer({
      connectionString: job.bootstrap, groupId: step.group, startingOffset: Kafka.EARLIEST_OFFSET, maxWaitTime: 100,
      idleTimeout: 50, ...QUIET,
    });
    const taker = new Taker(step);
    await consumer.init([{
      subscriptions: [step.topic],
      strategy: new Kafka.DefaultAssignmentStrategy(),
      handler: async (messages, topic, partition) => messages.forEach(({ offset, message }) => taker.take({
        p: partition, o: offset, k: pack(message.key), v: pack(message.value), ts: null, h: [],
      })),
    }]);
    const result = await taker.finish((positions) => consumer.commitOffset(
      [...positions].map(([partition, offset]) => ({ topic: step.topic, partition, offset: offset - 1 }))));
    await consumer.end();
    return result;
  }

  return { produce, consume };
};
