//! The style sheets and scripts, under names that change with their contents, so that browsers
//! can keep them forever.

use std::{future::ready, sync::LazyLock};

use axum::{
    body::{self, Body, Bytes},
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG},
};
use moka::future::Cache;
use sha2::{Digest as _, Sha256};
use tower::service_fn;
use tower_http::CompressionLevel;

use super::{encoding, is_known};
use crate::error::Error;

/// A file embedded in the binary.
#[derive(Debug)]
pub struct Asset {
    /// Its path, which includes the hash of its content.
    pub path: String,
    family: &'static str,
    hash: String,
    extension: &'static str,
    content_type: &'static str,
    plain: &'static str,
    /// Its bytes in each encoding that a browser has asked for, compressed once.
    encoded: Cache<HeaderValue, Bytes>,
}

/// What one family of pages loads.
#[derive(Debug)]
pub struct Assets {
    pub css: Asset,
    pub js: Asset,
}

pub static CHECKOUT: LazyLock<Assets> = LazyLock::new(|| {
    let css = include_str!("../../assets/checkout.css");
    let js = include_str!("../../assets/checkout.js");
    Assets::new("checkout", css, js)
});

pub static DASHBOARD: LazyLock<Assets> = LazyLock::new(|| {
    let css = include_str!("../../assets/dashboard.css");
    let js = include_str!("../../assets/dashboard.js");
    Assets::new("dashboard", css, js)
});

/// Where assets are served.
pub const FOLDER: &str = "/assets/";

/// What stands for no encoding.
const PLAIN: HeaderValue = HeaderValue::from_static("plain");

/// More than there are.
const ENCODINGS_MAX: u64 = 8;

/// Hex digits of the hash in a name.
const HASH_DIGITS: usize = 16;

impl Asset {
    fn new(
        family: &'static str,
        extension: &'static str,
        content_type: &'static str,
        plain: &'static str,
    ) -> Self {
        let mut hash = hex::encode(Sha256::digest(plain));
        hash.truncate(HASH_DIGITS);
        Self {
            path: format!("{FOLDER}{family}-{hash}.{extension}"),
            family,
            hash,
            extension,
            content_type,
            plain,
            encoded: Cache::new(ENCODINGS_MAX),
        }
    }

    /// The file that a name asks for, whatever its hash: during a rollout, a page of one version
    /// may ask a process of the other.
    fn find(name: &str) -> Option<&'static Self> {
        let (family, name) = name.split_once('-')?;
        let (hash, extension) = name.split_once('.')?;
        let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
        let mut all = all();
        all.find(|asset| is_hash && asset.family == family && asset.extension == extension)
    }
}

impl Assets {
    fn new(family: &'static str, css: &'static str, js: &'static str) -> Self {
        Self {
            css: Asset::new(family, "css", "text/css; charset=utf-8", css),
            js: Asset::new(family, "js", "text/javascript; charset=utf-8", js),
        }
    }
}

fn all() -> impl Iterator<Item = &'static Asset> {
    let families = [&*CHECKOUT, &*DASHBOARD].into_iter();
    families.flat_map(|family| [&family.css, &family.js])
}

/// Whether this path may be cached forever: only if its hash is that of the content.
pub fn is_lasting(path: &str) -> bool {
    all().any(|asset| asset.path == path)
}

/// The file of that name, or 304 if the browser has it.
pub async fn serve(name: &str, request: Request) -> Result<Response, Error> {
    let asset = Asset::find(name).ok_or(Error::NotFound)?;
    let known = request.headers().clone();
    let plain = || ([(CONTENT_TYPE, asset.content_type)], asset.plain).into_response();
    let plain = service_fn(|_| ready(Ok(plain())));
    // Once for each encoding, so the smallest is worth its time.
    let encoded = encoding::negotiate(request, plain, CompressionLevel::Best).await;
    let (mut head, body) = encoded.into_parts();
    let encoding = head.headers.get(CONTENT_ENCODING).cloned();
    let encoding = encoding.unwrap_or(PLAIN);
    // To a cache, each encoding is a file of its own.
    let suffix = encoding.to_str().map_err(Error::internal)?;
    let tag = format!("\"{}-{suffix}\"", asset.hash);
    let header = HeaderValue::try_from(&tag).map_err(Error::internal)?;
    head.headers.insert(ETAG, header);
    if is_known(&known, &tag) {
        head.headers.remove(CONTENT_TYPE);
        head.headers.remove(CONTENT_ENCODING);
        head.status = StatusCode::NOT_MODIFIED;
        return Ok(Response::from_parts(head, Body::empty()));
    }
    let encoded = body::to_bytes(body, usize::MAX);
    let encoded = asset.encoded.try_get_with(encoding, encoded).await;
    let encoded = encoded.map_err(Error::internal)?;
    Ok(Response::from_parts(head, Body::from(encoded)))
}
