//! The one style sheet and the one script, under names that change with their contents, so that
//! browsers keep them for good.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG},
};
use sha2::{Digest as _, Sha256};

use super::{
    encoding::{self, Effort, Encoding},
    is_known,
};

/// A file that is part of the binary.
#[derive(Debug)]
pub struct Asset {
    /// Where it is, with the hash of its content.
    pub path: String,
    hash: String,
    extension: &'static str,
    content_type: &'static str,
    plain: &'static str,
    brotli: Bytes,
    gzip: Bytes,
}

pub static CSS: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("../../assets/checkout.css");
    Asset::new("css", "text/css; charset=utf-8", content)
});

pub static JS: LazyLock<Asset> = LazyLock::new(|| {
    let content = include_str!("../../assets/checkout.js");
    Asset::new("js", "text/javascript; charset=utf-8", content)
});

const FOLDER: &str = "/assets/";
const NAME: &str = "checkout-";

/// Digits of the hash in a name.
const HASH_DIGITS: usize = 16;

impl Asset {
    fn new(extension: &'static str, content_type: &'static str, plain: &'static str) -> Self {
        let mut hash = hex::encode(Sha256::digest(plain));
        hash.truncate(HASH_DIGITS);
        let encode = |encoding: Encoding| encoding.encode(plain.as_bytes(), Effort::Best).into();
        Self {
            path: format!("{FOLDER}{NAME}{hash}.{extension}"),
            hash,
            extension,
            content_type,
            plain,
            brotli: encode(Encoding::Brotli),
            gzip: encode(Encoding::Gzip),
        }
    }

    /// The file that a name asks for, in whichever version: while a new version is rolled out, a
    /// page of one may ask a process of the other.
    fn find(name: &str) -> Option<&'static Self> {
        let (hash, extension) = name.strip_prefix(NAME)?.split_once('.')?;
        let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
        let mut all = [&CSS, &JS].into_iter().map(|asset| &**asset);
        all.find(|asset| is_hash && asset.extension == extension)
    }

    fn body(&self, encoding: Option<Encoding>) -> Bytes {
        match encoding {
            None => Bytes::from_static(self.plain.as_bytes()),
            Some(Encoding::Brotli) => self.brotli.clone(),
            Some(Encoding::Gzip) => self.gzip.clone(),
        }
    }
}

/// Encodes the files, before anybody waits for them.
pub fn prepare() {
    LazyLock::force(&CSS);
    LazyLock::force(&JS);
}

/// Whether what is at this path may be kept: only what the name promises.
pub fn is_lasting(path: &str) -> bool {
    path == CSS.path || path == JS.path
}

/// The file of that name, unless the browser has it.
pub fn serve(name: &str, headers: &HeaderMap) -> Option<Response> {
    let asset = Asset::find(name)?;
    let encoding = Encoding::accepted(headers);
    let suffix = encoding.map_or("plain", Encoding::name);
    let tag = format!("\"{}-{suffix}\"", asset.hash);
    let mut response = if is_known(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(CONTENT_TYPE, asset.content_type)], asset.body(encoding)).into_response()
    };
    let is_sent = response.status().is_success();
    let headers = response.headers_mut();
    let tag = HeaderValue::try_from(tag).expect("a hash is visible ASCII");
    headers.insert(ETAG, tag);
    encoding::vary(headers);
    if let Some(encoding) = encoding.filter(|_| is_sent) {
        let name = HeaderValue::from_static(encoding.name());
        headers.insert(CONTENT_ENCODING, name);
    }
    Some(response)
}
