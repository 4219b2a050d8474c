// The smallest runner: check("name", async () => …) and, at the end, run(). One line per check,
// "ok NAME" or "not ok NAME: why"; tests/e2e/test_peers.py reads them.
import assert from "node:assert/strict";
import { once } from "node:events";

const checks = [];
export const address = process.argv[2];
export const [host, port] = [address.replace(/:\d+$/, ""), Number(address.replace(/.*:/, ""))];

export function check(name, fn) {
  checks.push({ name, fn });
}

export function within(ms, promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${ms} ms for ${what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// How many times longer things may take here (harness.SLOW).
export const slow = Number(process.env.SLOW || 1);

export async function run() {
  let failed = 0;
  for (const { name, fn } of checks) {
    try {
      await within(20000 * slow, fn(), name);
      console.log(`ok ${name}`);
    } catch (err) {
      failed++;
      console.log(`not ok ${name}: ${String(err && err.stack).replaceAll("\n", " | ")}`);
    }
  }
  process.exit(failed ? 1 : 0);
}

export { assert, once };
