// What the dashboard's tests share: one stack and one browser.

import { Stack } from './stack.mjs';
import { launch } from './visitor.mjs';

export const stack = await Stack.start();
export const browser = await launch();

/** No test may take longer, also on a machine that is busy. */
export const TIMEOUT = { timeout: 240_000 };

export async function close() {
  await browser.close();
  await stack.stop();
}
