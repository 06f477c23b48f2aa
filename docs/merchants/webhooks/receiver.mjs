// Receives webhooks. Start it with WEBHOOK_SECRET set, and PORT if 9000 is taken.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const SECRET = process.env.WEBHOOK_SECRET;
const TOLERANCE_SECONDS = 300;
const BODY_BYTES_MAX = 64 * 1024;

if (!SECRET) throw new Error("WEBHOOK_SECRET is not set");

// Whether the service signed this body, with this secret, within the last five minutes.
function isGenuine(header, body) {
  const parts = header.split(",");
  const sentAt = parts.find((part) => part.startsWith("t="))?.slice(2) ?? "";
  if (!/^[0-9]{1,12}$/.test(sentAt)) return false;
  if (Math.abs(Date.now() / 1000 - Number(sentAt)) > TOLERANCE_SECONDS) return false;
  const mac = createHmac("sha256", SECRET).update(`${sentAt}.`).update(body);
  const expected = Buffer.from(`v1=${mac.digest("hex")}`);
  // During a rotation there are two v1. One that matches is enough.
  return parts.some((part) => {
    const given = Buffer.from(part);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

async function receive(request, response) {
  // The raw bytes: parsed and written again, they would not be what was signed.
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) return response.writeHead(413).end();
    chunks.push(chunk);
  }
  const body = Buffer.concat(chunks);
  if (!isGenuine(request.headers["x-service-signature"] ?? "", body)) {
    return response.writeHead(400).end();
  }
  // Keep the event under its id, once, and answer. Work on it afterwards.
  console.log(body.toString());
  response.writeHead(204).end();
}

createServer((request, response) => {
  // A connection that breaks off ends here.
  receive(request, response).catch(() => response.destroy());
}).listen(Number(process.env.PORT ?? 9000), "127.0.0.1");
