// The hosted checkout as payers meet it, in a browser. Each file tells stories of one kind.
//
// `.ci/browser` runs all of it, `.ci/browser 'a part of a name'` some of it. With `PICTURES=folder`
// every page that is checked is also kept as a picture, on a phone, in the dark and on a desk.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { seen } from './visitor.mjs';
import { close, tellAll } from './world.mjs';
import './paying.mjs';
import './again.mjs';
import './return.mjs';
import './closed.mjs';
import './hostile.mjs';
import './everyone.mjs';
import './checkout-weight.mjs';
import './time.mjs';

tellAll();

const STATES = [
  'form', 'otp', 'prompt', 'slow', 'success', 'failed', 'expired', 'unavailable', 'unknown', 'refused',
];

test('every state of the page was checked', () => {
  const states = new Set([...seen].map((name) => name.split(',')[0]));
  assert.deepEqual([...states].sort(), [...STATES].sort());
  console.log(`${seen.size} pages checked: ${[...seen].join('; ')}`);
});

after(close);
