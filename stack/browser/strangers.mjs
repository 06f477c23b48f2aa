// What strangers, payers' shops and receivers write, as the dashboard shows it: nothing of it runs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CORPUS, NAME, OF_NETWORKS, checkNothingRan } from './corpus.mjs';
import { TIMEOUT, browser, stack } from './office.mjs';
import { Person } from './person.mjs';
import { Receiver } from './receiver.mjs';
import { number } from './shop.mjs';
import { until } from './stack.mjs';

test('nothing that is stored runs on any page', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  const shop = await Receiver.open(() => 500);
  shop.text = CORPUS.join('\n');
  await person.signUp(NAME);
  await person.verify();
  await person.logIn();
  await person.tellBusiness({ activity: NAME, registered_name: NAME, town: NAME, owner_name: NAME });
  await person.approve();
  const key = await person.createKey('"><script>ran=1</script>');
  await person.setWebhook(`${shop.url}?a="><script>ran=1</script>`);
  for (const text of CORPUS) {
    const reference = await person.charge(key, number('001'), { description: text, payer_name: text });
    await person.go(`/payments/${reference}`);
    await person.sees('Payment', text);
    await checkNothingRan(person, text, '/');
  }
  await until('every payer is a customer', async () => {
    await person.go('/customers');
    return await person.page.locator('tbody tr').count() === CORPUS.length;
  });
  await until('an answer is kept', async () => {
    await person.go('/settings/integrations/webhooks/deliveries');
    return (await person.page.innerText('main')).includes('500');
  });
  const walked = await person.walk((kind) => checkNothingRan(person, kind, '/'));
  assert.ok(walked.size > 30, [...walked].join(' '));
  await shop.close();
  await person.leave();
});

test('nothing that a network says runs', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  const key = await person.createKey('Server');
  const reference = await person.charge(key, number('017', '020'), { provider: 'TELECEL' });
  await person.submitCode(key, reference, '123456');
  await until('the payment has failed', async () => {
    await person.go(`/payments/${reference}`);
    return (await person.page.innerText('main')).includes('Failed');
  }, 1_000);
  await checkNothingRan(person, 'payment', '/');
  await person.go('/payouts/account/set');
  await person.confirm();
  await person.setUpAuthenticator();
  await person.send({ provider: 'MTN', account: '024 000 0217', holder_name: 'Ama Mensah' });
  await person.sees('Is this you?', `MTN 024 000 0217 is: ${OF_NETWORKS}`);
  await checkNothingRan(person, 'holder', '/');
  await person.send();
  await person.sees('Payout account', 'Name at the network', OF_NETWORKS);
  await checkNothingRan(person, 'account', '/');
  await person.go('/payouts/new');
  await checkNothingRan(person, 'payout', '/');
  await person.leave();
});

test('nothing that is in an address or a refused form runs', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  for (const text of CORPUS) {
    await person.go(`/login?next=${encodeURIComponent(text)}&done=${encodeURIComponent(text)}`);
    await person.send({ email: text.replaceAll('\n', ' '), password: text });
    await checkNothingRan(person, text, '/');
    await person.go(`/${encodeURIComponent(text)}`);
    await checkNothingRan(person, text, '/');
  }
  await person.becomeMerchant();
  const lists = ['/payments', '/customers', '/settings/integrations/webhooks/deliveries'];
  for (const [index, text] of CORPUS.entries()) {
    const names = ['q', 'status', 'from', 'amount_from', 'after', 'passed'];
    const query = names.map((name) => `${name}=${encodeURIComponent(text)}`).join('&');
    await person.go(`${lists[index % lists.length]}?${query}`);
    await checkNothingRan(person, text, '/');
  }
  await person.go('/settings/business');
  await person.send({ website: NAME, town: NAME, owner_phone: NAME });
  await person.sees('Business', 'There is a problem');
  await checkNothingRan(person, 'a refused form', '/');
  await person.leave();
});
