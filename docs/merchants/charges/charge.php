<?php
// Charges a wallet, once: charge.php NUMBER PROVIDER PESEWAS ORDER. Needs API and KEY.

/** The answer's status and body. Repeats what got no answer, with the same key. */
function charge(string $number, string $provider, int $pesewas, string $order): array
{
    $debit = ['amount' => $pesewas / 100, 'mobile_number' => $number, 'provider' => $provider];
    $request = stream_context_create(['http' => [
        'method' => 'POST',
        'header' => [
            'Authorization: Bearer ' . getenv('KEY'),
            'Content-Type: application/json',
            "Idempotency-Key: $order",
        ],
        'content' => json_encode($debit),
        'timeout' => 15,
        'ignore_errors' => true,
    ]]);
    for ($tries = 0; $tries < 5; $tries++) {
        $pause = 1;
        $answer = @fopen(getenv('API') . '/api/v1/payments/charge', 'r', false, $request);
        if ($answer) {
            $headers = stream_get_meta_data($answer)['wrapper_data'];
            $status = (int) explode(' ', $headers[0])[1];
            $body = json_decode(stream_get_contents($answer), true);
            $code = $body['code'] ?? null;
            if ($body && $status !== 429 && $status < 500 && $code !== 'IDEMPOTENCY_IN_PROGRESS') {
                return [$status, $body];
            }
            $waits = preg_grep('/^retry-after:/i', $headers);
            $pause = $waits ? (int) substr(reset($waits), 12) : $pause;
        } else {
            fwrite(STDERR, "no answer\n");
        }
        sleep($pause);
    }
    fwrite(STDERR, "no answer; the payer may have been charged: try again with the same order\n");
    exit(1);
}

[, $number, $provider, $pesewas, $order] = $argv;
[$status, $body] = charge($number, $provider, (int) $pesewas, $order);
echo json_encode($body), "\n";
// 202: the payer has the prompt, or a code is wanted. Anything else: see "status" or "code".
exit($status === 202 ? 0 : 1);
