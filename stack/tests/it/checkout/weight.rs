//! The size of the pages on a slow network (pages.md: "Low-bandwidth budget").

use std::io::Read as _;

use reqwest::{Response, header::HeaderMap};

use super::{Page, Payer, order};
use crate::shop::Shop;

/// Largest page with its style sheet and script, in uncompressed bytes.
const FIRST_VIEW_MAX: usize = 30 * 1024;

/// Largest page and largest file, in bytes as sent.
const PAGE_MAX: usize = 14 * 1024;
const FILE_MAX: usize = 6 * 1024;

/// Largest answer to a poll for the page's state, in bytes with its head.
const LOOK_MAX: usize = 600;

/// An answer as sent.
struct Sent {
    code: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Sent {
    async fn of(response: Response) -> Self {
        Self {
            code: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    fn decoded(&self) -> String {
        let mut text = String::new();
        let mut body = self.body.as_slice();
        match self.header("content-encoding") {
            "br" => brotli::Decompressor::new(body, 4096).read_to_string(&mut text),
            "gzip" => flate2::read::GzDecoder::new(body).read_to_string(&mut text),
            "" => body.read_to_string(&mut text),
            other => panic!("nobody asked for {other}"),
        }
        .unwrap();
        text
    }
}

async fn get(payer: &Payer, path: &str, headers: &[(&str, &str)]) -> Sent {
    let mut request = payer.client.get(format!("{}{path}", payer.base));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Sent::of(request.send().await.unwrap()).await
}

/// Where the page's style sheet and script are.
fn files(page: &Page) -> [String; 2] {
    ["href", "src"].map(|attribute| {
        let before = format!("{attribute}=\"/assets/");
        let name = page.between(&before, "\"").unwrap();
        format!("/assets/{name}")
    })
}

#[tokio::test]
async fn the_first_view_is_light() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let mut weight = page.html.len();
    let path = format!("/pay/{}", payer.session_id);
    let sent = get(&payer, &path, &[("accept-encoding", "br")]).await;
    println!("page: {} bytes, sent {}", page.html.len(), sent.body.len());
    assert!(sent.body.len() <= PAGE_MAX);
    for (path, kind) in files(&page).iter().zip(["text/css", "text/javascript"]) {
        let file = get(&payer, path, &[]).await;
        assert_eq!(file.code, 200);
        assert!(file.header("content-type").starts_with(kind));
        assert!(file.header("cache-control").contains("immutable"));
        let sent = get(&payer, path, &[("accept-encoding", "gzip")]).await;
        println!(
            "{kind}: {} bytes, sent {}",
            file.body.len(),
            sent.body.len()
        );
        assert!(sent.body.len() <= FILE_MAX);
        weight += file.body.len();
    }
    assert!(weight <= FIRST_VIEW_MAX, "{weight}");
    for foreign in ["http://", "https://"] {
        let html = page.html.replace("https://shop.example", "");
        assert!(!html.contains(foreign), "a third party is named");
    }
    shop.close().await;
}

#[tokio::test]
async fn what_a_browser_takes_smaller_is_sent_smaller_and_is_the_same() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let page = payer.open().await;
    let paths = [format!("/pay/{}", payer.session_id), "/pay/x".to_owned()];
    for path in paths.iter().chain(&files(&page)) {
        let plain = get(&payer, path, &[]).await;
        assert_eq!(plain.header("content-encoding"), "", "{path}");
        assert_eq!(plain.header("vary"), "accept-encoding", "{path}");
        // Everything before what each form has of its own.
        let same = |text: &str| text.split("name=\"attempt\"").next().unwrap().to_owned();
        for encoding in ["br", "gzip"] {
            let sent = get(&payer, path, &[("accept-encoding", encoding)]).await;
            assert_eq!(sent.header("content-encoding"), encoding, "{path}");
            assert_eq!(sent.header("vary"), "accept-encoding", "{path}");
            assert_eq!(sent.code, plain.code);
            assert!(sent.body.len() < plain.body.len(), "{path}");
            assert_eq!(same(&sent.decoded()), same(&plain.decoded()), "{path}");
            let length = sent.body.len().to_string();
            assert_eq!(sent.header("content-length"), length, "{path}");
            for header in ["content-security-policy", "cache-control"] {
                assert_eq!(sent.header(header), plain.header(header), "{path}");
            }
        }
    }
    let url = format!("{}{}", payer.base, paths[0]);
    let head = payer
        .client
        .head(url)
        .header("accept-encoding", "br")
        .send();
    let head = Sent::of(head.await.unwrap()).await;
    let plain = get(&payer, &paths[0], &[]).await;
    for header in ["content-encoding", "content-length", "vary"] {
        assert_eq!(head.header(header), plain.header(header), "{header}");
    }
    for nothing in ["identity", "br;q=0, gzip;q=0.0", "zstd", ";;,=,\"", "x;br"] {
        let sent = get(&payer, &paths[0], &[("accept-encoding", nothing)]).await;
        let told = (sent.code, sent.header("content-encoding"));
        assert_eq!(told, (200, ""), "{nothing}");
    }
    shop.close().await;
}

#[tokio::test]
async fn a_file_that_a_browser_has_is_not_sent_again() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    for path in files(&payer.open().await) {
        let mut tags: Vec<String> = Vec::new();
        for encoding in ["identity", "gzip", "br"] {
            let takes = ("accept-encoding", encoding);
            let sent = get(&payer, &path, &[takes]).await;
            let tag = sent.header("etag").to_owned();
            let weak = format!("\"other\", W/{tag}");
            for known in [&tag, &weak] {
                let same = get(&payer, &path, &[takes, ("if-none-match", known)]).await;
                assert_eq!((same.code, same.body.len()), (304, 0), "{path} {encoding}");
                assert_eq!(same.header("etag"), tag);
                assert_eq!(same.header("vary"), "accept-encoding");
                assert!(same.header("cache-control").contains("immutable"));
            }
            let head = payer.client.head(format!("{}{path}", payer.base));
            let head = head.header("accept-encoding", encoding).send();
            let head = Sent::of(head.await.unwrap()).await;
            assert_eq!((head.code, head.body.len()), (200, 0), "{path} {encoding}");
            assert_eq!(head.header("etag"), tag);
            assert_eq!(head.header("content-length"), sent.body.len().to_string());
            for other in &tags {
                let sent = get(&payer, &path, &[takes, ("if-none-match", other)]).await;
                assert_eq!(sent.code, 200, "{path}: another encoding is another file");
            }
            tags.push(tag);
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn a_look_at_the_state_is_small_and_stays_as_it_is() {
    let shop = Shop::open().await;
    let payer = Payer::of(&shop, order()).await;
    let path = format!("/pay/{}/state", payer.session_id);
    let all = ("accept-encoding", "br, gzip");
    let sent = get(&payer, &path, &[all]).await;
    assert_eq!(sent.header("content-encoding"), "");
    assert_eq!(sent.body, b"{\"state\":\"form\"}");
    let tag = sent.header("etag").to_owned();
    let same = get(&payer, &path, &[all, ("if-none-match", &tag)]).await;
    assert_eq!((same.code, same.body.len()), (304, 0));
    for sent in [sent, same] {
        let head =
            |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
                name.as_str().len() + value.len() + 4
            };
        let weight = sent.body.len() + sent.headers.iter().map(head).sum::<usize>();
        println!("a look: {weight} bytes");
        assert!(weight <= LOOK_MAX, "{weight}");
    }
    shop.close().await;
}
