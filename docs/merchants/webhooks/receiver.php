<?php
// Receives webhooks. Start it with WEBHOOK_SECRET set: php -S 127.0.0.1:9000 receiver.php

const TOLERANCE_SECONDS = 300;

/** Whether the service signed this body, with this secret, within the last five minutes. */
function is_genuine(string $secret, string $header, string $body): bool
{
    $parts = explode(',', $header);
    $times = array_filter($parts, fn ($part) => str_starts_with($part, 't='));
    $sent_at = substr(reset($times) ?: '', 2);
    if (!preg_match('/^[0-9]{1,12}$/D', $sent_at)) {
        return false;
    }
    if (abs(time() - (int) $sent_at) > TOLERANCE_SECONDS) {
        return false;
    }
    $expected = 'v1=' . hash_hmac('sha256', "$sent_at.$body", $secret);
    foreach ($parts as $part) {
        // During a rotation there are two v1. One that matches is enough.
        if (hash_equals($expected, $part)) {
            return true;
        }
    }
    return false;
}

$secret = getenv('WEBHOOK_SECRET');
if (!$secret) {
    http_response_code(500);
    exit('WEBHOOK_SECRET is not set');
}
// The raw bytes: parsed and written again, they would not be what was signed.
$body = file_get_contents('php://input');
if (!is_genuine($secret, $_SERVER['HTTP_X_SERVICE_SIGNATURE'] ?? '', $body)) {
    http_response_code(400);
    exit;
}
// Keep the event under its id, once, and answer. Work on it afterwards.
file_put_contents('php://stdout', "$body\n");
http_response_code(204);
