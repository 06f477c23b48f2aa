// Starts the local stack, and more gateways in front of its services, for as long as the tests run.

import { spawn, execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const BINARIES = process.env.BINARIES ?? path.join(import.meta.dirname, '../../target/debug');

/** Longest wait for anything that must happen; no test may hang on it for longer. */
export const WAIT_MAX_MS = 60_000;

/** What `look` gives once it gives something. `claim` may be made when it fails. */
export async function until(claim, look, pause_ms = 200) {
  const deadline = Date.now() + WAIT_MAX_MS;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > deadline) throw new Error(`never true: ${claim instanceof Function ? claim() : claim}`);
    await new Promise((resolve) => setTimeout(resolve, pause_ms));
  }
}

const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));

/** A process whose log is kept and shown if it ends by itself. */
function start(binary, flags, environment = {}) {
  const child = spawn(path.join(BINARIES, binary), flags, {
    env: { ...process.env, RUST_LOG: 'warn', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  let log = '';
  const keep = (chunk) => { log = (log + chunk).slice(-20_000); };
  child.stdout.on('data', keep);
  child.stderr.on('data', keep);
  child.on('error', (error) => keep(String(error)));
  child.checkRuns = () => {
    if (child.exitCode !== null || !child.pid) throw new Error(`${binary} has ended:\n${log}`);
  };
  return child;
}

async function stop(child) {
  children.delete(child);
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 15_000);
  await ended;
  clearTimeout(timer);
}

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Stack {
  static async start() {
    const stack = new Stack();
    stack.folder = mkdtempSync(path.join(os.tmpdir(), 'checkout-'));
    const ready = path.join(stack.folder, 'ready.json');
    const free = ['api', 'checkout', 'dashboard', 'handset'];
    const flags = free.flatMap((name) => [`--${name}`, '127.0.0.1:0']);
    stack.process = start('stack', ['--ephemeral', ...flags, '--ready-file', ready]);
    stack.gateways = [];
    stack.ahead = 0;
    stack.ready = await until('the stack is ready', async () => {
      stack.process.checkRuns();
      return readFile(ready, 'utf8').then(JSON.parse, () => null);
    });
    return stack;
  }

  /** A gateway of its own, with other settings, in front of the same services; its checkout's URL. */
  async gateway(settings) {
    const { merchants, sessions, charges, webhooks, ratelimit } = this.ready.grpc;
    const [api, checkout] = [await freePort(), await freePort()];
    const url = `http://127.0.0.1:${checkout}`;
    const gateway = start('gateway', [], {
      API_LISTEN: `127.0.0.1:${api}`,
      CHECKOUT_LISTEN: `127.0.0.1:${checkout}`,
      DASHBOARD_LISTEN: `127.0.0.1:${await freePort()}`,
      CHECKOUT_URL: url,
      MERCHANTS_URL: merchants,
      SESSIONS_URL: sessions,
      CHARGES_URL: charges,
      WEBHOOKS_URL: webhooks,
      RATELIMIT_URL: ratelimit,
      ...settings,
    });
    this.gateways.push(gateway);
    await until('the gateway answers', () => {
      gateway.checkRuns();
      return fetch(url).then(() => true, () => false);
    });
    return url;
  }

  /** Moves the stack's time; returns once everything that became due is done. */
  async advance(seconds) {
    const answer = await fetch(this.ready.clock, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ advance_seconds: seconds }),
    });
    if (!answer.ok) throw new Error(`the clock did not move: ${await answer.text()}`);
    this.ahead += seconds;
  }

  /** The stack's time, in seconds since 1970. */
  now() {
    return Date.now() / 1_000 + this.ahead;
  }

  /** The operators' command line; what it prints. */
  async payctl(...words) {
    const addresses = { MERCHANTS_GRPC_URL: this.ready.grpc.merchants_operators };
    const run = promisify(execFile);
    const options = { env: { ...process.env, ...addresses }, timeout: WAIT_MAX_MS };
    const { stdout } = await run(path.join(BINARIES, 'payctl'), words, options);
    return JSON.parse(stdout);
  }

  /** What the simulated networks have of one number. */
  async book(number) {
    const answer = await fetch(`${this.ready.handset}/book`);
    const entries = await answer.json();
    return entries.filter(({ phone }) => phone === `+233${number.slice(1)}`);
  }

  async stop() {
    await Promise.all([...this.gateways, this.process].map(stop));
    rmSync(this.folder, { recursive: true, force: true });
  }
}
