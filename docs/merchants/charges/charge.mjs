// Charges a wallet, once: charge.mjs NUMBER PROVIDER PESEWAS ORDER. Needs API and KEY.

// The answer's status and body. Repeats what got no answer, with the same key.
async function charge(number, provider, pesewas, order) {
  const { API, KEY } = process.env;
  for (let tries = 0; tries < 5; tries++) {
    let pause = 1;
    try {
      const answer = await fetch(`${API}/api/v1/payments/charge`, {
        method: "POST",
        headers: {
          Authorization: `Bearer ${KEY}`,
          "Content-Type": "application/json",
          "Idempotency-Key": order,
        },
        body: JSON.stringify({ amount: pesewas / 100, mobile_number: number, provider }),
        signal: AbortSignal.timeout(15_000),
      });
      if (answer.status !== 429 && answer.status < 500) {
        const body = await answer.json();
        if (body.code !== "IDEMPOTENCY_IN_PROGRESS") return [answer.status, body];
      }
      pause = Number(answer.headers.get("Retry-After") ?? pause);
    } catch (error) {
      console.error(`no answer: ${error.cause ?? error}`);
    }
    await new Promise((resume) => setTimeout(resume, pause * 1000));
  }
  throw new Error("no answer; the payer may have been charged: try again with the same order");
}

const [number, provider, pesewas, order] = process.argv.slice(2);
const [status, body] = await charge(number, provider, Number(pesewas), order);
console.log(JSON.stringify(body));
// 202: the payer has the prompt, or a code is wanted. Anything else: see "status" or "code".
process.exitCode = status === 202 ? 0 : 1;
