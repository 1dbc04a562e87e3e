// eureka-js-client as a program: one JSON request a line, [operation, argument ...], answered by a line
// {"result": ...}. Its end is the end of the input, with its registration taken back.
'use strict';

const readline = require('node:readline');
const { Eureka } = require('eureka-js-client');

const settings = JSON.parse(process.argv[2]);
const client = new Eureka({ ...settings, shouldUseDelta: true });
client.logger.level('error');

const counts = { heartbeat: 0, delta: 0, failure: 0 };
client.on('heartbeat', () => { counts.heartbeat += 1; });
const fetchDelta = client.fetchDelta.bind(client);
client.fetchDelta = (callback) => fetchDelta((error) => {
  counts[error ? 'failure' : 'delta'] += 1;
  callback(error);
});

const operations = {
  started: () => true,
  counts: () => counts,
  instances: (application) => client.getInstancesByAppId(application),
  ofVip: (vip) => client.getInstancesByVipAddress(vip),
};

client.start((error) => {
  if (error) throw error;
  const lines = readline.createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const [operation, ...values] = JSON.parse(line);
    process.stdout.write(`${JSON.stringify({ result: operations[operation](...values) })}\n`);
  });
  lines.on('close', () => client.stop((failure) => process.exit(failure ? 1 : 0)));
});
