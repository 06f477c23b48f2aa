// How a merchant's developer finds out what is wrong with a receiver.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TIMEOUT, browser, stack } from './office.mjs';
import { Person } from './person.mjs';
import { Judge, Receiver, sign } from './receiver.mjs';
import { number } from './shop.mjs';
import { until } from './stack.mjs';

const PATH = '/settings/integrations/webhooks';

/** The secret that signs, as the page shows it. */
async function reveal(person) {
  await person.go(`${PATH}/secret`);
  await person.confirm();
  await person.send();
  await person.sees('Webhook secret');
  return person.page.locator('.secret code').first().innerText();
}

test('the doctor tells eight kinds of broken signatures apart', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  const shop = await Receiver.open();
  await person.becomeMerchant();
  const key = await person.createKey('Server');
  await person.setWebhook(shop.url);
  await person.charge(key, number('001'));
  await person.charge(key, number('001'));
  await until('two events have arrived', () => shop.received.length >= 2);
  const [{ headers, body }, other] = shop.received;
  const header = headers['x-service-signature'];
  const secret = await reveal(person);
  const now = Math.floor(Date.now() / 1_000);
  const cases = [
    ['The signature is right', header, body],
    ['Not a signature', header.split(',')[0], body],
    ['Signed at another time', sign(secret, now - 301, body), body],
    ['The line breaks have changed', header, `${body}\n`],
    ['The JSON was written anew', header, JSON.stringify(JSON.parse(body), null, 1)],
    ['The body says something else', header, body.replace('25.50', '2550.00')],
    ["The header is another event's", header, other.body],
    ['There is no body', header, ''],
    ['By none of your secrets', sign('whsec_another', now, body), body],
  ];
  for (const [finding, header, body] of cases) {
    await person.go(`${PATH}/doctor`);
    await person.send({ header, body });
    await person.sees('Signature doctor', finding);
    if (finding === 'The line breaks have changed') await person.check('doctor, line breaks');
    assert.ok(!(await person.page.content()).includes(secret), 'the doctor shows no secret');
  }
  await person.go(`${PATH}/rotate`);
  await person.send();
  await person.sees('Your new webhook secret');
  await person.go(`${PATH}/doctor`);
  await person.send({ header, body });
  await person.sees('Signature doctor', 'Right, with the secret before');
  await shop.close();
  await person.leave();
});

/** What each careless receiver does, and what it then gets wrong. */
const CARELESS = {
  'checks nothing': [
    { isSigned: () => true },
    ['Signed with another secret', 'Signed 301 seconds ago', 'Another amount than was signed'],
  ],
  'looks at no clock': [{ isFresh: () => true }, ['Signed 301 seconds ago']],
  'takes the first signature for the only one': [
    { signatures: (all) => all.slice(0, 1) },
    ['Two signatures, of which one is right'],
  ],
  'checks what it has parsed': [
    { read: (body) => JSON.stringify(JSON.parse(body)) },
    [
      'A payment', 'The same event twice', 'An older event after a newer one',
      'Two signatures, of which one is right', 'An event of a type that nobody knows',
    ],
  ],
  'refuses what it has seen': [
    {
      use: ({ id }, before) => (before.some(({ body }) => JSON.parse(body).id === id) ? 409 : 200),
    },
    ['The same event twice'],
  ],
  'refuses what is older': [
    {
      use: ({ created_at }, before) => (before.some(({ body }) => JSON.parse(body).created_at > created_at) ? 409 : 200),
    },
    ['An older event after a newer one'],
  ],
  'knows every type': [
    { use: ({ type, event }) => ((type ?? event) === 'payment.success' ? 200 : 400) },
    ['An event of a type that nobody knows'],
  ],
};

test('a conformance run tells a good receiver from seven careless ones', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  for (const [how, [careless, wrong]] of Object.entries({ 'does all of it': [{}, []], ...CARELESS })) {
    const shop = await Receiver.open();
    await person.go(`${PATH}/conformance`);
    await person.send();
    await person.sees('Where is your receiver?');
    const judge = new Judge(await person.page.locator('.secret code').innerText(), careless);
    shop.answer = judge.answer;
    await person.send({ url: shop.url });
    await person.sees('Conformance run');
    await until(`${how}: the run has ended`, async () => {
      await person.page.reload();
      return !(await person.page.innerText('main')).includes('Goes on');
    }, 500);
    const rows = person.page.locator('tbody tr').filter({ hasText: 'Wrong' }).locator('td, th');
    const failed = (await rows.allInnerTexts()).filter((_, index) => index % 4 === 0);
    assert.deepEqual(failed, wrong, how);
    await person.sees('Conformance run', wrong.length ? 'Not passed' : 'Passed', `${8 - wrong.length} / 8`);
    if (how === 'checks nothing') {
      assert.match(await person.page.innerText('main'), /curl --include/);
      await person.check('conformance, not passed');
    }
    await shop.close();
  }
  await person.leave();
});
