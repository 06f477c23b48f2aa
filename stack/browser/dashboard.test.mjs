// The dashboard as a merchant's people meet it, in a browser.
//
// `.ci/browser` runs all of it, `.ci/browser 'a part of a name'` some of it. With `PICTURES=folder`
// every page that is checked is also kept as a picture, on a phone, in the dark and on a desk.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { TIMEOUT, browser, close, stack } from './office.mjs';
import { number } from './shop.mjs';
import { PASSWORD, Person } from './person.mjs';
import { Receiver } from './receiver.mjs';
import { until } from './stack.mjs';
import './strangers.mjs';
import './keyboard.mjs';
import './live.mjs';
import './dashboard-weight.mjs';
import './signatures.mjs';

after(close);

for (const javaScriptEnabled of [true, false]) {
  const how = javaScriptEnabled ? 'with scripts' : 'without scripts';

  test(`from nothing to the first payout, ${how}`, TIMEOUT, async () => {
    // axe is a script.
    const check = async (state) => javaScriptEnabled && (await person.check(state));
    const person = await Person.new(stack, browser, { javaScriptEnabled });
    const shop = await Receiver.open();
    await person.signUp();
    await person.verify();
    await person.logIn();
    await person.sees('Overview', 'Tell us about your business', 'To do');
    await person.tellBusiness();
    await person.approve();
    const key = await person.createKey('Server');
    await person.follow('I have stored it');
    await person.sees('API keys', 'Server', `•••• ${key.slice(-4)}`, 'Live');
    assert.ok(!(await person.page.content()).includes(key), 'the key is shown once');
    await person.setWebhook(shop.url);
    await person.charge(key, number('001'));
    await person.charge(key, number('001', '020'), { amount: 140, provider: 'TELECEL' });
    await person.charge(key, number('003'), { amount: 60 });
    await until('all steps are done', async () => {
      await person.go('/');
      const words = await person.page.innerText('main');
      return words.includes('165.50') && words.includes('enough money') && !words.includes('To do');
    }, 1_000);
    await check('overview');
    await person.go('/settings/integrations/webhooks/deliveries');
    await person.sees('Deliveries', 'payment.success', 'Delivered', '200');
    await person.go('/settings/activity');
    await person.sees('Activity', 'Created an API key', 'Asked to change the webhook endpoint', shop.url);
    await person.go('/payouts');
    await person.follow('Ask for a payout');
    await person.confirm();
    await person.sees('Not possible yet', 'Set up an authenticator');
    await check('payout, no authenticator');
    await person.setUpAuthenticator();
    await person.sees('Not possible yet', 'Say first where the money goes.');
    await person.follow('Set the payout account');
    await person.sees('Set the payout account');
    await person.send({ provider: 'MTN', account: '024', holder_name: 'Ama Mensah' });
    await person.sees('Set the payout account', 'Give a Ghana mobile number');
    await check('payout account, wrong number');
    await person.send({ account: '024 000 0201' });
    await person.sees('Is this you?', 'MTN 024 000 0201 is: Ama Mensah');
    await check('payout account, holder');
    await person.send();
    await person.sees('Payout account', 'Saved.', '024 ••• 0201', 'Name at the network');
    await check('payout account');
    await person.go('/payouts/new');
    await person.sees('Ask for a payout', 'Available: GHS 165.50');
    await check('payout');
    await person.send({ amount: '165.51' });
    await person.sees('Ask for a payout', 'Only GHS 165.50 is available');
    await check('payout, too much');
    await person.send({ amount: '20' });
    await person.sees('Pay out?', 'Amount: GHS 20.00', 'Fee: GHS 0.00', 'Left on your balance: GHS 145.50');
    await check('payout, confirmation');
    await person.send();
    await person.sees('Payout', 'GHS 20.00');
    await until('the payout has arrived', async () => {
      await person.page.reload();
      return (await person.page.innerText('main')).includes('The network has paid it.');
    }, 1_000);
    await person.sees('Payout', 'Arrived');
    await check('payout, arrived');
    await person.go('/balance');
    await person.sees('Balance', 'GHS 145.50');
    await person.go('/settings/activity');
    await person.sees('Activity', 'Asked to change the payout account', 'MTN 024 ••• 0201', 'Asked for a payout');
    await until('it is mailed', async () => {
      const answer = await fetch(`${stack.ready.mail}.json?to=${person.email}`);
      return JSON.stringify(await answer.json()).includes('Your payout account was set');
    });
    await shop.close();
    await person.leave();
  });
}

test('a first payment in the browser alone', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  await person.go('/payments/new');
  await person.check('payment link, new');
  await person.send({ amount: '25,50', description: 'Lunch' });
  await person.sees('Ask for a payment', 'There is a problem');
  await person.send({ amount: '40' });
  await person.sees('Payment link', 'GHS 40.00', 'Not paid yet', 'Lunch');
  await person.check('payment link');
  const link = person.page.url();
  await person.follow('Open the checkout');
  await person.page.getByLabel('MTN MoMo').check();
  await person.page.locator('#mobile_number').fill(number('001'));
  await person.page.locator('main form button').first().click();
  await person.page.locator('body[data-state="prompt"], body[data-state="success"]').waitFor();
  await until('it is paid', async () => {
    await person.page.goto(link);
    return (await person.page.innerText('main')).includes('Paid');
  }, 1_000);
  await person.follow('Its payments');
  await person.sees('Payments', 'Settled', 'GHS 40.00');
  await person.leave();
});

test('a key that is revoked is refused', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  const key = await person.createKey('Old server');
  await person.go('/settings/integrations/keys');
  await person.follow('Revoke');
  await person.send({ label: 'another name' });
  await person.sees('Revoke an API key', "This is not the key's name.");
  await person.check('revoke, wrong name');
  await person.send({ label: 'Old server' });
  await person.sees('API keys', 'The key is revoked.', 'Revoked');
  await until('the key is refused', async () => {
    const answer = await fetch(`${stack.ready.api}/api/v1/balance`, { headers: { authorization: `Bearer ${key}` } });
    return answer.status === 401;
  });
  await person.leave();
});

test('an endpoint that failed is repaired, and what it missed is replayed', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  const shop = await Receiver.open(() => 500);
  await person.becomeMerchant();
  const key = await person.createKey('Server');
  await person.setWebhook(shop.url);
  await person.charge(key, number('001'));
  await person.go('/settings/integrations/webhooks/deliveries');
  await until('the delivery has failed', async () => {
    await person.page.reload();
    return (await person.page.innerText('main')).includes('500');
  }, 1_000);
  await stack.advance(3 * 86_400);
  await person.logIn();
  await person.go('/settings/integrations/webhooks/deliveries?status=EXHAUSTED');
  await person.sees('Deliveries', 'Given up', '500');
  await person.check('deliveries');
  await person.page.locator('td a').first().click();
  await person.sees('Delivery', 'answered 500', 'X-Service-Signature', 'thank you');
  await person.check('delivery');
  shop.answer = () => 200;
  await person.go('/settings/integrations/webhooks/replay');
  await person.check('replay');
  await person.send({ since: '2026-01-01T00:00' });
  await person.sees('Replay them?', '1 given up');
  await person.check('replay, count');
  await person.send();
  await person.sees('Replay');
  await until('the replay has ended', async () => {
    await person.page.reload();
    return (await person.page.innerText('main')).includes('Ended');
  }, 1_000);
  await person.check('replay, ended');
  await person.go('/settings/integrations/webhooks/deliveries');
  await person.sees('Deliveries', 'Delivered');
  await shop.close();
  await person.leave();
});

test('pages without a login', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  for (const [path, title] of [['/signup', 'Sign up'], ['/login', 'Log in'], ['/forgot', 'Forgot your password?']]) {
    await person.go(path);
    await person.sees(title);
    await person.check(path.slice(1));
    await person.send();
    await person.check(`${path.slice(1)}, empty`);
  }
  for (const path of ['/verify-email/nothing', '/reset/nothing']) {
    await person.go(path);
    await person.check(path.split('/')[1]);
    await person.send({ password: PASSWORD });
    await person.sees('This link has ended');
    await person.check('ended link');
  }
  await person.go('/nowhere');
  await person.sees('Page not found');
  await person.check('not found');
  await person.go('/payments');
  await person.sees('Log in');
  await person.leave();
});

test('every page of a merchant fits and can be used by everybody', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  const shop = await Receiver.open();
  await person.becomeMerchant('A Shop With A Rather Long Name That Goes On And On & Sons <b>Ltd</b>');
  const key = await person.createKey('Server');
  await person.check('new key');
  await person.setWebhook(shop.url);
  const reference = await person.charge(key, number('001'));
  await person.charge(key, number('003'));
  await person.charge(key, number('001', '020'), { provider: 'TELECEL' });
  const { page } = person;
  await until('the payment is settled', async () => {
    await person.go('/');
    const words = await page.innerText('main');
    return words.includes('51.00') && words.includes('Payments that failed');
  }, 1_000);
  await until('the customer is listed', async () => {
    await person.go('/customers');
    return page.locator('td a').count();
  }, 1_000);
  const walked = await person.walk(async (kind, answer) => {
    // 409: a payout needs an authenticator first.
    assert.ok(answer.status() < 400 || answer.status() === 409, `${kind}: ${answer.status()}`);
    await person.check(`page ${kind}`.replaceAll('/', ' '));
  });
  assert.ok(walked.size > 30, [...walked].join(' '));
  console.log(`${walked.size} pages walked: ${[...walked].sort().join(' ')}; ${reference}`);
  await shop.close();
  await person.leave();
});

test('what was typed survives a login that ended', TIMEOUT, async () => {
  const person = await Person.new(stack, browser);
  await person.becomeMerchant();
  await person.go('/settings/business');
  await person.fill({ town: 'Kumasi' });
  await stack.advance(3_600);
  await person.send();
  await person.sees('Log in', 'What you typed is kept');
  await person.check('login, kept');
  await person.send({ email: person.email, password: PASSWORD });
  await person.sees('Send it again', 'What you typed was kept');
  await person.check('send again');
  await person.leave();
});
