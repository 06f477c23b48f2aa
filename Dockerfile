# syntax=docker/dockerfile:1
#
# One image per binary, without a shell:
#
#     docker build --build-arg SERVICE=gateway -t payments/gateway .
#
# SERVICE is one of gateway, merchants-svc, sessions-svc, charges-svc, webhooks-svc, ratelimit-svc,
# railsim, payctl, loadtest. Everything is compiled once: the argument is only used after that, so all
# nine images share every layer but the last.
#
# The base images are pinned by tag. If you mirror them, pin digests too.

FROM rust:1.94-slim-bookworm AS build
WORKDIR /src
COPY . .
# Both caches outlive the layer, so that a change compiles only what it touches. The simulation enables
# tokio's `test-util`, whose clock can be stopped.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --workspace --exclude simulation --bins --profile dist \
    && find target/dist -maxdepth 1 -type f -executable -exec install -D -t /built {} +

# The binary keeps its name, which the database shows as the client's. /app is the same in all images.
FROM build AS root
ARG SERVICE
RUN test -n "$SERVICE" \
    && install -D "/built/$SERVICE" "/root-of-image/usr/local/bin/$SERVICE" \
    && ln -s "/usr/local/bin/$SERVICE" /root-of-image/app

FROM gcr.io/distroless/cc-debian12:nonroot
ARG SERVICE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="$SERVICE" \
      org.opencontainers.image.description="Payments for Ghana: $SERVICE" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=root /root-of-image/ /
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/app"]
