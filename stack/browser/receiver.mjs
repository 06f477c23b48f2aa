// A merchant's server, which receives events.

import { createHmac, timingSafeEqual } from 'node:crypto';
import http from 'node:http';

export class Receiver {
  /** What has arrived: `{ headers, body }`, the oldest first. */
  received = [];

  /** `answer` gives the status for each request. */
  static async open(answer = () => 200) {
    const receiver = new Receiver();
    receiver.answer = answer;
    receiver.text = 'thank you';
    receiver.server = http.createServer((request, response) => receiver.take(request, response));
    receiver.server.unref();
    await new Promise((resolve) => receiver.server.listen(0, '127.0.0.1', resolve));
    receiver.url = `http://127.0.0.1:${receiver.server.address().port}/hook`;
    return receiver;
  }

  async take(request, response) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const arrived = { headers: request.headers, body: Buffer.concat(pieces).toString() };
    response.statusCode = this.answer(arrived, this.received);
    this.received.push(arrived);
    response.end(this.text);
  }

  close() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

/** The header of a signature of this body. */
export function sign(secret, t, body) {
  return `t=${t},v1=${mac(secret, t, body)}`;
}

function mac(secret, t, body) {
  return createHmac('sha256', secret).update(`${t}.${body}`).digest('hex');
}

/** How a careful receiver judges what arrived; a careless one changes some of it. */
export class Judge {
  constructor(secret, careless = {}) {
    this.secret = secret;
    Object.assign(this, careless);
  }

  read = (body) => body;
  isFresh = (t) => Math.abs(Date.now() / 1_000 - t) <= 300;
  signatures = (all) => all;

  isSigned({ headers, body }) {
    const parts = (headers['x-service-signature'] ?? '').split(',').map((part) => part.split('='));
    const [[, t]] = parts.filter(([name]) => name === 't');
    const given = parts.filter(([name]) => name === 'v1').map(([, value]) => value);
    const right = mac(this.secret, t, this.read(body));
    const isRight = (value) => value.length === right.length && timingSafeEqual(Buffer.from(value), Buffer.from(right));
    return this.isFresh(Number(t)) && this.signatures(given).some(isRight);
  }

  /** The status of an answer. `before` is what was received until now. */
  answer = (arrived, before) => (this.isSigned(arrived) ? this.use(JSON.parse(arrived.body), before) : 400);
  use = () => 200;
}
