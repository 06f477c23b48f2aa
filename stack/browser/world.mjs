// What all tests share: one stack, one browser, and how a story is told.

import { describe, test } from 'node:test';
import { Payer, atHandset } from './payer.mjs';
import { Shop, Site } from './shop.mjs';
import { Stack } from './stack.mjs';
import { launch } from './visitor.mjs';

export const stack = await Stack.start();
export const browser = await launch();

export async function close() {
  await browser.close();
  await stack.stop();
}

/** Stories that may be told at once: most of a story is waiting. */
const STORIES_AT_ONCE = 3;

/** No story may take longer, also on a machine that is busy. */
const STORY_MAX_MS = 240_000;

const [together, alone] = [[], []];

/** A test with a shop, its site, and a payer whose browser has these options. */
export function story(claim, options, tell) {
  together.push([claim, () => told(options, tell)]);
}

/** One that moves the time of all. */
export function storyOfTime(claim, options, tell) {
  alone.push([claim, () => told(options, tell)]);
}

export function tellAll() {
  const tell = (stories) => () => stories.forEach(([claim, run]) => test(claim, { timeout: STORY_MAX_MS }, run));
  describe('the checkout', { concurrency: STORIES_AT_ONCE }, tell(together));
  describe('the checkout as time goes by', tell(alone));
}

async function told(options, tell) {
  const [shop, site] = [await Shop.open(stack), await Site.open()];
  const payer = await Payer.arrive(browser, options);
  try {
    await tell({ shop, site, payer });
    await payer.leave();
  } finally {
    await payer.context.close();
    await site.close();
  }
}

/** Another browser, on another device. */
export function anotherPayer(options) {
  return Payer.arrive(browser, options);
}

export const approve = (from) => atHandset(browser, stack, 'Approve', from);
export const decline = (from) => atHandset(browser, stack, 'Decline', from);
