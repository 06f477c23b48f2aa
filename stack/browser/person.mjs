// A merchant's person at the dashboard, with a browser and a mailbox.

import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { until } from './stack.mjs';
import { Visitor } from './visitor.mjs';

export const PASSWORD = 'kente drum harbour lorry';

let people = 0;

export class Person extends Visitor {
  /** Links that stand alone are 44 px high; those within a line of text are as high as the text. */
  touch_min = 44;

  /** Somebody who has no account yet. */
  static async new(stack, browser, options = {}) {
    const person = await this.arrive(browser, options);
    people += 1;
    person.stack = stack;
    person.email = `ama${people}@shop.example`;
    return person;
  }

  async go(path) {
    return this.page.goto(`${this.stack.ready.dashboard}${path}`);
  }

  /** The page has this heading, and these texts. */
  async sees(title, ...texts) {
    await this.page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor().catch(async () => {
      assert.fail(`no ${title}, but:\n${await this.page.innerText('body')}`);
    });
    const words = (await this.page.innerText('body')).replaceAll('\u{a0}', ' ');
    for (const text of texts) assert.ok(words.includes(text), `no ${text} in:\n${words}`);
  }

  async fill(fields) {
    for (const [name, value] of Object.entries(fields)) {
      const field = this.page.locator(`[name="${name}"]`);
      const tag = await field.evaluate((element) => element.tagName);
      if (tag === 'SELECT') await field.selectOption(value);
      else await field.fill(value);
    }
  }

  /** Sends the page's own form. */
  async send(fields = {}) {
    await this.fill(fields);
    await this.page.locator('main form button:not([data-copy])').first().click();
  }

  /** Follows the link with these words; what only those hear who do not see it comes after them. */
  async follow(words) {
    const named = new RegExp(`^${words.replaceAll(/[^a-z0-9 ]/gi, '\\$&')}( ?:|$)`);
    await this.page.getByRole('link', { name: named }).first().click();
  }

  /** The newest link of this kind that was mailed to the person. */
  async mailed(kind) {
    const find = async () => {
      const answer = await fetch(`${this.stack.ready.mail}.json`);
      const mails = await answer.json();
      const links = mails
        .filter(({ to }) => [to].flat().join(' ').includes(this.email))
        .flatMap((mail) => mail.links ?? []);
      return links.find((link) => link.includes(`/${kind}/`));
    };
    return until(`a ${kind} link is mailed to ${this.email}`, find);
  }

  async signUp(business_name = `Ama’s Kitchen ${people}`) {
    this.business_name = business_name;
    await this.go('/signup');
    await this.send({ business_name, email: this.email, password: PASSWORD });
    await this.sees('Check your mail');
  }

  async verify() {
    await this.page.goto(await this.mailed('verify-email'));
    await this.send({ password: PASSWORD });
    await this.sees('Your address is verified', this.email);
  }

  async logIn(password = PASSWORD) {
    await this.go('/login');
    await this.send({ email: this.email, password });
    await this.sees('Overview');
  }

  /** Gives the password once more if the page asks for it. */
  async confirm() {
    await this.page.waitForLoadState();
    if (!(await this.page.getByRole('heading', { level: 1, name: 'Confirm that it is you' }).count())) return;
    await this.send({ password: PASSWORD });
  }

  /** What an authenticator with the key that the page shows would show now (RFC 6238). */
  async code() {
    const key = await this.page.locator('.secret code').first().innerText();
    const bits = [...key.trim()].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0'));
    const bytes = bits.join('').match(/.{8}/g).map((byte) => parseInt(byte, 2));
    const step = Buffer.alloc(8);
    step.writeBigUInt64BE(BigInt(Math.floor(this.stack.now() / 30)));
    const tag = createHmac('sha1', Buffer.from(bytes)).update(step).digest();
    const number = tag.readUInt32BE(tag.at(-1) & 15) & 0x7fff_ffff;
    return String(number % 1_000_000).padStart(6, '0');
  }

  /** Sets an authenticator up from the page that asks for one. */
  async setUpAuthenticator() {
    await this.follow('Set up an authenticator');
    await this.confirm();
    await this.send();
    await this.sees('Add it to your authenticator');
    await this.send({ code: await this.code() });
    await this.sees('Your recovery codes');
    await this.follow('I have stored them');
  }

  /** Everything up to a merchant that may take payments. */
  async becomeMerchant(business_name) {
    await this.signUp(business_name);
    await this.verify();
    await this.logIn();
    await this.tellBusiness();
    await this.approve();
  }

  async tellBusiness(more = {}) {
    await this.go('/settings/business');
    await this.send({
      kind: 'SOLE_PROPRIETOR',
      registered_name: 'Ama Kitchen Enterprise',
      registration_number: 'BN123456789',
      tin: 'P0001234567',
      activity: 'Lunch, delivered in Osu',
      website: 'https://ama.example',
      digital_address: 'GA-144-1234',
      town: 'Accra',
      owner_name: 'Ama Mensah',
      owner_ghana_card: 'GHA-123456789-0',
      owner_phone: '0244123456',
      ...more,
    });
    await this.sees('Business', 'Thank you', 'Waiting for review');
  }

  /** An operator approves what waits under the business's name. */
  async approve() {
    const waiting = await this.stack.payctl('kyc', 'list', '--status', 'PENDING');
    const mine = waiting.find(({ name }) => name === this.business_name);
    this.merchant_id = mine.merchant_id;
    await this.stack.payctl('kyc', 'decide', this.merchant_id, '--version', String(mine.version), '--approve', '--by', 'Kofi');
  }

  async createKey(label) {
    await this.go('/settings/integrations/keys/new');
    await this.confirm();
    await this.send({ label });
    await this.sees('Your new API key', 'shown this once');
    return this.page.locator('.secret code').innerText();
  }

  async setWebhook(url) {
    await this.go('/settings/integrations/webhooks/endpoint');
    await this.confirm();
    await this.send({ url });
    await this.sees('Webhook', 'Saved.', url);
  }

  /** Follows all links from the overview on, to one page of each kind: `visit` sees each. */
  async walk(visit) {
    const ways = ['/'];
    const walked = new Set();
    while (ways.length > 0) {
      const way = ways.shift();
      const kind = way.split('?')[0].replace(/[0-9a-f-]{36}|TX-[^/]+|PO-[^/]+|RF-[^/]+|CUS-[^/]+|dlv_[^/]+/g, '*');
      if (walked.has(kind) || kind.endsWith('.csv')) continue;
      walked.add(kind);
      const answer = await this.go(way);
      await this.confirm();
      await visit(kind, answer);
      const links = this.page.locator('a[href^="/"]');
      ways.push(...await links.evaluateAll((all) => all.map((link) => link.getAttribute('href'))));
    }
    return walked;
  }

  /** Takes a payment by the API with this key; its reference. */
  async charge(key, mobile_number, more = {}) {
    const { reference } = await this.post(key, '/charge', { amount: 25.5, mobile_number, provider: 'MTN', ...more });
    return reference;
  }

  async submitCode(key, reference, otp) {
    return this.post(key, '/charge/submit-otp', { reference, otp });
  }

  async post(key, path, body) {
    const answer = await fetch(`${this.stack.ready.api}/api/v1/payments${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const answered = await answer.json();
    assert.equal(answer.status, 202, JSON.stringify(answered));
    return answered;
  }
}
