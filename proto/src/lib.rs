//! The contracts between the services. The `.proto` files beside this crate are the reference
//! documentation; this is what they generate, and the codes of their closed lists.

pub mod batched;
mod codec;
mod codes;
mod masked;

pub use payments::batch::v1 as batch;
pub use payments::charges::v1 as charges;
pub use payments::merchants::v1 as merchants;
pub use payments::money::v1 as money;
pub use payments::ratelimit::v1 as ratelimit;
pub use payments::sessions::v1 as sessions;
pub use payments::webhooks::v1 as webhooks;

/// The packages' own nesting, by which the generated code refers to itself.
mod payments {
    pub mod batch {
        pub mod v1 {
            tonic::include_proto!("payments.batch.v1");
        }
    }
    pub mod charges {
        pub mod v1 {
            tonic::include_proto!("payments.charges.v1");
        }
    }
    pub mod merchants {
        pub mod v1 {
            tonic::include_proto!("payments.merchants.v1");
        }
    }
    pub mod money {
        pub mod v1 {
            tonic::include_proto!("payments.money.v1");
        }
    }
    pub mod ratelimit {
        pub mod v1 {
            tonic::include_proto!("payments.ratelimit.v1");
        }
    }
    pub mod sessions {
        pub mod v1 {
            tonic::include_proto!("payments.sessions.v1");
        }
    }
    pub mod webhooks {
        pub mod v1 {
            tonic::include_proto!("payments.webhooks.v1");
        }
    }
}

/// All of the contracts as an encoded `FileDescriptorSet`, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
