'use strict';

const unpack = (text) => (text === null ? null : Buffer.from(text, 'base64'));
const pack = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The list in pieces of `size`, or whole. */
const chunks = (list, size) => (size > 0 && list.length > size
  ? [list.slice(0, size), ...chunks(list.slice(size), size)] : [list]);

/** Collects records until `count` are there; later ones are kept only while the step waits for extra ones. */
class Taker {
  constructor(step) {
    this.step = step;
    this.records = [];
    this.positions = new Map();
    this.full = new Promise((resolve) => { this.resolve = resolve; });
  }

  take(record) {
    if (this.records.length >= this.step.count && !(this.step.extra_ms > 0)) return;
    this.records.push(record);
    if (this.records.length <= this.step.count) this.positions.set(record.p, record.o + 1);
    if (this.records.length === this.step.count) this.resolve();
  }

  /** Waits for all records, commits by `commit(positions)`, then waits for records that should not come. */
  async finish(commit) {
    await Promise.race([this.full, sleep(this.step.timeout_ms)]);
    await commit(this.positions);
    await sleep(this.step.extra_ms);
    return { records: this.records, timed_out: this.records.length < this.step.count };
  }
}

module.exports = { unpack, pack, sleep, chunks, Taker };
