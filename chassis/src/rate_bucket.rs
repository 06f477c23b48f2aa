//! The buckets of the rate limits, which the gateway asks for and ratelimit-svc counts.

use proto::ratelimit::Bucket;

crate::closed_list! {
    /// What is counted together (spec §8), as Redis and metrics call it.
    pub enum RateBucket: "a bucket" {
        Payments = "payments",
        Charge = "charge",
        ChargeStatus = "charge:status",
        Read = "read",
        Write = "write",
        /// Look-ups of one phone number by one merchant.
        Number = "number",
        /// Look-ups of one phone number, at all merchants together. The others count a merchant's
        /// requests.
        NumberOverall = "number:overall",
    }
}

crate::proto_list! {
    RateBucket = Bucket { Payments, Charge, ChargeStatus, Read, Write, Number, NumberOverall }
}
