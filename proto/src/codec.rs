//! How messages are written to a call and read from it.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{self, BufferSettings};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What each message's buffer holds at first. Nearly all of them have less, and a busy service holds
/// thousands of buffers; tonic's own default is 8 KiB. Longer messages let theirs grow.
const BUFFER_BYTES: usize = 1_024;

/// After how much a stream of messages is passed on, as by default.
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
