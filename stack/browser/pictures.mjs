// Takes the README's pictures anew: `TESTS=pictures.mjs PICTURES=$PWD/docs/pictures .ci/browser`.

import path from 'node:path';
import { after, test } from 'node:test';
import { TIMEOUT, browser, close, stack } from './office.mjs';
import { Payer } from './payer.mjs';
import { Person } from './person.mjs';
import { Receiver } from './receiver.mjs';
import { Shop, number } from './shop.mjs';
import { until } from './stack.mjs';

after(close);

const DESK = { width: 1280, height: 760 };

const picture = (name) => path.join(process.env.PICTURES, `${name}.png`);

test('the checkout', TIMEOUT, async () => {
  const payer = await Payer.arrive(browser);
  const shop = await Shop.open(stack);
  await payer.open(await shop.session({ description: 'Jollof and chicken, two portions' }));
  await payer.sees('form');
  await payer.page.screenshot({ path: picture('checkout'), fullPage: true });
  await payer.leave();
});

/** The numbers whose payments each of seven days sees. */
const WEEK = ['111', '1131', '111', '1411', '11111', '1113', '1151'];

test('the overview', TIMEOUT, async () => {
  const person = await Person.new(stack, browser, { viewport: DESK });
  const shop = await Receiver.open();
  await person.becomeMerchant('Ama’s Kitchen');
  const key = await person.createKey('Server');
  await person.setWebhook(shop.url);
  for (const [day, stories] of WEEK.entries()) {
    if (day > 0) await stack.advance(86_400);
    for (const [index, story] of [...stories].entries()) {
      const amount = 18.5 + 7 * ((day + 3 * index) % 11);
      await person.charge(key, number(`00${story}`), { amount });
      if (index % 2) continue;
      await person.charge(key, number('001', '020'), { amount: amount + 12, provider: 'TELECEL' });
    }
  }
  await stack.advance(60);
  await person.logIn();
  await until('all is counted', async () => {
    await person.go('/');
    const words = await person.page.innerText('main');
    return words.includes('Collected') && !words.includes('To do');
  }, 1_000);
  const clip = { x: 0, y: 0, ...DESK };
  await person.page.screenshot({ path: picture('dashboard'), clip });
  await shop.close();
  await person.leave();
});
