'use strict';

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs');
const transactional = require('./kafkajs_transactions.js');
const { unpack, pack, sleep, chunks, Taker } = require('./records.js');

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy');

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };

/** Repeated headers are a list of values under one name here. */
function grouped(pairs) {
  const headers = {};
  for (const [name, value] of pairs) (headers[name] ||= []).push(unpack(value));
  return headers;
}

module.exports = (job) => {
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: [job.bootstrap], logLevel: logLevel.WARN });

  async function produce(step) {
    const producer = kafka.producer({ allowAutoTopicCreation: false, ...job.options.producer });
    await producer.connect();
    const messages = step.records.map((fields) => ({
      partition: fields.p,
      key: unpack(fields.k),
      value: unpack(fields.v),
      timestamp: fields.ts === null ? undefined : String(fields.ts),
      headers: grouped(fields.h),
    }));
    let sent = 0;
    for (const some of chunks(messages, step.chunk)) {
      if (step.pace && Math.floor(sent / step.pace[0]) < Math.floor((sent + some.length) / step.pace[0])) {
        await sleep(step.pace[1]);
      }
      sent += some.length;
      await producer.send({ topic: step.topic, messages: some, compression: CODECS[step.codec], timeout: step.timeout_ms });
    }
    await producer.disconnect();
    return {};
  }

  async function consume(step) {
    const consumer = kafka.consumer({
      groupId: step.group, maxWaitTimeInMs: 200, rebalanceTimeout: 3000, ...job.options.consumer,
    });
    const taker = new Taker(step);
    await consumer.connect();
    await consumer.subscribe({ topic: step.topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => taker.take({
        p: partition,
        o: Number(message.offset),
        k: pack(message.key),
        v: pack(message.value),
        ts: Number(message.timestamp),
        h: Object.entries(message.headers || {}).flatMap(([name, values]) =>
          (Array.isArray(values) ? values : [values]).map((value) => [name, pack(value)])),
      }),
    });
    const result = await taker.finish((positions) => consumer.commitOffsets(
      [...positions].map(([partition, offset]) => ({ topic: step.topic, partition, offset: String(offset) }))));
    await consumer.disconnect();
    return result;
  }

  return { produce, consume, ...transactional(job, kafka, CODECS) };
};
