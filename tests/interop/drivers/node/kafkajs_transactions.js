'use strict';
// The steps `transactions` and `transform` of README.md of the drivers.

const { unpack, sleep } = require('./records.js');

/** Producers, each with at most one open transaction; what was sent without waiting is waited for by commit. */
class Transactional {
  constructor(producer, codec) {
    this.producer = producer;
    this.codec = codec;
    this.sent = [];
  }

  async begin() {
    this.transaction = await this.producer.transaction();
  }

  async produce(topic, records, wait) {
    const messages = records.map((fields) => ({ partition: fields.p, key: unpack(fields.k), value: unpack(fields.v) }));
    const sent = this.transaction.send({ topic, messages, compression: this.codec });
    sent.catch(() => {});
    this.sent.push(sent);
    if (wait) await this.flush();
  }

  async flush() {
    const sent = this.sent.splice(0);
    await Promise.all(sent);
  }

  async commit() {
    await this.flush();
    await this.transaction.commit();
  }

  async abort() {
    await Promise.allSettled(this.sent.splice(0));
    await this.transaction.abort();
  }
}

/** The text of an error and its causes, with Kafka's own name of each that has one. */
function chain(error) {
  const causes = [];
  for (let cause = error; cause; cause = cause.cause || cause.originalError) causes.push(`${cause.type || ''} ${cause}`.trim());
  return causes.join('; caused by ');
}

module.exports = (job, kafka, codecs) => {
  async function open(step) {
    const options = { allowAutoTopicCreation: false, idempotent: true, maxInFlightRequests: 1, ...job.options.producer };
    const producer = kafka.producer({ ...options, transactionalId: step.id });
    await producer.connect();
    return new Transactional(producer, codecs[step.codec]);
  }

  async function act(step, action, producers) {
    const producer = producers.get(action.on);
    switch (action.do) {
      case 'open': producers.set(action.on, await open(step)); break;
      case 'begin': await producer.begin(); break;
      case 'produce': await producer.produce(action.topic, action.records, action.wait); break;
      case 'commit': await producer.commit(); break;
      case 'abort': await producer.abort(); break;
      default: throw new Error(`action ${action.do}`);
    }
  }

  async function transactions(step) {
    const producers = new Map();
    const outcomes = [];
    for (const action of step.script) {
      try {
        await act(step, action, producers);
        outcomes.push(null);
      } catch (error) {
        console.error(error);
        outcomes.push(chain(error));
        if (!action.fails) break;
      }
    }
    for (const { producer } of producers.values()) await producer.disconnect();
    return { outcomes };
  }

  async function transform(step) {
    const producer = await open(step);
    const consumer = kafka.consumer({
      groupId: step.group, maxWaitTimeInMs: 200, sessionTimeout: 6000, heartbeatInterval: 2000, rebalanceTimeout: 3000,
    });
    const read = [];
    // What was read before the group changed comes again.
    consumer.on(consumer.events.GROUP_JOIN, () => { read.length = 0; });
    await consumer.connect();
    await consumer.subscribe({ topic: step.source, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => { read.push({ partition, message }); },
    });
    try {
      await copy(step, producer, read);
    } finally {
      await consumer.disconnect();
      await producer.producer.disconnect();
    }
    return {};
  }

  async function copy(step, producer, read) {
    const deadline = Date.now() + step.timeout_ms;
    for (let left = step.count; left > 0;) {
      const size = Math.min(left, step.per);
      while (read.length < size) {
        if (Date.now() > deadline) throw new Error(`${left} records not read`);
        await sleep(20);
      }
      await one(step, producer, read.splice(0, size));
      left -= size;
      const ending = left > 0 ? 'commit' : step.ending;
      if (ending === 'kill') process.exit(9);
      await producer[ending]();
    }
  }

  async function one(step, producer, some) {
    const positions = new Map();
    await producer.begin();
    for (const { partition, message } of some) positions.set(partition, Number(message.offset) + 1);
    const messages = some.map(({ partition, message }) => ({ partition, key: message.key, value: message.value }));
    await producer.transaction.send({ topic: step.target, messages });
    const partitions = [...positions].map(([partition, offset]) => ({ partition, offset: String(offset) }));
    await producer.transaction.sendOffsets({
      consumerGroupId: step.group, topics: [{ topic: step.source, partitions }],
    });
  }

  return { transactions, transform };
};
