//! The simulated networks through their only interfaces: the two APIs, the handsets, the book.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod credits;
mod credits_hubtel;
mod credits_momo;
mod credits_paystack;
mod durability;
mod handset;
mod hubtel;
mod hubtel_stories;
mod mail;
mod momo;
mod paystack;
mod stories;
mod world;
