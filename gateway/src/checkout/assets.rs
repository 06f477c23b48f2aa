//! The style sheet and the script, under names that change with their contents, so that browsers
//! can keep them forever.

use std::{future::ready, sync::LazyLock};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG},
};
use sha2::{Digest as _, Sha256};
use tower::service_fn;

use super::{encoding, is_known};

/// A file embedded in the binary.
#[derive(Debug)]
pub struct Asset {
    /// Its path, which includes the hash of its content.
    pub path: String,
    hash: String,
    extension: &'static str,
    content_type: &'static str,
    plain: &'static str,
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

/// Hex digits of the hash in a name.
const HASH_DIGITS: usize = 16;

impl Asset {
    fn new(extension: &'static str, content_type: &'static str, plain: &'static str) -> Self {
        let mut hash = hex::encode(Sha256::digest(plain));
        hash.truncate(HASH_DIGITS);
        Self {
            path: format!("{FOLDER}{NAME}{hash}.{extension}"),
            hash,
            extension,
            content_type,
            plain,
        }
    }

    /// The file that a name asks for, whatever its hash: during a rollout, a page of one version
    /// may ask a process of the other.
    fn find(name: &str) -> Option<&'static Self> {
        let (hash, extension) = name.strip_prefix(NAME)?.split_once('.')?;
        let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
        let mut all = [&CSS, &JS].into_iter().map(|asset| &**asset);
        all.find(|asset| is_hash && asset.extension == extension)
    }
}

/// Whether this path may be cached forever: only if its hash is that of the content.
pub fn is_lasting(path: &str) -> bool {
    path == CSS.path || path == JS.path
}

/// The file of that name, or 304 if the browser has it. `None` if there is no such file.
pub async fn serve(name: &str, request: Request) -> Option<Response> {
    let asset = Asset::find(name)?;
    let known = request.headers().clone();
    let plain = || ([(CONTENT_TYPE, asset.content_type)], asset.plain).into_response();
    let plain = service_fn(|_| ready(Ok(plain())));
    let mut response = encoding::answer(request, plain).await;
    // To a cache, each encoding is a file of its own.
    let encoding = response.headers().get(CONTENT_ENCODING);
    let suffix = encoding.map_or(Ok("plain"), HeaderValue::to_str);
    let tag = format!(
        "\"{}-{}\"",
        asset.hash,
        suffix.expect("encodings have plain names")
    );
    if is_known(&known, &tag) {
        let headers = response.headers_mut();
        headers.remove(CONTENT_TYPE);
        headers.remove(CONTENT_ENCODING);
        (*response.status_mut(), *response.body_mut()) = (StatusCode::NOT_MODIFIED, Body::empty());
    }
    let tag = HeaderValue::try_from(tag).expect("a hash is visible ASCII");
    response.headers_mut().insert(ETAG, tag);
    Some(response)
}
