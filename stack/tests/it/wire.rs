//! A client that sends exactly the bytes it is given, and checks of what every refusal must look
//! like.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::shop::Shop;

pub const INITIATE: &str = "/api/v1/payments/initiate";
pub const ALIAS: &str = "/api/payments/initiate";
pub const CHARGE: &str = "/api/v1/payments/charge";
pub const SUBMIT_OTP: &str = "/api/v1/payments/charge/submit-otp";

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A client of the API with one key.
#[derive(Clone)]
pub struct Wire {
    /// Host and port.
    pub address: String,
    pub key: String,
}

impl Wire {
    pub fn of(shop: &Shop) -> Self {
        Self::with_key(shop, &shop.ready.demo.api_key)
    }

    pub fn with_key(shop: &Shop, key: &str) -> Self {
        Self {
            address: shop.ready.api.replacen("http://", "", 1),
            key: key.to_owned(),
        }
    }

    /// A request without a key.
    pub fn keyless(&self, method: &str, path: &str) -> Request {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: api\r\nconnection: close\r\n");
        Request {
            address: self.address.clone(),
            head: head.into_bytes(),
            body: Vec::new(),
        }
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        let request = self.keyless(method, path);
        request.header("authorization", format!("Bearer {}", self.key))
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send().await
    }

    pub async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.request("POST", path).json(body).send().await
    }
}

/// A request under construction.
pub struct Request {
    address: String,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Request {
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.extend_from_slice(name.as_bytes());
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value.as_ref());
        self.head.extend_from_slice(b"\r\n");
        self
    }

    /// Sets the body without any headers for it.
    pub fn raw_body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// Sets a body of any content type, with its length.
    pub fn body(self, body: impl AsRef<[u8]>) -> Self {
        let length = body.as_ref().len().to_string();
        self.header("content-length", length).raw_body(body)
    }

    pub fn json(self, body: impl AsRef<[u8]>) -> Self {
        self.header("content-type", "application/json").body(body)
    }

    pub async fn send(self) -> Reply {
        let mut bytes = self.head;
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        Reply::parse(&exchange(&self.address, &bytes).await)
    }
}

/// Sends the bytes and reads until the server closes the connection. What it sent before a reset
/// still counts.
pub async fn exchange(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that answered early may stop reading.
    stream.write_all(bytes).await.ok();
    read(&mut stream).await
}

pub async fn read(stream: &mut TcpStream) -> Vec<u8> {
    let reading = async {
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut chunk).await {
            answer.extend_from_slice(&chunk[..length]);
        }
        answer
    };
    tokio::time::timeout(ANSWER_MAX, reading)
        .await
        .expect("the server ends the connection")
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    #[track_caller]
    pub fn parse(bytes: &[u8]) -> Self {
        let text = || String::from_utf8_lossy(bytes).into_owned();
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {:?}", text()));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status: status
                .and_then(|status| status.parse().ok())
                .unwrap_or_else(|| panic!("no status: {:?}", text())),
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// The only header of that name.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(given, _)| given == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{} without JSON: {:?}", self.status, self.body))
    }

    /// The value of a text field.
    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        let body = self.json();
        let text = body[name].as_str().map(str::to_owned);
        text.unwrap_or_else(|| panic!("{} without {name}: {body}", self.status))
    }

    #[track_caller]
    pub fn assert_done(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{}", self.json());
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert!(self.header("x-request-id").is_some());
        self
    }

    /// Checks the status, the code, and the form of every refusal.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) -> &Self {
        let body = self.json();
        let told = (self.status, body["code"].as_str());
        assert_eq!(told, (status, Some(code)), "{body}");
        self.assert_form_of_error();
        self
    }

    /// Checks `error`, `code` and `request_id`, which must match the header, and that `fields` is
    /// there exactly if a field is at fault.
    #[track_caller]
    pub fn assert_form_of_error(&self) {
        let body = self.json();
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text(&body["error"]) && is_text(&body["code"]), "{body}");
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        assert!(self.header("x-request-id").is_some());
        assert_eq!(self.header("content-type"), Some("application/json"));
        let fields = body.get("fields").map(|fields| fields.as_array().unwrap());
        assert_eq!(fields.is_some(), body["code"] == "VALIDATION_ERROR");
        for field in fields.into_iter().flatten() {
            for name in ["field", "code", "message"] {
                assert!(is_text(&field[name]), "{body}");
            }
        }
    }

    /// The fields that were refused, each with its code.
    #[track_caller]
    pub fn refused_fields(&self) -> Vec<(String, String)> {
        self.assert_error(400, "VALIDATION_ERROR");
        let body = self.json();
        let fields = body["fields"].as_array().unwrap();
        assert!(!fields.is_empty(), "{body}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        fields
            .iter()
            .map(|field| (text(&field["field"]), text(&field["code"])))
            .collect()
    }

    /// Checks that only this field was refused.
    #[track_caller]
    pub fn assert_refused(&self, field: &str, code: &str) {
        let wanted = (field.to_owned(), code.to_owned());
        assert_eq!(self.refused_fields(), [wanted]);
    }

    /// The answer without what differs between any two: its id, its time, and the remaining rate.
    #[track_caller]
    pub fn without_its_moment(&self) -> (u16, BTreeMap<String, String>, String) {
        let id = self.header("x-request-id").expect("a request id");
        let moment = ["x-request-id", "date", "ratelimit"];
        let headers = self.headers.iter().cloned();
        let headers = headers.filter(|(name, _)| !moment.contains(&name.as_str()));
        let body = self.text().replace(id, "");
        (self.status, headers.collect(), body)
    }
}
