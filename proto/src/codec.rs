//! How messages are written to a call and read from it.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{self, BufferSettings};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What a call's buffers, one each way, hold at first. Nearly all messages are shorter, and a busy
/// service holds hundreds of buffers; tonic's default is 8 KiB. They grow for longer ones.
const BUFFER_BYTES: usize = 1_024;

/// How much of a stream is gathered before it is passed on: tonic's default, which it does not export.
const PASSED_ON_BYTES: usize = 32 * 1_024;

/// The usual encoding, in small buffers. The generated clients and servers use it.
#[derive(Clone, Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(buffers())
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, PASSED_ON_BYTES)
}
