// Saves numbers one after the other for a while, and tells what became of them.
import { Sidecar } from 'ckptsidecar';
import { setTimeout as sleep } from 'node:timers/promises';

const [agentName, lasts, deadline] = process.argv.slice(2) as [string, string, string];
const sidecar = new Sidecar({ socket: process.env['CKPTSIDECAR_SOCKET'], deadline: Number(deadline), onWarning: () => undefined }) // named, so that what it spools is for this daemon, also where it has not reached it yet;
const agent = sidecar.agent(agentName);
const saved = { daemon: 0, spool: 0, nowhere: 0 };
let n = 0;
let longest = 0;
for (const until = Date.now() + Number(lasts); Date.now() < until; ) {
  const began = performance.now();
  saved[(await agent.save({ n: ++n, text: 'some words '.repeat(1000) })).stored]++;
  longest = Math.max(longest, performance.now() - began);
  await sleep(15);
}
console.log(JSON.stringify({ n, longest: Math.round(longest), ...saved }));
