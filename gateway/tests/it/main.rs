//! Tests the gateway from outside, over HTTP, in front of services that the tests replace according
//! to their contracts.

mod gateway;
mod http;
mod services;

mod additive;
mod batches;
mod charge;
mod checkout;
mod edge;
mod events;
mod faults;
mod flood;
mod hostile;
mod initiate;
mod keys;
mod limits;
mod lists;
mod money_out;
mod openapi;
mod preflight;
mod rails;
mod secrets;
mod statements;
mod status;
mod timeline;
mod wait;
