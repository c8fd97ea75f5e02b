'use strict';
// The Node driver: reads a job from standard input and runs its steps with the client that options.client names.

const fs = require('fs');

const clients = { kafkajs: './kafkajs.js', 'kafka-node': './kafka_node.js', 'no-kafka': './no_kafka.js' };

async function main() {
  const job = JSON.parse(fs.readFileSync(0, 'utf8'));
  const steps = require(clients[job.options.client])(job);
  for (const step of job.steps) {
    let result;
    try {
      result = await steps[step.op](step);
    } catch (error) {
      console.error(error);
      result = { error: String((error && error.stack) || error) };
    }
    process.stdout.write('RESULT ' + JSON.stringify({ op: step.op, ...result }) + '\n');
  }
}

process.on('unhandledRejection', (error) => {
  console.error('unhandled', error);
  process.exit(3);
});
main().then(() => process.exit(0));
