// A merchant: makes sessions and reads what became of them, by the public API alone.

import assert from 'node:assert/strict';
import http from 'node:http';
import { until } from './stack.mjs';

let numbers = 0;

/** A number that no other test uses; its last three digits choose the network's story. */
export function number(story, prefix = '024') {
  numbers += 1;
  return `${prefix}${String(numbers).padStart(4, '0')}${story}`;
}

/** A shop of its own for each test, because requests are counted for each merchant. */
export class Shop {
  static async open(stack, name = 'Ama’s Kitchen') {
    const shop = new Shop();
    shop.stack = stack;
    const verified = ['--email-verified', '--kyc', 'APPROVED'];
    const words = ['merchant', 'create', '--name', name, '--email', 'ama@shop.example'];
    shop.id = (await stack.payctl(...words, ...verified)).merchant_id;
    shop.key = (await stack.payctl('key', 'create', shop.id)).api_key;
    return shop;
  }

  async call(method, path, body) {
    const answer = await fetch(`${this.stack.ready.api}/api/v1/payments${path}`, {
      method,
      headers: { authorization: `Bearer ${this.key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return { code: answer.status, body: await answer.json() };
  }

  /** A session of 25.50 cedis, unless told otherwise. */
  async session(more = {}) {
    const order = { amount: 25.5, currency: 'GHS', description: 'Order 17', ...more };
    const { code, body } = await this.call('POST', '/initiate', order);
    assert.equal(code, 201, JSON.stringify(body));
    return body;
  }

  async status({ session_id }) {
    const { code, body } = await this.call('GET', `/${session_id}/status`);
    assert.equal(code, 200, JSON.stringify(body));
    return body;
  }

  /** The session once it has this status, which follows the page by a moment. */
  settled(session, status) {
    return until(`the session is ${status}`, async () => {
      const found = await this.status(session);
      return found.status === status && found;
    }, 1_000);
  }

  /** Everything that must be true of a session that was paid once, from this number. */
  async checkPaidOnce(session, { from, charged = 2_550 }) {
    const { session_id, amount, currency } = session;
    const found = await this.settled(session, 'COMPLETED');
    const { transaction } = found;
    assert.deepEqual([found.amount, found.currency], [amount, currency]);
    assert.equal(transaction.status, 'SETTLED');
    assert.equal(transaction.method, 'MOBILE_MONEY');
    assert.equal(transaction.failure_reason, null);
    assert.match(transaction.tx_id_display, /^TX-[0-9A-Z]+$/);
    const entries = await this.stack.book(from);
    const debits = entries.reduce((sum, entry) => sum + entry.debits, 0);
    assert.equal(debits, 1, `debits for ${session_id}: ${JSON.stringify(entries)}`);
    const paid = entries.find((entry) => entry.debits === 1);
    assert.deepEqual([paid.amount_minor, paid.currency], [charged, 'GHS']);
  }

  /** Everything that must be true of a charge as the API shows it. */
  async checkCharge(session, reference, { status, reason = null, amount = 25.5 }) {
    const { code, body } = await this.call('GET', `/charge/${reference}`);
    assert.equal(code, 200, JSON.stringify(body));
    const { transaction_id, created_at, updated_at, ...charge } = body;
    assert.ok(transaction_id && created_at <= updated_at, JSON.stringify(body));
    assert.equal(charge.reference, reference);
    assert.equal(charge.session_id, session.session_id);
    assert.deepEqual([charge.status, charge.failure_reason], [status, reason]);
    assert.deepEqual([charge.amount, charge.currency], [amount, 'GHS']);
    assert.equal(charge.method, 'MOBILE_MONEY');
  }
}

/** The shop's own site on another origin: keeps what visitors ask for. */
export class Site {
  static async open(page = '<!doctype html><title>The shop</title><h1>Thank you</h1>') {
    const site = new Site();
    site.visits = [];
    site.server = http.createServer((request, response) => {
      site.visits.push({ url: request.url, referrer: request.headers.referer });
      response.setHeader('content-type', 'text/html; charset=utf-8');
      response.end(page);
    });
    site.server.unref();
    await new Promise((resolve) => site.server.listen(0, '127.0.0.1', resolve));
    site.url = `http://localhost:${site.server.address().port}`;
    return site;
  }

  async close() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
