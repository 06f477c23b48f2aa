//! Who may call what: each service is served at one of its process's ports, that for merchants,
//! payers and other services, or that for operators. Every method in the contracts is asked.

use chassis::{grpc::Channel, testing::connect};
use prost::Message as _;
use prost_types::{FileDescriptorSet, field_descriptor_proto::Type};
use tonic::{Code, Request, client::Grpc};
use tonic_prost::ProstCodec;

use crate::shop::Shop;

/// A method of the contracts.
#[derive(Debug)]
pub struct Method {
    /// The process that serves it, without `-svc`: the package's own name, such as `charges`.
    pub process: String,
    service: String,
    /// `/package.Service/Method`
    pub path: String,
    takes_merchant: bool,
    /// It is kept only because contracts grow.
    is_deprecated: bool,
}

impl Method {
    /// A service that does something for operators alone says so by its name.
    fn is_for_operators(&self) -> bool {
        match self.service.as_str() {
            // Other services call it.
            "SessionOperations" => false,
            "BusinessReviews" | "RailReports" => true,
            name => name.ends_with("Operations"),
        }
    }
}

pub fn methods() -> Vec<Method> {
    let contracts = FileDescriptorSet::decode(proto::DESCRIPTORS).unwrap();
    let mut methods = Vec::new();
    for file in &contracts.file {
        let package = file.package();
        let takes_merchant = |request: &str| {
            let mut messages = contracts.file.iter().flat_map(|file| {
                let named = |name: &str| format!(".{}.{name}", file.package());
                let messages = file.message_type.iter();
                messages.map(move |message| (named(message.name()), message))
            });
            let (_, message) = messages.find(|(name, _)| name == request).unwrap();
            let mut fields = message.field.iter();
            fields.any(|field| field.name() == "merchant_id" && field.r#type() == Type::String)
        };
        for service in &file.service {
            // Batches are served wherever a method may be called by them.
            let processes = match package.split('.').nth(1).unwrap() {
                "batch" => vec!["charges", "sessions", "webhooks"],
                package => vec![package],
            };
            let served = processes.iter().flat_map(|process| {
                let methods = service.method.iter();
                methods.map(move |method| (process, method))
            });
            methods.extend(served.map(|(process, method)| {
                let options = method.options.as_ref();
                Method {
                    process: (*process).to_owned(),
                    service: service.name().to_owned(),
                    path: format!("/{package}.{}/{}", service.name(), method.name()),
                    takes_merchant: takes_merchant(method.input_type()),
                    is_deprecated: options.is_some_and(|options| options.deprecated()),
                }
            }));
        }
    }
    methods
}

/// How it answers an empty request.
pub async fn ask(channel: &Channel, path: &str) -> Code {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let codec = ProstCodec::<(), ()>::default();
    let asked = client.server_streaming(Request::new(()), path.parse().unwrap(), codec);
    match asked.await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

/// The ports of this process: the first, and that for operators.
fn ports(shop: &Shop, process: &str) -> (Channel, Option<Channel>) {
    let grpc = &shop.ready.grpc;
    let (services, operators) = match process {
        "merchants" => (&grpc.merchants, Some(&grpc.merchants_operators)),
        "sessions" => (&grpc.sessions, None),
        "charges" => (&grpc.charges, Some(&grpc.charges_operators)),
        "webhooks" => (&grpc.webhooks, Some(&grpc.webhooks_operators)),
        "ratelimit" => (&grpc.ratelimit, None),
        _ => panic!("no process is called {process}"),
    };
    (connect(services), operators.map(|url| connect(url)))
}

#[tokio::test]
async fn every_method_is_served_at_the_port_of_those_who_may_call_it_and_no_other() {
    let shop = Shop::open().await;
    let mut for_operators = 0;
    for method in methods() {
        let (services, operators) = ports(&shop, &method.process);
        let is_served = async |channel: &Channel| {
            let answer = ask(channel, &method.path).await;
            assert_ne!(answer, Code::Unavailable, "{}", method.path);
            answer != Code::Unimplemented
        };
        let at_services = is_served(&services).await;
        let at_operators = match &operators {
            Some(operators) => is_served(operators).await,
            None => false,
        };
        let wanted = match method.is_deprecated {
            true => (false, false),
            false => (!method.is_for_operators(), method.is_for_operators()),
        };
        assert_eq!((at_services, at_operators), wanted, "{method:?}");
        for_operators += usize::from(at_operators);
    }
    assert!(for_operators > 20, "only {for_operators} are for operators");
    shop.close().await;
}

#[tokio::test]
async fn no_call_of_a_merchant_does_without_the_merchant() {
    let shop = Shop::open().await;
    let mut asked = 0;
    for method in methods() {
        if !method.takes_merchant || method.is_for_operators() || method.is_deprecated {
            continue;
        }
        let (services, _) = ports(&shop, &method.process);
        let answer = ask(&services, &method.path).await;
        let is_refused = matches!(
            answer,
            Code::InvalidArgument | Code::NotFound | Code::Unauthenticated
        );
        assert!(is_refused, "{}: {answer:?}", method.path);
        asked += 1;
    }
    assert!(asked > 30, "only {asked} take a merchant");
    shop.close().await;
}
