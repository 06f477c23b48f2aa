//! The one style sheet and the one script, under names that change with their contents, so that
//! browsers keep them for good.

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{
    HeaderName,
    header::{CONTENT_TYPE, ETAG},
};
use sha2::{Digest as _, Sha256};

use super::page;
use crate::error::Error;

/// A file that is part of the binary.
#[derive(Clone, Copy, Debug)]
pub enum Asset {
    Css,
    Js,
}

impl Asset {
    const ALL: [Self; 2] = [Self::Css, Self::Js];

    fn content(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Css => (
                include_str!("../../assets/checkout.css"),
                "css",
                "text/css; charset=utf-8",
            ),
            Self::Js => (
                include_str!("../../assets/checkout.js"),
                "js",
                "text/javascript; charset=utf-8",
            ),
        }
    }

    fn name(self) -> String {
        let (content, extension, _) = self.content();
        let hash = hex::encode(Sha256::digest(content));
        format!("checkout-{}.{extension}", hash.get(..16).unwrap_or(&hash))
    }

    pub fn path(self) -> String {
        format!("/assets/{}", self.name())
    }
}

pub async fn serve(Path(name): Path<String>) -> Response {
    let Some(asset) = Asset::ALL.into_iter().find(|asset| asset.name() == name) else {
        return page::refusal(&super::text::ENGLISH, &Error::NotFound);
    };
    let (content, _, content_type) = asset.content();
    let headers: [(HeaderName, &str); 1] = [(CONTENT_TYPE, content_type)];
    let mut response = (headers, content).into_response();
    if let Ok(tag) = format!("\"{name}\"").parse() {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
