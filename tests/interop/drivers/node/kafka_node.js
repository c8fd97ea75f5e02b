'use strict';

const kafka = require('kafka-node');
const { unpack, pack, Taker } = require('./records.js');

const CODECS = { none: 0, gzip: 1, snappy: 2 };
const call = (target, name, ...rest) => new Promise((resolve, reject) =>
  target[name](...rest, (error, result) => (error ? reject(error) : resolve(result))));
const ready = (emitter, event) => new Promise((resolve, reject) => {
  emitter.once(event, resolve);
  emitter.once('error', reject);
});

module.exports = (job) => {
  async function produce(step) {
    const client = new kafka.KafkaClient({ kafkaHost: job.bootstrap, connectTimeout: 5000 });
    const producer = new kafka.Producer(client, { requireAcks: 1, ackTimeoutMs: 5000 });
    await ready(producer, 'ready');
    await call(client, 'refreshMetadata', [step.topic]);
    const payloads = step.records.map((fields) => ({
      topic: step.topic,
      partition: fields.p,
      key: unpack(fields.k),
      messages: [unpack(fields.v)],
      attributes: CODECS[step.codec],
      timestamp: fields.ts === null ? undefined : fields.ts,
    }));
    await call(producer, 'send', payloads);
    await new Promise((resolve) => producer.close(resolve));
    return {};
  }

  async function consume(step) {
    const consumer = new kafka.ConsumerGroup({
      kafkaHost: job.bootstrap,
      groupId: step.group,
      autoCommit: false,
      commitOffsetsOnFirstJoin: false,
      fromOffset: 'earliest',
      encoding: 'buffer',
      keyEncoding: 'buffer',
      fetchMaxWaitMs: 100,
      sessionTimeout: 10000,
    }, [step.topic]);
    const taker = new Taker(step);
    consumer.on('message', (message) => taker.take({
      p: message.partition,
      o: message.offset,
      k: pack(message.key),
      v: pack(message.value),
      ts: message.timestamp === undefined ? null : Number(message.timestamp),
      h: [],
    }));
    const failed = new Promise((_, reject) => consumer.on('error', reject));
    const finished = taker.finish((positions) => call(consumer, 'sendOffsetCommitRequest',
      [...positions].map(([partition, offset]) => ({ topic: step.topic, partition, offset, metadata: 'm' }))));
    const result = await Promise.race([finished, failed]);
    await new Promise((resolve) => consumer.close(false, resolve));
    return result;
  }

  return { produce, consume };
};
